"""An epsilon stands only on noise that nobody can know: each test is an attack on that, and the attack fails.

Beside most of them the same attack is made on a simulation, where it succeeds: that is why a simulation has no promise.
"""

import hashlib
import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app
from relaydp.errors import PrivacyError, RelayError
from relaydp.estimator import RelayLogisticRegression
from relaydp.network.consortium.limits import check_limit
from relaydp.oracle.randomness import ALONE, NOISE, WALK, key_for
from relaydp.privacy import epsilon_exact, rho_for
from relaydp.privacy.sensitivity import sensitivity

AGENTS, RECORDS, FEATURES = 3, 60, 4
BARE = {"trace": False, "reference": False, "transcript": False}
RUN = {"walk": "cyclic", "activations": 4, "steps": "paper", **BARE}
BUDGET = rd.Budget(1.0, 1e-5)


def records(last: int = 1) -> rd.Records:
    """Everybody knows all of it but the label of the last record."""
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(RECORDS, FEATURES))
    y = (X @ [1.0, -1.0, 1.0, -1.0] + 0.3 * rng.normal(size=RECORDS) > 0).astype(int)
    y[-1] = last
    return rd.Records(X, y, classes=(0, 1))


def problem(last: int = 1) -> rd.Problem:
    return rd.logistic(records(last), agents=AGENTS, l2=1e-2, record_norm=2.0)


def guess_label(model: np.ndarray, seeds) -> list[int]:
    """The attack: make the model again for each label and every seed one can think of; equal bits confirm a label."""
    found = []
    for label in (0, 1):
        runs = [rd.solve(problem(label), rd.ring(AGENTS), budget=BUDGET, seed=seed, **RUN) for seed in seeds]
        found += [label for run in runs if run.x.tobytes() == model.tobytes()]
    return found


# ---------------------------------------------------------------- 1: default noise, and 9: the walk's public seed


def test_a_model_does_not_confirm_a_guess_at_its_last_label():
    one, two = (rd.solve(problem(), rd.ring(AGENTS), budget=BUDGET, **RUN) for _ in range(2))
    assert one.private and two.private and one.epsilon == pytest.approx(1.0)
    assert one.x.tobytes() != two.x.tobytes()
    walk_seed = one.config["solve"]["walk_seed"]  # public, as the walk is; the noise does not follow from it
    assert guess_label(one.x, [0, walk_seed]) == []
    simulated = rd.solve(problem(), rd.ring(AGENTS), budget=BUDGET, seed=0, **RUN)
    assert guess_label(simulated.x, [0]) == [1]  # the attack is a good one
    assert not simulated.private and math.isinf(simulated.epsilon) and simulated.certificate()["private"] is False
    assert simulated.guarantee.startswith("simulation: no promise")


def test_the_documented_command_makes_no_model_twice(tmp_path):
    table = np.column_stack([records().X, records().y])
    np.savetxt(tmp_path / "own.csv", table, delimiter=",", header="a,b,c,d,label", comments="")
    words = ["run", "--data", tmp_path / "own.csv", "--agents", AGENTS, "--classes", "0,1", "--ranges", "0,1"]
    words += ["--epsilon", 1, "--walk", "cyclic", "--activations", 4, "--steps", "paper"]
    models, texts = [], []
    for name in ("one", "two"):
        done = CliRunner().invoke(app, [str(word) for word in (*words, "--out", tmp_path / name, "--json")])
        assert done.exit_code == 0 and json.loads(done.stdout)["private"] is True, done.output
        (model,) = (tmp_path / name).rglob("model.npz")
        models.append(np.load(model)["x"].tobytes())
        texts += [path.read_text() for path in (tmp_path / name).rglob("*.json")]
    assert models[0] != models[1]
    assert not any('"seed"' in text for text in texts)


# ---------------------------------------------------------------- 2: two runs over the same gradients


def first_messages(**options):
    """What agent 0 sends first, at two budgets and without noise; and the two noise scales."""
    task = problem()
    planned = rd.plan(task, rd.ring(AGENTS), BUDGET, algorithm="recal", activations=2, walk="cyclic")
    steps = {name: np.asarray(value).tolist() for name, value in planned.steps._asdict().items()}
    asked = {"walk": "cyclic", "activations": 2, "steps": steps, "trace": False, "reference": False}
    bare = rd.solve(task, rd.ring(AGENTS), **asked)
    noisy = [
        rd.solve(task, rd.ring(AGENTS), budget=rd.Budget(epsilon, 1e-5), ratio=1.0, **asked, **options)
        for epsilon in (0.5, 1.0)
    ]
    scales = [result.plan["noise_scales"][0][0] for result in noisy]
    return [run.transcript.u[0] for run in (bare, *noisy)], scales


def miss(**options) -> float:
    """The attack: (s2 r1 - s1 r2) / (s2 - s1) is free of noise if both have the same. How far off it is, relatively."""
    (bare, first, second), (s1, s2) = first_messages(**options)
    found = (s2 * first - s1 * second) / (s2 - s1)
    return float(np.linalg.norm(found - bare) / np.linalg.norm(first - bare))


