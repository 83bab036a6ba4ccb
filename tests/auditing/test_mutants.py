"""The table of mutants cannot rot: its rows fit the source, its checks exist, and a few of them run here."""

import ast

import pytest
from mutants import CAUGHT, CHECKS, MUTANTS, PACKAGE, ROOT, run_check

# what the promise was once found to break by: none may leave the table
NEEDED = {
    "noise x 0.8", "noise x 0.95", "clip after averaging", "no noise at one hop in 50", "data-dependent step",
    "noise reused every 12 hops", "sensitivity without the 2", "fused kernel clips to 2c",
    "fused kernel leaves last rows unclipped", "norm capped before clipping", "objective noise x 0.8",
    "sampler scale x 0.8", "solve_alone clips at 10c", "one seed for two runs", "oracle asked twice",
    "oracle answers where nobody acts", "secret draws replaced by zeros", "walk seed equals noise seed",
    "rule: the bound is enforced, not its clip", "rule: sensitivity of its clip, gradients of the bound",
    "rule: sensitivity of half its clip",
}  # fmt: skip
CHEAP = ["oracle asked twice", "init may ask"]


def test_every_name_is_one_row_and_none_is_missing():
    names = [row.name for row in MUTANTS]
    assert len(set(names)) == len(names) and set(names) >= NEEDED | set(CHEAP)


@pytest.mark.parametrize("row", MUTANTS, ids=lambda row: row.name)
def test_a_row_changes_one_place_of_the_source_and_leaves_it_python(row):
    text = (PACKAGE / row.file).read_text(encoding="utf-8")
    assert text.count(row.old) == 1 and row.new != row.old and row.check in CHECKS
    ast.parse(text.replace(row.old, row.new))


def test_every_check_that_is_a_test_exists():
    for name in CHECKS:
        if "::" in name:
            file, test = name.split("::")
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CHEAP)
def test_a_planted_bug_is_caught(name):
    row = next(row for row in MUTANTS if row.name == name)
    code, said, _ = run_check(row.check, row)
    assert code == CAUGHT, said
