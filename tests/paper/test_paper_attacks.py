"""The paper's attack figures, end to end on data that come with the package: cells, galleries, sentences that count."""

import copy
import inspect
import json

import numpy as np
import pytest
from effort import size

from relaydp import defaults
from relaydp.auditing.campaigns import fresh_runs
from relaydp.cli import attack as command
from relaydp.paper import attacks
from relaydp.paper.attacks import ATTACKS, GIVEN_AWAY, KEPT, METHODS, SHOWN, cell_of, pack, unpack, verdicts
from relaydp.paper.experiment import FULL, QUICK, Effort, Found, Picture, ResultTable
from relaydp.paper.runner import read_cell, run_experiments

TINY = Effort("tiny", data=("fashion-small",), images=2, search=size(0, 20))
RUNS = [
    "RECAL",
    "published, epsilon 1, through u",
    "published, epsilon 1, through x",
    "sound, epsilon 12",
    "sound, epsilon 1",
]


@pytest.fixture(scope="module", autouse=True)
def methods():
    """One search and the algebra are enough here: test_expose.py has them all."""
    few = {name: METHODS[name] for name in ("dlg", "closed-form")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attacks, "METHODS", few)
        yield few


@pytest.fixture(scope="module")
def home(tmp_path_factory, methods):
    folder = tmp_path_factory.mktemp("paper")
    run_experiments([ATTACKS], folder, TINY)
    return folder


@pytest.fixture(scope="module")
def found(home):
    cells = {cell.key: read_cell(home, cell) for cell in ATTACKS.cells(TINY)}
    assert all(outcome is not None and "error" not in outcome for outcome in cells.values()), cells
    return Found(TINY, cells)


def test_every_image_data_set_meets_every_method_and_other_data_dlg(monkeypatch):
    monkeypatch.setattr(attacks, "METHODS", METHODS)
    cells = list(ATTACKS.cells(QUICK._replace(data=FULL.data)))
    assert [cell.method for cell in cells if cell.data == "ijcnn1"] == ["dlg"]
    assert {(cell.data, cell.method) for cell in cells} == {
        ("ijcnn1", "dlg"),
        *((data, method) for data in ("mnist", "fashion", "cifar10") for method in METHODS),
    }
    assert all(cell.steps == cell.restarts == 0 for cell in ATTACKS.cells(FULL))  # the methods' own
    assert {cell.intercept for cell in cells if cell.data == "ijcnn1"} == {True}
    assert len({cell.seed for effort in (QUICK, FULL) for cell in ATTACKS.cells(effort)}) == 1


def test_a_cell_holds_each_runs_marks_curve_and_images(home, found, methods):
    for method in methods:
        outcome = found.of(cell_of("fashion-small", method, TINY))
        assert [row["run"] for row in outcome["rows"]] == RUNS
        original = unpack(outcome["original"])
        assert original.shape == (2, 14, 14, 1)
        for row in outcome["rows"]:
            got = unpack(row["images"])
            assert got.shape == original.shape and len(row["each"]["ssim"]) == 2
            assert row["ssim"] == pytest.approx(np.median(row["each"]["ssim"]))
            # the pictures are what was scored, up to rounding to 256 levels
            assert np.median(np.mean((got - original) ** 2, axis=(1, 2, 3))) == pytest.approx(row["mse"], abs=2e-3)
            assert (row["mse_curve"] is None) == (method == "closed-form")
    assert max(path.stat().st_size for path in (home / "cells").glob("*.json")) < 400_000


def test_the_claims_hold_on_embedded_data(found, methods):
    for method in methods:
        marks = [row["ssim"] for row in found.of(cell_of("fashion-small", method, TINY))["rows"]]
        assert min(marks[0], marks[2]) > GIVEN_AWAY and max(marks[1], marks[3], marks[4]) < KEPT


@pytest.mark.slow
def test_records_that_are_no_images_are_shown_by_dlgs_error(tmp_path):
    effort = TINY._replace(data=("breast-cancer",))
    page = run_experiments([ATTACKS], tmp_path, effort).read_text()
    outcome = read_cell(tmp_path, cell_of("breast-cancer", "dlg", effort))
    bare, noisy, through_x, *sound = outcome["rows"]
    assert outcome["original"] is None and bare["images"] is None and bare["ssim"] is None
    for row in (bare, through_x):
        assert row["mse_curve"][-1] < 1e-8 < row["mse_curve"][0]
    assert min(row["mse_curve"][-1] for row in (noisy, *sound)) > 1e-3
    assert "figures/attack-breast-cancer.png" in page and not verdicts(Found(effort, {"": outcome}))


def test_a_full_cell_of_colour_images_stays_small():
    noise = np.random.default_rng(0).uniform(size=(SHOWN, 32, 32, 3))
    assert 6 * len(json.dumps(pack(noise))) < 300_000