def test_two_private_runs_share_no_noise():
    assert miss(seed=3) < 1e-9  # the attack is a good one: a simulation's noise is the same at both budgets
    assert miss() > 1e-3


# ---------------------------------------------------------------- 3: solve and solve_alone


def test_no_two_purposes_share_a_key():
    seen = set()
    for seed in range(8):
        for purpose in (WALK, NOISE, ALONE):
            key = key_for(seed, purpose)
            for hop in (None, 0, 1, 2):
                own = key if hop is None else jax.random.fold_in(key, hop)
                seen.add(np.asarray(jax.random.key_data(own)).tobytes())
    assert len(seen) == 8 * 3 * 4
    assert len({WALK, NOISE, ALONE}) == 3


def test_solve_alone_draws_anew_as_well():
    one, two = (rd.solve_alone(problem(), BUDGET, activations=3) for _ in range(2))
    assert one.x.tobytes() != two.x.tobytes() and one.private and one.epsilon == pytest.approx(1.0)
    seeded = rd.solve_alone(problem(), BUDGET, activations=3, seed=0)
    assert not seeded.private and math.isinf(seeded.epsilon) and seeded.epsilon_planned == pytest.approx(1.0)


# ---------------------------------------------------------------- 4: a pickled estimator


def test_a_pickled_estimator_does_not_confirm_a_label(monkeypatch):
    from relaydp.privacy import secret

    drawn, real = [], secret.draw_lattice_at

    def note(count, r, L):
        drawn.append(real(count, r, L))
        return drawn[-1]

    monkeypatch.setattr(secret, "draw_lattice_at", note)
    known = {"epsilon": 1.0, "bounds": (0, 1), "classes": [0, 1], "agents": AGENTS, "activations": 3}
    data = records()
    saved = pickle.dumps(RelayLogisticRegression(**known).fit(data.X, data.y))
    noise = np.concatenate(drawn)
    assert len(noise) >= 3 * AGENTS * FEATURES and (noise != 0).all()
    for number in noise:
        assert number.tobytes() not in saved and (number * 2.0**-secret.K).tobytes() not in saved
    for name in (b"RandomState", b"Generator", b"PCG64", b"MT19937", b"walk_seed"):
        assert name not in saved, name
    model = pickle.loads(saved)
    assert model.privacy_certificate_["private"] is True and model.random_state is None
    for label in (0, 1):  # whatever is guessed, a fit with what the pickle holds gives other bits
        again = RelayLogisticRegression(**model.get_params()).fit(data.X, records(label).y)
        assert again.coef_.tobytes() != model.coef_.tobytes()


def test_a_generators_state_is_in_a_pickle_that_promises_nothing():
    data = records()
    state = np.random.default_rng(11)
    known = {"epsilon": 1.0, "bounds": (0, 1), "agents": AGENTS, "activations": 3}
    model = RelayLogisticRegression(**known, random_state=state).fit(data.X, data.y)
    assert model.privacy_certificate_["private"] is False and math.isinf(model.epsilon_)


# ---------------------------------------------------------------- 6: a delta that somebody else chose


def test_a_partys_limit_is_at_its_own_delta(tmp_path):
    rho = rho_for(1.0, 0.9)  # passes for epsilon 1 at the file's delta
    assert epsilon_exact(rho, 1e-5) == pytest.approx(22.2, abs=0.1)
    with pytest.raises(PrivacyError, match=r"epsilon 22\.\d+ at delta 1e-05; this party allows 1\."):
        check_limit(tmp_path, b"\0" * 32, rho, 1e-5, 1.0, records=1500)
    check_limit(tmp_path, b"\0" * 32, rho_for(1.0, 1e-5), 1e-5, 1.0, records=1500)
    for delta in (0.0, 1e-300, 1 / 1500, 0.9, math.nan):
        with pytest.raises(PrivacyError, match="max_delta"):
            check_limit(tmp_path, b"\0" * 32, 1e-9, delta, 1.0, records=1500)


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_a_delta_of_1_over_m_is_refused_unless_it_is_asked_for_by_name(delta):
    assert delta >= AGENTS / RECORDS
    for make in (
        lambda budget, **extra: rd.solve(problem(), rd.ring(AGENTS), budget=budget, **RUN, **extra),
        lambda budget, **extra: rd.solve_alone(problem(), budget, activations=2, **extra),
    ):
        with pytest.raises(PrivacyError, match="an agent with 20 records.*allow_large_delta"):
            make(rd.Budget(1.0, delta))
        assert make(rd.Budget(1.0, delta, allow_large_delta=True)).x is not None
        assert make(rd.Budget(1.0, delta), seed=0).x is not None  # a simulation promises nothing
    rd.solve(problem(), rd.ring(AGENTS), budget=rd.Budget(1.0, 0.049), **RUN)  # just below 1/20


