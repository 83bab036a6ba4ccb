"""The estimators: scikit-learn's own checks, its optima, refusals, and an account that cannot be overspent."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from packaging.version import Version
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import relaydp as rd
from relaydp.errors import InputError, PrivacyError
from relaydp.estimator import PrivacyAccount, RelayLinearRegression, RelayLogisticRegression
from relaydp.privacy import rho_for
from relaydp.privacy.account import price

# Checks that privacy forbids, each with the reason: none.
EXPECTED_FAILURES: dict[str, str] = {}
QUICK = {"agents": 2, "activations": 60}
GENEROUS = {"epsilon": 900.0, "bounds": (-4, 4)}
PRIVATE = [
    RelayLogisticRegression(**GENEROUS, **QUICK, random_state=0),  # a private fit needs the classes of each check
    RelayLinearRegression(**GENEROUS, target_bound=(-4, 4), **QUICK),
]
OPEN = [RelayLogisticRegression(epsilon=math.inf, **QUICK), RelayLinearRegression(epsilon=math.inf, **QUICK)]


def checks(estimators):
    """scikit-learn's parametrize_with_checks as a list: pytest 9 warns of the generator that version 1.8 passes."""
    pairs = [
        pair
        for estimator in estimators
        for pair in estimator_checks_generator(estimator, expected_failed_checks=EXPECTED_FAILURES, mark="xfail")
    ]
    ids = lambda part: part.func.__name__ if hasattr(part, "func") else type(part).__name__  # noqa: E731
    return pytest.mark.parametrize(("estimator", "check"), pairs, ids=ids)


@pytest.mark.sample(5)
@checks(PRIVATE)
def test_scikit_learns_checks_with_privacy(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks(OPEN)
def test_scikit_learns_checks_without_privacy(estimator, check):
    check(estimator)


# -- one small data set, so that most fits share their compiled programs

SITES = np.repeat(["north", "east", "west"], [50, 40, 30])
BOUNDS = ([-3.0, 0.0, -300.0], [3.0, 10.0, 300.0])
HALF = np.array([3.0, 10.0, 300.0])  # all bounds have 0 between them, or at an end: 0 stays 0


def draw(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(*BOUNDS, size=(120, 3))
    score = X @ [1.0, -0.3, 0.01] + rng.logistic(size=120)
    return X, score


X, SCORE = draw()
TWO = np.where(SCORE > np.median(SCORE), "yes", "no")
THREE = np.digitize(SCORE, np.quantile(SCORE, [1 / 3, 2 / 3])) * 10
LONG = {"epsilon": math.inf, "bounds": BOUNDS, "l2": 1e-2, "activations": 3000}
PLEDGE = {"epsilon": 3.0, "bounds": BOUNDS, "l2": 1e-2, "activations": 20}  # private: no random_state
CLASSED = {**PLEDGE, "classes": ["no", "yes"]}
FAST = {**PLEDGE, "random_state": 0}  # a simulation, for tests that need the same bits twice
# each site weighs the same, each record the same within its site
WEIGHTS = np.array([120 / 3 / np.sum(SITES == site) for site in SITES])


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_without_privacy_it_is_scikit_learns_logistic_regression(labels):
    ours = RelayLogisticRegression(**LONG).fit(X, labels, sites=SITES)
    theirs = LogisticRegression(C=1 / (1e-2 * len(X)), tol=1e-10, max_iter=10_000)
    theirs.fit(X / HALF, labels, sample_weight=WEIGHTS)
    coefficients = theirs.coef_ / HALF
    np.testing.assert_allclose(ours.coef_, coefficients, rtol=1e-4, atol=1e-6)
    # softmax intercepts are free up to a constant: compare what they mean
    probabilities = theirs.predict_proba(X / HALF)
    np.testing.assert_allclose(ours.predict_proba(X), probabilities, atol=1e-5)
    assert (ours.predict(X) == theirs.predict(X / HALF)).all()
    assert math.isinf(ours.epsilon_) and ours.ledger_ is None and not ours.privacy_certificate_["private"]


@pytest.mark.parametrize("intercept", [True, False])
def test_without_privacy_it_is_scikit_learns_ridge(intercept):
    bound = (-20.0, 10.0)
    assert bound[0] < SCORE.min() and SCORE.max() < bound[1]  # nothing is clipped
    ours = RelayLinearRegression(**LONG, target_bound=bound, fit_intercept=intercept).fit(X, SCORE, sites=SITES)
    theirs = Ridge(alpha=1e-2 * len(X), tol=1e-12, fit_intercept=intercept)
    theirs.fit(X / HALF, SCORE, sample_weight=WEIGHTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / HALF, rtol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X / HALF), atol=1e-4)
    assert (ours.intercept_ == 0.0) == (not intercept)


def test_without_bounds_nothing_is_scaled():
    plain = {"epsilon": math.inf, "activations": 3000, "l2": 0.1}
    narrow = X / HALF
    ours = RelayLinearRegression(**plain).fit(narrow, SCORE)
    theirs = Ridge(alpha=0.1 * len(X)).fit(narrow, SCORE)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4)


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_probabilities_sum_to_one_and_agree_with_scores(labels):
    model = RelayLogisticRegression(**FAST).fit(X, labels)
    chance, score = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), chance)
    assert (model.classes_[chance.argmax(axis=1)] == model.predict(X)).all()
    if score.ndim == 1:
        np.testing.assert_allclose(chance[:, 1], expit(score))
    else:
        np.testing.assert_allclose(np.log(chance[:, 1:] / chance[:, :1]), score[:, 1:] - score[:, :1])
    # coef_ and intercept_ are the same model in the units of X
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, score.reshape(len(X), -1), atol=1e-9)


