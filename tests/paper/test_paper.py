"""`relaydp paper`: cells that can be trusted, resumed and shared, and pages that say what the cells hold."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from effort import size
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app
from relaydp.errors import InputError
from relaydp.paper import EXPERIMENTS, FULL, QUICK, attacks, find_experiments, run_experiments, runner, runs
from relaydp.paper.experiment import AS_PRINTED, USEFUL, Experiment, Found, ResultTable
from relaydp.paper.printed import LINEAR, TABLES
from relaydp.paper.runner import read_cell
from relaydp.paper.runs import Run, Timing, measure, problem_of, seconds
from relaydp.paper.tables import ALL_ROWS, ROWS, level, printed_cell, useful_cell

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "spec" / "paper.tex"
TINY = QUICK._replace(name="tiny", data=("fashion-small",), seeds=2, fixed=3, decaying=4, figure=3)
SMALL = Run("logistic", "fashion-small", USEFUL, "recal", "cyclic", 1e-4, 12.0, 3, 2)


def attacked(data):
    return attacks.measure(attacks.cell_of(data, "dlg", TINY))


# -- the paper's numbers


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside this checkout")
@pytest.mark.parametrize("loss", ["linear", "logistic"])
def test_the_printed_numbers_are_the_papers(loss):
    """Every number of its two tables, in its order."""
    label = {"linear": "Table-total}", "logistic": "Table-total_LG}"}[loss]
    tables = re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", PAPER.read_text(), re.S)
    source = next(table for table in tables if label in table)
    rows = re.findall(r"&(?:\\textbf\{)?(?:DP-[A-Z]+)(?:\\cite\{\w+\})?\}?&(.*?)\\\\", source)
    numbers = [re.sub(r"\\textbf\{(.*?)\}", r"\1", row).split("&") for row in rows]
    ours = [[row.communication, *row.ijcnn1, *row.mnist, *row.fashion, *row.cifar10] for row in TABLES[loss].values()]
    assert np.array_equal(np.array(numbers, dtype=float), np.array(ours))


def test_every_printed_row_is_run():
    assert ROWS.keys() == LINEAR.keys() == TABLES["logistic"].keys()
    assert set(ROWS) < set(ALL_ROWS)


# -- cells


def test_a_cell_is_what_solve_gives():
    """The same seeds, model for model: medians of `sweep` with the same arguments."""
    cell = replace(SMALL, plf=4)
    found = measure(cell)
    data = rd.load_data("fashion-small")
    options = {"l2": 0.01, "l1": 1e-4, "record_norm": 1.0}
    problem = rd.logistic(data, agents=8, **options)
    some = np.random.default_rng(0).permutation(len(data.test))[:500]
    public = rd.Records(data.test.X[some], data.test.y[some], ranges=data.ranges)
    budget = rd.Budget(12.0, 1e-3)
    prior = rd.logistic(public, agents=1, **options)
    runs = rd.sweep(problem, rd.ring(8), range(2), [budget], walk="cyclic", activations=4, prior=prior)
    assert found["excess"]["median"] == pytest.approx(float(np.median(runs.excess)), rel=1e-6)
    assert found["relative_error"]["median"] == pytest.approx(float(np.median(runs.relative_error)), rel=1e-6)
    assert found["epsilon"] == pytest.approx(12.0, rel=1e-6) and found["plf"] == 4 and found["messages"] == 32
    curve = found["curve"]
    assert curve["plf"][0] == 0 and curve["plf"][-1] == 4
    assert curve["error"][1][-1] == pytest.approx(found["relative_error"]["median"], rel=1e-9)
    assert len(curve["plf"]) == len(curve["error"][0]) == len(curve["excess"][2]) == len(curve["accuracy"][1])


def test_as_printed_without_noise_recal_arrives_where_it_can():
    """Round-robin, the paper's steps and weights: 1e-12 at PLF 300 where the problem is well conditioned."""
    cell = Run("linear", "breast-cancer", AS_PRINTED, "recal", "cyclic", 0.0, 0.0, 300, 1)
    found = measure(cell)
    assert found["relative_error"]["median"] < 1e-12 and not found["solution"]["zero"]
    assert found["epsilon"] is None and found["mechanism"] is None


def test_a_minimiser_of_zero_is_stated_and_never_divided_by():
    """Features in [0, 1] and l1 = 1/2: x* = 0 for the logistic loss, whatever the data (RECAL's F3)."""
    found = measure(Run("logistic", "breast-cancer", AS_PRINTED, "recal", "cyclic", 0.5, 0.0, 20, 1))
    assert found["solution"]["zero"] and found["solution"]["nonzero"] == 0
    assert 0.0 <= found["relative_error"]["median"] < 1.0  # relative to the start, which is not 0
    at_zero = measure(Run("logistic", "breast-cancer", USEFUL, "recal", "cyclic", 0.5, 0.0, 2, 1))
    assert at_zero["solution"]["zero"] and at_zero["relative_error"] is None  # start and minimiser are both 0