# ---------------------------------------------------------------- 9: JAX's own settings

SEEDED = """
import hashlib, sys
sys.path[:0] = [{folder!r}, {helpers!r}]
from test_promise import AGENTS, BUDGET, RUN, problem, rd
print(hashlib.sha256(rd.solve(problem(), rd.ring(AGENTS), budget=BUDGET, seed=4, **RUN).x.tobytes()).hexdigest())
"""


def test_jaxs_variables_change_no_draw():
    here = rd.solve(problem(), rd.ring(AGENTS), budget=BUDGET, seed=4, **RUN).x
    other = {"JAX_DEFAULT_PRNG_IMPL": "rbg", "JAX_THREEFRY_PARTITIONABLE": "0", "JAX_RANDOM_SEED_OFFSET": "7"}
    code = SEEDED.format(folder=os.path.dirname(__file__), helpers=os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, **other}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == hashlib.sha256(here.tobytes()).hexdigest(), done.stderr


# ---------------------------------------------------------------- 10: chances and sums beyond what noise can keep


def test_a_delta_below_what_the_noise_can_keep_is_refused():
    tiny = rd.Budget(1.0, 1e-300)
    for make in (
        lambda: rd.solve(problem(), rd.ring(AGENTS), budget=tiny, **RUN),
        lambda: rd.solve_alone(problem(), tiny, activations=2),
        lambda: rd.PrivacyAccount(1.0, 1e-300),
        lambda: RelayLogisticRegression(delta=1e-300, bounds=(0, 1), classes=[0, 1]).fit(records().X, records().y),
    ):
        with pytest.raises(PrivacyError, match="must be from 1e-30 to 0.5"):
            make()
    assert rd.solve(problem(), rd.ring(AGENTS), budget=tiny, seed=0, **RUN).simulation


def test_the_sensitivity_has_room_for_rounding():
    sizes = np.array([4_200_000])
    planned = sensitivity(1.0, sizes, 30)[0]
    assert planned >= 2.0 / 4_200_000 * (1 + 7e-7)
    assert planned <= 2.0 / 4_200_000 * (1 + 1e-2)  # and not much more


# ---------------------------------------------------------------- accounts promise no more than noise keeps


@pytest.mark.parametrize(("epsilon", "delta"), [(1e5, 1e-4), (1.0, 1e-31), (1.0, 0.6), (1e-13, 1e-4)])
def test_an_account_that_no_noise_can_keep_is_not_opened(tmp_path, epsilon, delta):
    with pytest.raises(PrivacyError, match="epsilon=|delta="):
        rd.PrivacyAccount(epsilon, delta, tmp_path / "account")
    assert not (tmp_path / "account").exists()


@pytest.mark.parametrize(
    "change", ["UPDATE fits SET rho = -1.0", "UPDATE fits SET rho = 9e999", "UPDATE fits SET rho = 'none'",
               "DELETE FROM fits WHERE number = 1"]
)  # fmt: skip
def test_an_account_changed_by_hand_is_refused(tmp_path, change):
    path = tmp_path / "account"
    account = rd.PrivacyAccount(1.0, 1e-5, path)
    ledger = rd.Ledger(agents=1, limit_rho=np.inf)
    ledger.charge(agent=0, hop=0, sensitivity=1.0, scale=20.0)
    for _ in range(2):
        account.charge(ledger)
    with closing(sqlite3.connect(path)) as rows:
        rows.execute(change)
        rows.commit()
    for use in (lambda: account.spent, lambda: account.charge(ledger), lambda: rd.PrivacyAccount.open(path).left):
        with pytest.raises(PrivacyError, match="changed by hand"):
            use()


# ---------------------------------------------------------------- solve_alone is held to what solve is


@pytest.mark.parametrize("wrong", [{"activations": 0}, {"activations": -3}, {"activations": True}, {"budget": "x"}])
def test_solve_alone_refuses_what_solve_refuses(wrong):
    asked = {"budget": BUDGET} | wrong
    said = []
    for call in (lambda: rd.solve(problem(), rd.ring(AGENTS), **asked), lambda: rd.solve_alone(problem(), **asked)):
        with pytest.raises(RelayError) as refused:
            call()
        said.append((type(refused.value), str(refused.value)))
    assert said[0] == said[1]


def test_solve_alone_charges_an_account():
    account = rd.PrivacyAccount(1.5, 1e-5)
    alone = rd.solve_alone(problem(), BUDGET, activations=2, account=account)
    assert len(account.fits) == 1 and math.isclose(account.spent, alone.epsilon, rel_tol=1e-6)
    with pytest.raises(PrivacyError, match="It did not run"):
        rd.solve_alone(problem(), rd.Budget(1.4, 1e-5), activations=2, account=account)
    with pytest.raises(PrivacyError, match="without a promise"):
        rd.solve_alone(problem(), BUDGET, activations=2, account=account, seed=0)
    assert len(account.fits) == 1