def test_records_outside_the_bounds_are_clipped_in_training_and_prediction():
    far, near = np.array([[50.0, -5.0, 1e9]]), np.array([[3.0, 0.0, 300.0]])
    model = RelayLogisticRegression(**FAST).fit(np.vstack([X, far]), [*TWO, "yes"])
    again = RelayLogisticRegression(**FAST).fit(np.vstack([X, near]), [*TWO, "yes"])
    assert model.coef_.tobytes() == again.coef_.tobytes()
    assert model.decision_function(far) == model.decision_function(near)
    number = RelayLinearRegression(**FAST, target_bound=(-1, 1))
    assert number.fit(X, SCORE).coef_.tobytes() == number.fit(X, np.clip(SCORE, -1, 1)).coef_.tobytes()


def test_the_problem_predicts_the_same():
    """The record norm shrinks single records, at prediction as in training; relaydp's own problem is the oracle."""
    model = RelayLogisticRegression(**FAST, record_norm=0.8).fit(X, TWO, sites=SITES)
    data = rd.Records(X / HALF, TWO, groups={"site": SITES})
    problem = rd.logistic(data, agents="site", l2=1e-2, intercept=True, record_norm=0.8)
    assert (problem.predict(model.result_.x, data.X) == model.predict(X)).all()
    bare = {"transcript": False, "trace": False, "reference": False}  # as the estimator asks: one compiled program
    asked = {"budget": rd.Budget(3.0, 1e-5), "walk": "tour", "activations": 20, "seed": 0, "trust": "curator", **bare}
    assert rd.solve(problem, rd.ring(3), **asked).x.tobytes() == model.result_.x.tobytes()


def test_a_constant_column_and_a_class_without_records_are_fine():
    bounds = ([*BOUNDS[0], 5.0], [*BOUNDS[1], 5.0])
    model = RelayLogisticRegression(**{**FAST, "bounds": bounds}, classes=["maybe", "no", "yes"])
    model.fit(np.column_stack([X, np.full(120, 7.0)]), TWO)
    assert model.classes_.tolist() == ["maybe", "no", "yes"] and model.coef_.shape == (3, 4)
    assert np.isfinite(model.predict_proba(np.ones((1, 4)))).all()


def test_sites_are_agents_in_sorted_order():
    model = RelayLogisticRegression(**FAST).fit(X, TWO, sites=SITES)
    assert model.sites_.tolist() == ["east", "north", "west"]
    assert model.privacy_certificate_["public_constants"]["sizes"] == [40, 50, 30]
    assert model.n_iter_ == 20 and model.ledger_.counts.tolist() == [20] * 3
    numbered = RelayLogisticRegression(**FAST).fit(
        X, TWO, sites=np.select([SITES == s for s in model.sites_], [2, 3, 7])
    )
    assert numbered.coef_.tobytes() == model.coef_.tobytes()  # names that sort alike are the same sites
    mixed = np.random.default_rng(1).permutation(120)
    moved = RelayLogisticRegression(**FAST).fit(X[mixed], TWO[mixed], sites=SITES[mixed])
    np.testing.assert_allclose(moved.coef_, model.coef_, rtol=1e-9)  # the order of rows is no secret ingredient