def test_noise_for_one_record_is_m_times_smaller():
    cell = Run("linear", "fashion-small", AS_PRINTED, "recal", "cyclic", 0.0, 12.0, 3, 1)
    whole, record = measure(cell), measure(replace(cell, per_record=True))
    assert whole["noise"][0] / record["noise"][0] == pytest.approx(1500)
    assert record["relative_error"]["median"] < whole["relative_error"]["median"]


def test_what_cannot_run_says_why():
    found = measure(replace(SMALL, algorithm="mr-admm"))
    assert "mr-admm" in found["error"] and "ic-admm" in found["error"]  # and what to use instead


@pytest.mark.parametrize("ask", [measure, lambda run: seconds(Timing(run)), lambda run: attacked(run.data)])
def test_data_that_is_not_here_stops_the_work_and_is_not_kept_as_an_outcome(ask):
    with pytest.raises(InputError, match="nowhere"):
        ask(replace(SMALL, data="nowhere"))


def test_a_timing_is_of_one_run_alone():
    cell = Timing(replace(SMALL, seeds=1))
    found = seconds(cell)
    assert cell.alone and found["seconds"] > 0 and found["whole"]


def test_an_exact_method_is_timed_by_its_first_hops(monkeypatch):
    """Its chunks may take minutes each; a whole run where that is short enough."""
    cell = Timing(Run("linear", "breast-cancer", AS_PRINTED, "rw-admm", "random", 0.5, 12.0, 3, 1))
    assert seconds(cell)["whole"]
    monkeypatch.setattr(runs, "TIMED_FOR", 0.0)
    found = seconds(cell)
    assert found["seconds"] > 0 and not found["whole"]


def test_equal_cells_share_a_name_and_different_ones_do_not():
    cells = {cell.key: cell for effort in (FULL, QUICK) for each in EXPERIMENTS.values() for cell in each.cells(effort)}
    assert len(cells) == len(set(cells.values()))
    assert replace(SMALL, seeds=3).key != SMALL.key == replace(SMALL, seeds=2).key


# -- running


def squares(broken=()):
    """An experiment that counts how often it is asked."""
    asked = []

    def compute(cell, progress):
        asked.append(cell.seeds)
        if cell.seeds in broken:
            raise KeyboardInterrupt
        return {"square": cell.seeds**2}

    def show(found, folder):
        rows = [(str(cell.seeds), str(found.of(cell).get("square", "missing"))) for cell in cells(found.effort)]
        return [ResultTable("Squares", ("n", "n^2"), rows), "<b> & plain"]

    def cells(effort):
        return [replace(SMALL, seeds=k) for k in (1, 2, 3)]

    return Experiment("squares", "Squares", "nowhere", cells, compute, show), asked


def test_an_interrupted_run_keeps_its_cells_and_goes_on(tmp_path):
    first, asked = squares(broken=(3,))
    with pytest.raises(KeyboardInterrupt):
        run_experiments([first], tmp_path, QUICK)
    page = (tmp_path / "paper.md").read_text()
    assert asked == [1, 2, 3] and "1 cells are missing" in page and "| 2 | 4 |" in page and "| 3 | missing |" in page
    again, asked = squares()
    run_experiments([again], tmp_path, QUICK)
    assert asked == [3] and "missing" not in (tmp_path / "paper.md").read_text()
    run_experiments([again], tmp_path, QUICK, fresh=True)
    assert asked == [3, 1, 2, 3]


def test_a_damaged_cell_is_computed_again(tmp_path):
    experiment, asked = squares()
    run_experiments([experiment], tmp_path, QUICK)
    cell = replace(SMALL, seeds=2)
    (tmp_path / "cells" / f"{cell.key}.json").write_text('{"cell": {')
    assert read_cell(tmp_path, cell) is None
    run_experiments([experiment], tmp_path, QUICK)
    assert asked == [1, 2, 3, 2] and read_cell(tmp_path, cell) == {"square": 4}
    assert json.loads((tmp_path / "cells" / f"{cell.key}.json").read_text())["cell"] == asdict(cell)


def test_the_page_is_safe_html(tmp_path):
    experiment, _ = squares()
    run_experiments([experiment], tmp_path, QUICK)
    page = (tmp_path / "paper.html").read_text()
    assert "&lt;b&gt; &amp; plain" in page and "<caption>Squares</caption>" in page and "http" not in page


