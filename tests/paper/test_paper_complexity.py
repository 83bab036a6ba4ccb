"""The complexity tables and the relations around PLF: fits, counts, and the laws they are held against."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaydp.engine import solve
from relaydp.graph import Graph, ring
from relaydp.paper import complexity, complexity_page, relations
from relaydp.paper.complexity import METHODS, Count, cell_of, first_below
from relaydp.paper.complexity_page import COMPLEXITY
from relaydp.paper.experiment import QUICK, Found, ResultTable
from relaydp.paper.powers_of_n import fit_power, form_value, verdict
from relaydp.paper.relations import RELATIONS, Leakage, plf_curve
from relaydp.paper.runner import run_experiments
from relaydp.problem import minimise

TINY = QUICK._replace(sizes=(4, 8), walks=1)
SIZES = (4, 8, 16, 32, 64, 128, 256)
SHOWN_TINY = [m for m in METHODS if m.title in ("NIDS", "RECAL, random walk", "RECAL, round-robin")]


# -- fits


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0, -0.3])
def test_a_known_power_is_found_within_its_interval(power):
    draw = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        counts = 30.0 * np.array(SIZES) ** power * np.exp(0.1 * draw.normal(size=len(SIZES)))
        fit = fit_power(SIZES, counts.tolist())
        assert fit is not None and abs(fit.power - power) < 0.2
        covered += fit.low <= power <= fit.high
    assert 0.90 <= covered / 200 <= 0.99  # 95 % intervals


def test_sizes_that_did_not_arrive_are_left_out():
    fit = fit_power(SIZES, [None, *(3.0 * n**2 for n in SIZES[1:-1]), None])
    assert fit is not None and fit.sizes == 5 and fit.power == pytest.approx(2.0)
    assert fit_power(SIZES, [None] * 6 + [5.0]) is None
    two = fit_power(SIZES, [1.0, 2.0] + [None] * 5)
    assert two is not None and math.isnan(two.low) and str(two) == "1.00"


@pytest.mark.parametrize(
    ("power", "noise", "printed", "words"),
    [
        (0.05, 0.01, 0, "as printed"),
        (0.9, 0.01, 0, "grows faster than printed"),
        (1.0, 0.01, 2, "grows more slowly than printed"),
        (0.5, 3.0, 0, "not decided by these sizes"),
    ],
)
def test_verdicts_are_plain(power, noise, printed, words):
    draw = np.random.default_rng(3)
    counts = np.array(SIZES) ** power * np.exp(noise * draw.normal(size=len(SIZES)))
    assert verdict(fit_power(SIZES, counts.tolist()), printed) == words


def test_two_sizes_decide_nothing_and_none_say_so():
    assert verdict(fit_power([4, 8], [1.0, 8.0]), 0) == "not decided by these sizes"
    assert "too few" in verdict(None, 0)


def test_printed_forms_are_all_known():
    for method in METHODS:
        for graph in complexity.GRAPHS:
            for measure in complexity_page.MEASURES:
                form = complexity_page._printed(graph, method, measure)
                assert form_value(form, 8, 12, 0.5) > 0


# -- counts


def test_a_count_is_where_the_error_stays_below():
    assert first_below([0.5, 0.05, 0.2, 0.05], 0.1) == 4
    assert first_below([0.01, 0.01], 0.1) == 1
    assert first_below([0.5, math.nan, 0.01], 0.1) == 3


def test_the_problem_is_as_hard_at_every_size():
    spectra = []
    for n in (4, 8, 32):
        problem = complexity.problem_of(n)
        B = problem.data.X
        spectra.append(np.linalg.eigvalsh(B.T @ B / len(B)))
        assert problem.measured_facts().smoothness.max() == pytest.approx(
            complexity_page._condition() * complexity.RIDGE
        )
    np.testing.assert_allclose(complexity.minimiser(problem), minimise(problem).x, atol=1e-12)
    np.testing.assert_allclose(spectra[0], spectra[1], rtol=1e-12)
    np.testing.assert_allclose(spectra[0], spectra[2], rtol=1e-12)


def test_chi_of_a_ring_is_its_spectral_gap():
    for n in (8, 9):
        assert complexity.chi_of(ring(n)) == pytest.approx(1.0 - math.cos(2.0 * math.pi / n))


@pytest.fixture(scope="module")
def outcomes():
    cells = [Count("ring", 8, "nids", "", "tuned", 1)]
    cells += [Count("ring", 8, "recal", walk, "tuned", 1) for walk in ("cyclic", "random")]
    return {cell.walk: complexity.measure(cell) for cell in cells}


def test_counts_rise_with_accuracy(outcomes):
    for outcome in outcomes.values():
        early, late = (outcome["counts"][f"{accuracy:.0e}"] for accuracy in complexity.ACCURACIES)
        for measure in ("iterations", "plf", "messages", "evaluations"):
            assert 0 < early[measure][0] <= late[measure][0]


def test_round_robin_takes_n_hops_an_activation(outcomes):
    found = outcomes["cyclic"]["counts"]["1e-06"]
    hops, plf = found["iterations"][0], found["plf"][0]
    assert plf == math.ceil(hops / 8)  # the last lap may be cut short
    assert found["messages"] == found["evaluations"] == found["iterations"]


def test_solve_arrives_where_the_count_says(outcomes):
    found = outcomes["cyclic"]
    plf, problem = found["counts"]["1e-06"]["plf"][0], complexity.problem_of(8)
    best = complexity.minimiser(problem)
    for activations, arrives in ((plf - 1, False), (plf, True)):
        result = solve(problem, ring(8), activations=activations, walk="cyclic", steps=found["steps"], reference=False)
        assert (np.linalg.norm(result.x - best) <= 1e-6 * np.linalg.norm(best)) == arrives


def test_rounds_are_counted_for_all_agents(outcomes):
    found = outcomes[""]["counts"]["1e-06"]
    rounds = found["iterations"][0]
    assert found["plf"] == [rounds] and found["evaluations"] == [8 * rounds] and found["messages"] == [16 * rounds]


def test_a_random_walk_leaks_at_least_its_share(outcomes):
    found = outcomes["random"]["counts"]["1e-06"]
    assert found["plf"][0] >= found["iterations"][0] / 8


def test_a_run_that_grows_is_no_number(monkeypatch):
    monkeypatch.setattr(complexity, "SWEEPS", 16)
    found = complexity.measure(Count("ring", 64, "recal", "cyclic", "paper", 1))
    assert found["diverged"] == 1 and found["counts"]["1e-06"]["plf"] == [None]
    assert complexity_page._count_text(found, rounds=False) == "diverged"
    json.dumps(found, allow_nan=False)


# -- the pages


@pytest.mark.shipped
def test_a_tiny_effort_writes_the_page(tmp_path, monkeypatch):
    for module in (complexity, complexity_page):
        monkeypatch.setattr(module, "METHODS", tuple(SHOWN_TINY))
    page = run_experiments([COMPLEXITY], tmp_path, TINY).read_text()
    for words in ("Table I, measured", "Table II, measured", "Table III, measured", "RECAL, round-robin", "printed"):
        assert words in page
    assert (tmp_path / "figures" / "complexity.png").stat().st_size > 10_000
    assert page.count("a PLF independent of n is") >= 3  # a sentence a graph


def test_pages_cope_with_nothing_and_with_refusals(tmp_path):
    for experiment in (COMPLEXITY, RELATIONS):
        cells = list(experiment.cells(TINY))
        keys = {cell.key for cell in cells}
        assert len(keys) == len(cells)
        for cells_found in ({}, {key: {"error": "no such thing"} for key in keys}):
            blocks = experiment.show(Found(TINY, cells_found), tmp_path)
            assert any(isinstance(block, ResultTable) for block in blocks)


def test_walks_of_methods_suit_their_graphs():
    walks = {g: {cell_of(g, 8, method, QUICK).walk for method in METHODS} for g in complexity.GRAPHS}
    assert walks == {
        "complete": {"", "random", "cyclic"},
        "ring": {"", "random", "cyclic"},
        "general": {"", "random", "tour"},
    }


@pytest.mark.shipped
def test_relations_write_the_page(tmp_path):
    page = run_experiments([RELATIONS], tmp_path, TINY).read_text()
    assert "round-robin on ring(8): PLF 300 after 2,393 hops, PLF 300 after 2,400" in page
    assert "Lemma 1" in page and (tmp_path / "figures" / "plf.png").exists()


# -- the relations


@st.composite
def connected_graphs(draw):
    """A random tree, and some edges more."""
    n = draw(st.integers(2, 24))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    return Graph("drawn", n, np.array(tree + draw(st.lists(pairs, max_size=30))))


@settings(max_examples=60, deadline=None)
@given(graph=connected_graphs())
def test_lemma_1_is_the_share_of_degrees(graph):
    g = graph.stationary_of_paper()
    assert g.sum() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(g, graph.degree / graph.degree.sum(), rtol=1e-8, atol=1e-12)
    assert (relations.visit_spread(graph) >= 0).all()


def test_plf_is_the_running_maximum_of_visits():
    holders = np.random.default_rng(0).integers(0, 5, 200)
    curve = plf_curve(holders, 5)
    assert curve[-1] == np.bincount(holders).max() and (np.diff(curve) >= 0).all()
    before = relations._visits_before(holders)
    assert all(before[k] == (holders[:k] == i).sum() for k, i in enumerate(holders))


@pytest.mark.parametrize("p", relations.PROBABILITIES)
def test_tripd_leaks_p_k_and_what_a_maximum_adds(p):
    cell = Leakage("ring", "", p, 20)
    for column, K in zip(np.array(relations.measure(cell)["plf"]).T, relations.ITERATIONS, strict=True):
        # the mean of the largest of n binomials, bounded as of n variables that are sub-Gaussian with variance K/4
        assert p * K <= np.median(column) <= p * K + math.sqrt(K * math.log(8) / 2)
    if p == 1.0:
        assert (column == K).all()


def test_theorem_1_adds_up_and_round_robin_is_exact():
    found = relations.measure(Leakage("ring", "cyclic", 1.0, 1))
    assert found["plf"] == [[K // 8 for K in relations.ITERATIONS]] and found["theorem_gap"] < 1e-12
    assert relations.measure(Leakage("star", "random", 1.0, 2))["theorem_gap"] < 1e-12


def test_theorem_4_is_above_the_exact_budget():
    for cell in relations.prices():
        found = relations.measure(cell)
        assert all(exact < paper for exact, paper in zip(found["exact"], found["paper"], strict=True))
        assert all(a <= b for a, b in zip(found["paper"], found["paper"][1:], strict=False))
        assert all(exact < paper for exact, paper in zip(found["first_exact"], found["first"], strict=True))
    at = relations.PLFS.index(relations.TARGET)
    assert relations.measure(relations.prices()[0])["paper"][at] == pytest.approx(relations.EPSILON)


def test_visits_spread_as_the_fundamental_matrix_says():
    found = relations.measure(relations.Visits("erdos-renyi", 2000, 40))
    assert 0.7 < found["z_square"] < 1.4