def test_permuting_site_names_permutes_sites_and_leaves_the_optimum():
    ours = RelayLogisticRegression(**LONG).fit(X, TWO, sites=SITES)
    names = {"north": "a", "east": "c", "west": "b"}
    other = RelayLogisticRegression(**LONG).fit(X, TWO, sites=[names[site] for site in SITES])
    assert other.result_.config["problem"]["sizes"] == [50, 30, 40]
    np.testing.assert_allclose(other.coef_, ours.coef_, rtol=1e-5)


def test_one_seed_is_one_model():
    """To the last bit, on one machine."""

    def fit(state):
        return RelayLogisticRegression(**{**CLASSED, "random_state": state}).fit(X, TWO).coef_.tobytes()

    assert fit(5) == fit(5) == RelayLogisticRegression(**{**FAST, "random_state": 5}).fit(X, TWO).coef_.tobytes()
    for make in (np.random.RandomState, np.random.default_rng):
        assert fit(make(5)) == fit(make(5))
        state = make(5)
        assert fit(state) != fit(state)
    assert len({fit(None), fit(None), fit(5), fit(6)}) == 4


def test_a_random_state_makes_a_simulation_and_none_a_promise():
    private = RelayLogisticRegression(**CLASSED).fit(X, TWO)
    assert private.privacy_certificate_["private"] is True and private.result_.private
    assert private.epsilon_ == private.epsilon_planned_ == pytest.approx(3.0)
    for state in (0, np.random.RandomState(0), np.random.default_rng(0)):
        model = RelayLogisticRegression(**{**FAST, "random_state": state}).fit(X, TWO)
        certificate = model.privacy_certificate_
        assert certificate["private"] is False and certificate["simulation"] is True and certificate["epsilon"] is None
        assert certificate["promise"].startswith("simulation: no promise")
        assert math.isinf(model.epsilon_) and model.epsilon_planned_ == pytest.approx(3.0)
    large = RelayLogisticRegression(**{**FAST, "delta": 0.9}).fit(X, TWO)  # nothing is promised, so any delta will do
    assert not large.result_.private


def test_frames_and_dtypes():
    columns = ["age", "dose", "shift"]
    table = pd.DataFrame(np.round(X), columns=columns)
    plain = RelayLogisticRegression(**FAST).fit(np.round(X), TWO)
    for given in (table, pl.DataFrame(table.to_dict("list")), table.astype("float32"), table.astype("int32")):
        labels = pl.Series(TWO.tolist()) if isinstance(given, pl.DataFrame) else pd.Series(TWO)
        model = RelayLogisticRegression(**FAST).fit(given, labels)
        if isinstance(given, pd.DataFrame) or Version(sklearn.__version__) >= Version("1.9"):
            assert model.feature_names_in_.tolist() == columns  # 1.8 does not know the frames of Polars 2
        assert model.coef_.tobytes() == plain.coef_.tobytes()
        assert model.predict(given).tolist() == plain.predict(np.round(X)).tolist()
    flags = {**FAST, "bounds": (0, 1)}
    assert (
        RelayLogisticRegression(**flags).fit(X > 0, TWO).coef_.tobytes()
        == RelayLogisticRegression(**flags).fit((X > 0) * 1.0, TWO).coef_.tobytes()
    )


def test_graphs_by_name_by_object_and_by_edges():
    path = [(0, 1), (1, 2)]
    models = [RelayLogisticRegression(**FAST, graph=g).fit(X, TWO, sites=SITES) for g in ("path", rd.path(3), path)]
    assert len({model.coef_.tobytes() for model in models}) == 1
    for graph, complaint in ((rd.ring(4), "3 sites"), ("rung", "ring"), (7, "a name such as")):
        with pytest.raises(InputError, match=complaint):
            RelayLogisticRegression(**FAST, graph=graph).fit(X, TWO, sites=SITES)


# -- refusals


@pytest.mark.parametrize("epsilon", [None, 0, -1.0, math.nan, -math.inf, True, "1"])
def test_only_inf_means_without_privacy(epsilon):
    with pytest.raises(PrivacyError, match="math.inf"):
        RelayLogisticRegression(epsilon=epsilon, bounds=BOUNDS).fit(X, TWO)


