"""docs/reproduction*.md: the numbers come out again, and the tables are what the experiments show."""

import re
from pathlib import Path

import pytest

from relaydp.paper import EXPERIMENTS, FULL
from relaydp.paper.experiment import Found, ResultTable
from relaydp.paper.runs import measure
from relaydp.paper.tables import ALL_ROWS, printed_cell, useful_cell

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join(page.read_text() for page in sorted(DOCS.glob("reproduction*.md")))


def section(name):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", PAGE, re.S)[1]


def table(name, title):
    """Rows of one table of the page, its header first."""
    text = section(name).split(f"**{title}**", 1)[1].lstrip().split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [rows[0], *rows[2:]]


def near(shown, value):
    """Two digits are printed, and other machines round differently."""
    return float(shown) == pytest.approx(value, rel=0.06, abs=1e-14)


def printed_row(loss, name):
    header, *rows = table(f"table-{loss}", f"As printed: {loss} regression")
    row, at = rows[list(ALL_ROWS).index(name)], header.index("ijcnn1 s")
    assert row[2] == ALL_ROWS[name].title
    return row[1:2] + row[3:6] + [cell.split()[0] for cell in row[at + 1 : at + 3]]


QUICK_CELLS = [("linear", "recal, no noise"), ("linear", "nids, l1"), ("logistic", "recal, l1, round-robin")]
SLOW_CELLS = [
    ("linear", "recal"),
    ("linear", "mradmm"),
    ("linear", "huang, l1"),
    ("logistic", "extra, l1"),
    ("logistic", "recal, no noise, walk"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("loss", "name"), [*QUICK_CELLS, *(pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW_CELLS)]
)
def test_a_printed_cell_comes_out_again(loss, name):
    """The real data, the page's own effort: PLF 300 or 2,000, 16 seeds."""
    found = measure(printed_cell(loss, "ijcnn1", ALL_ROWS[name], FULL))
    plf, rule, links, vectors, error, accuracy = printed_row(loss, name)
    assert (int(plf), int(links), int(vectors)) == (found["plf"], found["messages"], found["vectors"])
    assert int(rule.split()[0]) == found["messages_paper"]
    assert near(error, found["relative_error"]["median"])
    assert float(accuracy) == pytest.approx(found["accuracy"]["median"], abs=0.012)


@pytest.mark.parametrize(
    "algorithm", ["recal", pytest.param("nids", marks=pytest.mark.slow), pytest.param("dgd", marks=pytest.mark.slow)]
)
def test_a_useful_cell_comes_out_again(algorithm):
    from relaydp.algorithm import ALGORITHMS

    found = measure(useful_cell("logistic", "ijcnn1", algorithm, False, FULL))
    _, *rows = table("table-logistic", "Useful: logistic regression, r = 0")
    row = next(row for row in rows if row[0] == ALGORITHMS[algorithm].title)
    assert near(row[1], found["excess"]["median"]) and int(row[3]) == found["plf"]


def test_every_table_of_an_experiment_is_on_the_page():
    for name, experiment in EXPERIMENTS.items():
        part = section(name)
        for block in experiment.show(Found(FULL, {}), Path("nowhere")) if name.startswith("table") else ():
            if isinstance(block, ResultTable):
                assert f"**{block.title}**" in part
        assert f"relaydp paper run {name}" in PAGE and len(part) > 500