def test_images_come_back_as_they_went_in():
    levels = np.random.default_rng(0).integers(0, 256, size=(3, 4, 5, 3))
    assert np.array_equal(unpack(json.loads(json.dumps(pack(levels / 255.0)))), levels / 255.0)
    assert unpack(pack(np.array([[[[-0.5]], [[1.5]]]]))).ravel().tolist() == [0.0, 1.0]


def test_the_sentences_count_what_the_cells_hold(found):
    shown, ours = verdicts(found)
    assert f"RECAL gives the image away (SSIM above {GIVEN_AWAY:g}) in 2 of 2 cells and hides it" in shown
    assert f"through u gives the image away (SSIM above {GIVEN_AWAY:g}) in 0 of 2 cells" in shown
    assert ours.startswith("What it does not show: published DP-RECAL through x") and "epsilon 12" in ours
    other = Found(TINY, copy.deepcopy(found.cells))
    outcome = other.of(cell_of("fashion-small", "dlg", TINY))
    for row in outcome["rows"]:
        row["ssim"] = 0.5 if row["run"] == "RECAL" else 0.99
    shown, ours = verdicts(other)
    assert "RECAL gives the image away (SSIM above 0.95) in 1 of 2 cells and hides it (below 0.2) in 0;" in shown
    assert "through u gives the image away (SSIM above 0.95) in 1 of 2 cells and hides it (below 0.2) in 1." in shown
    assert "epsilon 1 gives the image away (SSIM above 0.95) in 1 of 2 cells and hides it (below 0.2) in 1." in ours


def test_the_page_has_galleries_and_tables(home, found, methods):
    page = (home / "paper.md").read_text()
    for method in methods:
        assert f"figures/attack-{method}.png" in page
        for ending in (".png", ".svg"):
            assert (home / "figures" / f"attack-{method}{ending}").stat().st_size > 1000
    rows = found.of(cell_of("fashion-small", "closed-form", TINY))["rows"]
    assert all(f"| {row['run']} | {row['recovered']} of {row['gradients']} |" in page for row in rows)
    assert all(text in page for text in (*verdicts(found), "SSIM (best)"))


def test_a_curve_is_drawn_of_what_the_cell_holds(found, tmp_path):
    """The search on images stands in for one on other records: `show` reads the same numbers."""
    effort = TINY._replace(data=("ijcnn1",))
    outcome = found.of(cell_of("fashion-small", "dlg", TINY))
    blocks = ATTACKS.show(Found(effort, {cell_of("ijcnn1", "dlg", effort).key: outcome}), tmp_path)
    assert (tmp_path / "figures" / "attack-ijcnn1.png").exists() and (
        tmp_path / "figures" / "attack-ijcnn1.svg"
    ).exists()
    ends = [f"{row['mse_curve'][-1]:.1e}" for row in outcome["rows"]]
    assert blocks[-1].startswith(
        f"ijcnn1: DLG's mean squared error ends at {ends[0]} for RECAL, {ends[1]} for published"
    )
    assert [row[2] for row in blocks[-2].rows] == ends


def test_a_page_of_some_cells_says_what_is_missing(found, tmp_path):
    assert not any(isinstance(block, ResultTable | Picture) for block in ATTACKS.show(Found(TINY, {}), tmp_path))
    two = TINY._replace(data=("fashion-small", "digits", "breast-cancer"))
    here, refused = cell_of("fashion-small", "closed-form", two), cell_of("digits", "closed-form", two)
    cells = {here.key: found.of(here), refused.key: {"error": "10 different labels arrived."}}
    blocks = ATTACKS.show(Found(two, cells), tmp_path)
    assert [block.name for block in blocks if isinstance(block, Picture)] == ["attack-closed-form"]
    gradients, marks = (block for block in blocks if isinstance(block, ResultTable))
    assert gradients.rows[0] == ("RECAL", "10 of 10", "refused", "-")
    assert marks.rows[0][3:] == ("refused", "refused")
    assert blocks[-1] == "Refused: digits, Closed form: 10 different labels arrived."


def test_what_cannot_be_attacked_is_an_outcome_not_an_exception():
    assert (
        "10 different labels"
        in ATTACKS.measure(cell_of("digits", "closed-form", TINY._replace(images=12)), None)["error"]
    )


def test_the_commands_help_names_the_campaigns_defaults():
    """`relaydp attack --help` may not load JAX, so the command repeats two defaults."""
    given = {name: part.default for name, part in inspect.signature(fresh_runs).parameters.items()}
    assert command.ACTIVATIONS == given["activations"]
    assert [(budget.epsilon, budget.delta) for budget in given["budgets"]] == [
        (epsilon, defaults.DELTA) for epsilon in command.EPSILONS
    ]