def test_missing_bounds_refuse_to_fit():
    with pytest.raises(PrivacyError, match=r"needs bounds=\(low, high\).*extremes away"):
        RelayLogisticRegression(epsilon=1e6).fit(X, TWO)
    with pytest.raises(PrivacyError, match="needs bounds="):
        RelayLogisticRegression(record_norm=1.0).fit(X, TWO)
    with pytest.raises(PrivacyError, match=r"needs target_bound=\(low, high\)"):
        RelayLinearRegression(bounds=BOUNDS, clip=1.0).fit(X, SCORE)


@pytest.mark.parametrize(
    ("settings", "sites", "complaint"),
    [
        ({"bounds": (3, -3)}, None, r"column 0 the interval \[3, -3\]"),
        ({"bounds": (0, math.inf)}, None, "finite"),
        ({"bounds": ([0, 1], 2)}, None, "each of the 3 columns"),
        ({"bounds": "fit"}, None, r"must be \(low, high\)"),
        ({"delta": 0.0}, None, "delta"),
        ({"delta": 0.9, "random_state": None}, None, "must be from 1e-30 to 0.5"),
        ({"delta": 0.1, "random_state": None}, None, "an agent with 120 records"),
        ({"delta": 0.02, "random_state": None}, SITES, "an agent with 120 records"),
        ({"delta": 1e-300, "random_state": None}, None, "must be from 1e-30"),
        ({"account": PrivacyAccount(9.0, 1e-5)}, None, "random_state=0 was given with an account"),
        ({"classes": None, "random_state": None}, None, r"needs classes=\["),
        ({"classes": ["no"]}, None, "two or more"),
        ({"classes": ["no", "maybe"]}, None, "'yes' is none"),
        ({"classes": ["no", 1]}, None, "all texts or all numbers"),
        ({"agents": 0}, None, "1 or more"),
        ({"random_state": -1}, None, "seed"),
        ({"account": 5.0}, None, "PrivacyAccount"),
        ({}, ["a"] * 120, "two sites"),
        ({}, ["a", "b"], "120 records"),
        ({}, [None, *["a"] * 60, *["b"] * 59], "some record"),
        ({}, [1.5, math.nan] * 60, "some record"),
        ({}, np.array([1, "a"] * 60, dtype=object), "sorted"),
    ],
)
def test_what_cannot_be_used_says_what_to_pass(settings, sites, complaint):
    with pytest.raises((InputError, PrivacyError), match=complaint):
        RelayLogisticRegression(**{**CLASSED, "random_state": 0, **settings}).fit(X, TWO, sites=sites)


# -- what a fitted estimator gives away


@pytest.mark.parametrize("kind", [RelayLogisticRegression, RelayLinearRegression])
def test_a_saved_estimator_holds_no_record_no_checksum_and_no_seed(kind):
    extra, y = (
        ({"classes": [0, 10, 20]}, THREE) if kind is RelayLogisticRegression else ({"target_bound": (-20, 10)}, SCORE)
    )
    model = kind(**PLEDGE, **extra).fit(X, y, sites=SITES)
    saved = pickle.dumps(model)
    values = [X, X / HALF, *([SCORE, (SCORE + 5) / 15] if y is SCORE else [])]
    for value in np.concatenate([part.ravel() for part in values]).astype(np.float64):
        assert value.tobytes() not in saved
    for part in values:  # of 4-byte numbers two in a row: one turns up by chance, in noise that is another each time
        row = part.astype(np.float32).ravel()
        assert not any(row[k : k + 2].tobytes() in saved for k in range(0, len(row) - 1, 2))
    assert b"sha256" not in saved.replace(b"ledger_sha256", b"")  # the ledger's digest is of public numbers
    assert not {"seed", "walk_seed"} & set(model.result_.config["solve"])
    restored = pickle.loads(saved)
    assert (restored.predict(X) == model.predict(X)).all()
    assert restored.privacy_certificate_["epsilon"] == model.epsilon_ <= 3.0
    assert rd.privacy.verify(restored.ledger_.to_json(), delta=1e-5).holds


# -- the account


def ledger_of(*pure, rho=0.0):
    ledger = rd.Ledger(1, math.inf)
    for epsilon in pure:
        ledger.charge(0, 0, 1.0, 1.0, kind="pure", epsilon=epsilon)
    if rho:
        ledger.charge(0, 0, 1.0, 1 / math.sqrt(2 * rho))
    return ledger