@pytest.mark.shipped
def test_real_experiments_end_to_end_in_two_processes(tmp_path):
    """A table and two figures on the embedded data, as the command runs them."""
    names = size(["table-linear", "methods-linear", "budgets-linear"], ["budgets-linear"])
    page = run_experiments(find_experiments(names), tmp_path, TINY, jobs=2)
    text = page.read_text()
    assert "missing" not in text and "DP-RECAL" in text
    if "table-linear" in names:
        assert "As printed: linear regression" in text and "(2400)" in text  # the paper's number beside ours
    others = ("methods-linear-as-printed", "methods-linear-useful")
    for name in ("budgets-linear-as-printed", *size(others, ())):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 5_000
        assert (tmp_path / "figures" / f"{name}.svg").exists()
    kept = {path.name for path in (tmp_path / "cells").iterdir()}
    run_experiments(find_experiments(names), tmp_path, TINY)
    assert {path.name for path in (tmp_path / "cells").iterdir()} == kept


def test_long_cells_begin_first_and_every_cell_is_in_one_lot():
    table = EXPERIMENTS["table-logistic"]
    work = [(table, cell) for cell in table.cells(FULL) if not cell.alone]
    lots = runner.in_lots(work)
    assert sorted(cell.key for lot in lots for _, cell in lot) == sorted(cell.key for _, cell in work)
    (_, first), *others = lots[0]
    assert (first.algorithm, first.data, first.plf, others) == ("mr-admm", "cifar10", FULL.decaying, [])
    longs = [max(cell.long for _, cell in lot) for lot in lots]
    assert longs == sorted(longs, reverse=True)
    assert all(len(lot) == 1 for lot in lots if lot[0][1].long)
    assert max(len(lot) for lot in lots) == runner.LOT


def test_xla_is_told_what_suits_a_gpu_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "GPU", str(tmp_path / "none"))
    assert "XLA_FLAGS" not in runner._shared_out(2)
    assert runner._shared_out(10**6)["NPROC"] == "1"
    monkeypatch.setattr(runner, "GPU", str(tmp_path))
    assert runner._shared_out(2)["XLA_FLAGS"].split() == list(runner.GPU_FLAGS)


# -- verdicts


def outcome(median, error):
    return {"d": {"excess": {"median": median, "error": error}}}


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ({"nids": outcome(1.2, 0.1)}, True),
        ({"nids": outcome(0.95, 0.1)}, True),  # better, but by less than a standard error
        ({"nids": outcome(0.5, 0.1)}, False),
        ({"afbs": outcome(0.5, 0.1)}, True),  # has a coordinator
        ({"nids": {"d": {"error": "refused"}}}, True),
    ],
)
def test_level_means_within_one_standard_error(others, verdict):
    assert level({"recal": outcome(1.0, 0.1), **others}, "d") is verdict


def test_counting_coordinators_changes_the_verdict():
    assert not level({"recal": outcome(1.0, 0.1), "afbs": outcome(0.5, 0.1)}, "d", coordinators=True)


def test_missing_cells_are_called_missing():
    found = Found(TINY, {})
    for block in EXPERIMENTS["table-linear"].show(found, Path("nowhere")):
        assert isinstance(block, str) or all("refused" not in row for row in block.rows)


# -- the command


def test_list_names_every_experiment():
    shown = CliRunner().invoke(app, ["paper", "list", "--json"])
    assert shown.exit_code == 0
    assert [row["name"] for row in json.loads(shown.stdout)["experiments"]] == list(EXPERIMENTS)
    table = CliRunner().invoke(app, ["paper", "list"])
    assert all(name in table.stdout for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "table-liner"], ["table-liner", "table-linear"]),
        (["run", "table-linear", "--data", "imagenet"], ["imagenet", "mnist"]),
        (["run", "table-linear", "--seeds", "0"], ["--seeds 0", "needed 1 or more"]),
        (["run", "--jobs", "0"], ["--jobs 0"]),
    ],
    ids=["experiment", "data", "seeds", "jobs"],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, tmp_path):
    shown = CliRunner().invoke(app, ["paper", *arguments, "--out", str(tmp_path / "p")])
    assert shown.exit_code == 2
    assert all(word in shown.output for word in words) and "Traceback" not in shown.output
    assert not (tmp_path / "p").exists()


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "p").write_text("mine")
    shown = CliRunner().invoke(app, ["paper", "run", "plf", "--quick", "--out", str(tmp_path / "p")])
    assert shown.exit_code == 2 and "is a file" in shown.output and (tmp_path / "p").read_text() == "mine"


# -- the page of record


def test_useful_and_printed_problems_are_what_they_say():
    printed, useful = (problem_of("linear", "fashion-small", setting, 0.0) for setting in (AS_PRINTED, USEFUL))
    assert (printed.l2, printed.record_norm) == (1.0, None) and (useful.l2, useful.record_norm) == (0.01, 1.0)
    assert printed_cell("linear", "mnist", ROWS["recal"], FULL).plf == 300
    assert useful_cell("linear", "mnist", "recal", True, FULL).l1 == 1e-4