def test_rho_adds_up_over_fits_and_the_limit_holds():
    account = PrivacyAccount(2.0, 1e-5)
    limit = rho_for(2.0, 1e-5)
    assert account.charge(ledger_of(rho=0.4 * limit), "one") == 1
    assert rho_for(account.spent, 1e-5) == pytest.approx(0.4 * limit)
    assert rho_for(account.left, 1e-5) == pytest.approx(0.6 * limit)
    before = account.fits
    with pytest.raises(PrivacyError, match=r"1 run\(s\) have spent.*is left.*did not run"):
        account.charge(ledger_of(rho=0.61 * limit))
    assert account.fits == before  # a refused fit changes nothing
    account.charge(ledger_of(rho=rho_for(account.left, 1e-5)), "all the rest")
    assert account.spent == pytest.approx(2.0) and [fit.what for fit in account.fits] == ["one", "all the rest"]
    assert account.spent <= 2.0 * (1 + 1e-9)
    with pytest.raises(PrivacyError, match="Agree on a larger account"):
        account.charge(ledger_of(rho=0.01 * limit))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 6.0])
def test_a_pure_release_is_charged_as_a_gaussian_that_tells_no_less(epsilon):
    """The trade-off curve of randomised response, the worst epsilon-DP release, lies above the Gaussian one; at the
    price charged it touches it, so that less would not do."""
    alpha = np.linspace(1e-9, 1 - 1e-9, 100_001)
    response = np.maximum.reduce([0 * alpha, 1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha)])

    def gaussian(rho):
        return norm.cdf(norm.isf(alpha) - math.sqrt(2 * rho))

    charged = price(ledger_of(epsilon))
    assert (gaussian(charged) <= response + 1e-12).all()
    assert (gaussian(0.98 * charged) > response).any()


def test_gaussian_and_pure_releases_can_be_charged():
    account = PrivacyAccount(100.0, 1e-5)
    pure = ledger_of(0.5)
    account.charge(pure, "a mechanism of somebody else's")
    assert account.fits[0].rho == pytest.approx(price(pure)) and account.fits[0].rho > pure.rho
    plain = RelayLogisticRegression(**{**CLASSED, "account": account}).fit(X, TWO)
    assert account.fits[1].rho == pytest.approx(plain.ledger_.rho, rel=1e-6)


def test_noise_in_the_objective_is_fitted_by_simulations_alone():
    account = PrivacyAccount(100.0, 1e-5)
    exact = {**CLASSED, "activations": 2, "algorithm": "d-admm", "fit_intercept": False, "l2": 0.1, "agents": 2}
    with pytest.raises(PrivacyError, match="random_state=.*'ic-admm'"):
        RelayLogisticRegression(**exact, account=account).fit(X, TWO)
    assert account.fits == []
    fitted = RelayLogisticRegression(**exact, random_state=0).fit(X, TWO)
    assert fitted.epsilon_ == math.inf and fitted.ledger_.events(0)[0].kind == "pure"
    assert fitted.privacy_certificate_["simulation"] and not fitted.privacy_certificate_["private"]


def test_a_fit_is_charged_before_it_runs_and_not_if_it_cannot(monkeypatch):
    account = PrivacyAccount(3.0, 1e-5)
    for wrong in ({"walk": "strol"}, {"algorithm": "recall"}, {"graph": rd.ring(5)}, {"epsilon": math.inf}):
        with pytest.raises((InputError, PrivacyError)):
            RelayLogisticRegression(**{**CLASSED, **wrong}, account=account).fit(X, TWO)
    assert account.fits == []
    reads = []
    place = sys.modules["relaydp.engine.solver"]
    monkeypatch.setattr(place, "run", lambda *args: reads.append(len(account.fits)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RelayLogisticRegression(**CLASSED, account=account).fit(X, TWO)
    assert reads == [1] and len(account.fits) == 1  # a fit that fails on the way stays charged
    with pytest.raises(PrivacyError, match="did not run"):
        RelayLogisticRegression(**CLASSED, account=account).fit(X, TWO)
    assert reads == [1]


def test_fits_of_one_account_have_noise_of_their_own():
    """The same noise twice would cancel in a difference."""
    model = RelayLogisticRegression(**CLASSED, account=PrivacyAccount(9.0, 1e-5))
    first, second = (model.fit(X, TWO).coef_.tobytes() for _ in range(2))
    assert first != second and len(model.account.fits) == 2


def test_an_accounts_own_delta_is_held_to_the_records():
    with pytest.raises(PrivacyError, match="1e-30"):
        PrivacyAccount(1.0, 1e-300)
    account = PrivacyAccount(3.0, 0.1)
    with pytest.raises(PrivacyError, match="an agent with 15 records"):
        RelayLogisticRegression(**CLASSED, trust="nobody", account=account).fit(X, TWO)
    with pytest.raises(PrivacyError, match=f"an agent with {len(X)} records"):  # a curator has all
        RelayLogisticRegression(**CLASSED, account=account).fit(X, TWO)
    assert account.fits == []
    insisting = PrivacyAccount(9.0, 0.1, allow_large_delta=True)
    RelayLogisticRegression(**CLASSED, account=insisting).fit(X, TWO)
    assert len(insisting.fits) == 1


def test_folds_charge_one_account_and_routing_takes_sites_along():
    seen = []

    def note(rows):
        seen.append(len(rows))
        return rows

    account = PrivacyAccount(4.0, 1e-5)
    model = RelayLogisticRegression(**{**CLASSED, "epsilon": 1.0}, account=account)
    assert clone(model).account is account and copy.deepcopy(model).account is account
    with sklearn.config_context(enable_metadata_routing=True):
        line = make_pipeline(FunctionTransformer(note), model.set_fit_request(sites=True))
        shuffled = KFold(3, shuffle=True, random_state=0)
        scores = cross_val_score(line, X, TWO, cv=shuffled, params={"sites": SITES})
    assert len(scores) == 3 and np.isfinite(scores).all() and len(account.fits) == 3
    assert all("80 records, 3 agents" in fit.what for fit in account.fits)
    assert rho_for(account.spent, 1e-5) == pytest.approx(3 * rho_for(1.0, 1e-5), rel=1e-6)
    assert 1.0 < account.spent < 3.0
    with pytest.raises(PrivacyError, match="is left.*did not run.*fewer folds cost less"):
        clone(model).set_params(epsilon=4.0).fit(X, TWO, sites=SITES)


def test_an_account_in_memory_stays_in_its_process(tmp_path):
    with pytest.raises(PrivacyError, match="path="):
        pickle.dumps(RelayLogisticRegression(account=PrivacyAccount(1.0, 1e-5)))
    kept = PrivacyAccount(1.0, 1e-5, path=tmp_path / "account.db")
    there = pickle.loads(pickle.dumps(kept))
    there.charge(ledger_of(rho=0.01), "there")
    assert [fit.what for fit in kept.fits] == ["there"] and "spent" in repr(kept)


def test_an_account_file_is_never_made_anew_or_given_another_budget(tmp_path):
    path = tmp_path / "account.db"
    account = PrivacyAccount(1.0, 1e-5, path)
    account.charge(ledger_of(rho=0.01))
    assert PrivacyAccount(1.0, 1e-5, path).spent == account.spent > 0
    with pytest.raises(PrivacyError, match="not changed afterwards"):
        PrivacyAccount(2.0, 1e-5, path)
    packed = pickle.dumps(account)
    path.rename(tmp_path / "elsewhere.db")
    for use in (lambda: account.charge(ledger_of(rho=0.01)), lambda: account.left, lambda: pickle.loads(packed)):
        with pytest.raises(PrivacyError, match="account"):
            use()
    assert not path.exists() and "not readable" in repr(account)
    (tmp_path / "note.txt").write_text("this is no database at all, and long enough to be sure of it" * 20)
    for other in (tmp_path / "note.txt", tmp_path / "no" / "such" / "folder.db"):
        with pytest.raises(PrivacyError, match="cannot be used"):
            PrivacyAccount(1.0, 1e-5, other)


CHARGE = """
import math, sys, relaydp as rd
from relaydp.estimator import PrivacyAccount
account = PrivacyAccount(1.0, 1e-5, sys.argv[1])
ledger = rd.Ledger(1, math.inf)
ledger.charge(0, 0, 1.0, 1 / math.sqrt(2 * account.budget.rho / 50))  # a fiftieth of the account
done = 0
sys.stdin.readline()  # begin together
for _ in range(40):
    try:
        account.charge(ledger)
        done += 1
    except rd.errors.PrivacyError as error:
        assert "did not run" in str(error), error
print(done)
"""


def test_two_processes_never_overspend(tmp_path):
    path = tmp_path / "account.db"
    both = [subprocess.Popen([sys.executable, "-c", CHARGE, path], stdin=-1, stdout=-1, text=True) for _ in range(2)]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    done = [int(process.communicate()[0]) for process in both]
    account = PrivacyAccount(1.0, 1e-5, path)
    assert sum(done) == len(account.fits) == 50  # 80 were asked for
    assert account.spent <= 1.0 + 1e-9 and account.spent == pytest.approx(1.0)
