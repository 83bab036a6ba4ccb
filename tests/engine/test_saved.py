"""What a run leaves behind: which half of the folder may be passed on, and that nothing else does."""

import dataclasses
import json
import math
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app
from relaydp.engine import loop
from relaydp.errors import InputError, PrivacyError, RelayError
from relaydp.oracle import oracle, randomness
from relaydp.privacy import verify
from relaydp.result import README

BUDGET = rd.Budget(2.0, 1e-5)
OPTIONS = {"walk": "cyclic", "activations": 3, "progress": False}
# name -> arguments of solve: a run of each kind
KINDS = {
    "private": {"budget": BUDGET},
    "simulation": {"budget": BUDGET, "seed": 3},
    "published": {"budget": BUDGET, "mechanism": "published"},
    "open": {},
}
PUBLIC = {"certificate.json", "config.json", "ledger.json", "plan.json", "summary.json", "versions.json"}
COVERED = {"model.npz", "transcript.npz"}
MEASURED_NUMBERS = ("objective", "relative_error", "accuracy", "baselines", "seconds")
MEASURED = {"config.json", "summary.json", "trace.csv", "reference.npz"}


@pytest.fixture(scope="module")
def problem():
    return rd.logistic(rd.load_data("breast-cancer"), agents=3, l2=1e-2, record_norm=2.0)


@pytest.fixture(scope="module")
def saved(problem, tmp_path_factory):
    """name -> (the result, its folder)."""
    place = tmp_path_factory.mktemp("saved")
    results = {name: rd.solve(problem, rd.ring(3), "recal", **OPTIONS, **options) for name, options in KINDS.items()}
    return {name: (result, result.save(place / name)) for name, result in results.items()}


def names(folder):
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def call(*args):
    return CliRunner().invoke(app, [*map(str, args)], prog_name="relaydp")


def read(path):
    return json.loads(path.read_text())


# ---------------------------------------------------------------- what lies where


def test_each_kind_of_run_publishes_what_its_promise_covers(saved):
    """A model without a promise is kept; where facts were measured on the records, so is all that was made of them."""
    half = {name: (names(folder / "publish"), names(folder / "keep")) for name, (_, folder) in saved.items()}
    assert half["private"] == (PUBLIC | COVERED, MEASURED)
    assert half["simulation"] == (PUBLIC, MEASURED | COVERED)
    assert half["published"] == (set(), PUBLIC | COVERED | MEASURED)
    assert half["open"] == (set(), (PUBLIC - {"ledger.json"}) | COVERED | MEASURED)


def test_a_folder_says_what_may_be_passed_on(saved):
    for name, (result, folder) in saved.items():
        assert result.kind == name
        said = " ".join((folder / "README.txt").read_text().split())
        assert said == README[name] and "be passed on" in said
        assert ("no promise" in said.lower()) == (name != "private")


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_comes_back_whole(saved, name, tmp_path):
    result, folder = saved[name]
    again = rd.load_result(folder)
    assert again.summary() == result.summary() and again.config == result.config and again.plan == result.plan
    assert again.certificate() == result.certificate() and again.kind == name
    assert np.array_equal(again.x, result.x) and np.array_equal(again.reference.x, result.reference.x)
    assert again.ledger == result.ledger and np.array_equal(again.trace.objective, result.trace.objective)
    assert np.array_equal(again.transcript.u, result.transcript.u)
    once_more = again.save(tmp_path / "again")
    for path in folder.rglob("*.json"):
        assert read(once_more / path.relative_to(folder)) == read(path)


def test_the_folder_of_a_private_classifier_comes_back_whole(problem, tmp_path):
    """Planned for accuracy: no minimiser was looked for, and what was expected is published with the plan."""
    free = {name: value for name, value in OPTIONS.items() if name != "activations"}
    result = rd.solve(problem, rd.ring(3), **free, budget=BUDGET)
    assert result.algorithm == "relay-gradient" and result.reference is None and result.private
    folder = result.save(tmp_path / "run")
    assert names(folder / "publish") == PUBLIC | COVERED and names(folder / "keep") == MEASURED - {"reference.npz"}
    again = rd.load_result(folder)
    assert again.summary() == result.summary() and again.config == result.config and again.plan == result.plan
    assert again.certificate() == result.certificate() and np.array_equal(again.x, result.x)
    assert again.ledger == result.ledger and again.config["solve"]["algorithm"] == "relay-gradient"
    assert np.array_equal(again.transcript.total, result.transcript.total)
    expected = read(folder / "publish" / "plan.json")["expected_gain"]
    assert -1.0 <= expected["low"] <= expected["middle"] <= expected["high"] <= 1.0
    assert read(folder / "publish" / "plan.json")["clip"] < problem.gradient_bound()


def test_no_fact_is_in_both_halves(saved):
    _, folder = saved["private"]
    for name in ("config.json", "summary.json"):
        shown, kept = read(folder / "publish" / name), read(folder / "keep" / name)
        parts = [(shown, kept)] if name == "summary.json" else [(shown[part], kept[part]) for part in kept]
        assert all(not set(mine) & set(others) for mine, others in parts)
    assert set(read(folder / "keep" / "summary.json")) == set(MEASURED_NUMBERS)
    assert set(read(folder / "keep" / "config.json")["problem"]) == {"source", "data_sha256", "order_sha256"}


# ---------------------------------------------------------------- what is published depends on no record


def blind(value, scale, draws):
    """A release that does not look at the value: all that a record can do to what follows is cut off."""
    return draws.astype(jnp.float64) * scale


@pytest.mark.parametrize("algorithm", ["recal", "dgd", "relay-gradient"])
def test_nothing_in_publish_depends_on_records_but_through_the_noise(algorithm, tmp_path, monkeypatch):
    """Demonstration 8. Noise is as ever, but drawn alike in two runs, and what it covers is taken away from under it:
    whatever still differs between runs on altogether different records has gone round it."""
    monkeypatch.setattr(oracle, "release_secret_traced", blind)
    monkeypatch.setattr(randomness.secrets, "randbits", lambda bits: 12345)
    folders, draw = [], np.random.default_rng(1)
    for k in range(2):
        fixed = np.random.default_rng(7)

        def drawn(acts, dim, rng=fixed):
            return rng.integers(-9, 9, (*acts.shape, dim))

        monkeypatch.setattr(loop, "draw_gradient_noise", drawn)
        X, y = draw.uniform(-1, 1, (35, 11)), np.sign(draw.normal(size=35))  # sizes that no other test compiles for
        others = rd.Records(draw.uniform(-1, 1, (3001, 11)), np.sign(draw.normal(size=3001)))
        data = rd.Records(X, y, test=others, name="visits")
        problem = rd.logistic(data, agents=5, l2=1e-2, ranges=(-1.0, 1.0), classes=[-1, 1])
        options = {**OPTIONS, "budget": BUDGET, "reference": True}
        folders.append(rd.solve(problem, rd.ring(5), algorithm, **options).save(tmp_path / str(k)))
    one, two = folders
    assert names(one / "publish") == PUBLIC | COVERED
    for name in PUBLIC | COVERED:
        assert (one / "publish" / name).read_bytes() == (two / "publish" / name).read_bytes(), name
    # the test can see: what is kept differs, file by file
    for name in MEASURED:
        assert (one / "keep" / name).read_bytes() != (two / "keep" / name).read_bytes(), name
    measured = [read(folder / "keep" / "summary.json") for folder in folders]
    alike = [name for name in measured[0] if measured[0][name] == measured[1][name] and name != "seconds"]
    assert not alike, alike
    jax.clear_caches()  # of steps that were compiled with a blind release


def test_a_private_runs_files_name_no_measurement_seed_or_checksum(saved):
    """Field by field: what is published is on this list. A new field needs a decision."""
    result, folder = saved["private"]
    publish = folder / "publish"
    summary = set(result.summary()) - set(MEASURED_NUMBERS)
    assert set(read(publish / "summary.json")) == summary
    config = read(publish / "config.json")
    assert set(config) == {"problem", "graph", "facts", "solve"} and config["facts"]["public"] is True
    assert set(config["problem"]) == {
        "loss", "agents", "l2", "regulariser", "intercept", "record_norm", "ranges", "clip", "classes", "data",
        "sizes",
    }  # fmt: skip
    assert set(config["solve"]) == {
        "algorithm", "mechanism", "budget", "activations", "walk", "steps", "objective", "walk_seed", "x0", "start",
        "ratio", "variant", "noise", "limits", "prior", "trust", "collusion", "quorum",
    }  # fmt: skip
    with np.load(publish / "model.npz") as model:
        assert set(model.files) == {"x", "step_alpha", "step_beta", "step_gamma"}
    with np.load(publish / "transcript.npz") as sent:
        assert set(sent.files) == {"sender", "receiver", "payload_u", "payload_x"}
    text = b"".join(path.read_bytes() for path in publish.iterdir())
    for secret in (result.config["problem"]["data_sha256"], result.config["problem"]["order_sha256"]):
        assert secret.encode() not in text
    measured = (result.objective, result.accuracy, result.relative_error, result.reference.value)
    for value in (value for value in measured if len(repr(value)) > 6):  # an accuracy of 0.5 would be found by chance
        assert repr(value).encode() not in text and np.float64(value).tobytes() not in text
    assert result.reference.x.tobytes() not in text


# ---------------------------------------------------------------- publish/ alone


@pytest.fixture
def shared(saved, tmp_path):
    """A private run's publish/, passed on under another name."""
    return shutil.copytree(saved["private"][1] / "publish", tmp_path / "theirs")


def test_publish_alone_can_be_read(saved, shared):
    result, _ = saved["private"]
    theirs = rd.load_result(shared)
    assert theirs.private and theirs.epsilon == result.epsilon and theirs.guarantee == result.guarantee
    assert np.array_equal(theirs.x, result.x) and theirs.ledger == result.ledger
    assert theirs.certificate() == result.certificate()
    assert theirs.trace is None and theirs.reference is None and math.isnan(theirs.seconds)
    empty = {name: theirs.summary()[name] for name in MEASURED_NUMBERS}
    assert set(empty.values()) == {None}
    shown = call("show", shared)
    assert shown.exit_code == 0 and "by the paper's formula" in shown.stdout


def test_a_ledger_is_verified_wherever_it_lies(saved, shared):
    for name, words in (("private", ""), ("simulation", "no promise"), ("published", "No guarantee")):
        folder = saved[name][1]
        half = folder / ("keep" if name == "published" else "publish")
        for place in (folder, half, half / "ledger.json"):
            done = call("ledger", "verify", place)
            assert done.exit_code == 0 and "holds" in done.stdout and words in done.stdout, done.output
            assert ("promise" in done.stdout) == (name == "simulation")
            assert read_json(call("ledger", "verify", place, "--json"))["run"] == name
        assert read_json(call("show", half / "ledger.json", "--json"))["run"] == name
    assert call("ledger", "verify", shared).exit_code == 0


def read_json(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_simulations_ledger_is_no_promise_even_alone(saved, tmp_path):
    _, folder = saved["simulation"]
    alone = shutil.copy(folder / "publish" / "ledger.json", tmp_path / "ledger.json")
    done = call("ledger", "verify", alone, "--delta", "1e-5")
    assert done.exit_code == 0 and "Simulation: no promise" in done.stdout
    content = read(tmp_path / "ledger.json")
    assert verify(content, 1e-5).holds  # the digest is of releases and limits, as ever
    assert content["digest"] == read(folder / "publish" / "certificate.json")["ledger_sha256"]
    del content["run"]
    (tmp_path / "ledger.json").write_text(json.dumps(content))
    assert "Nothing here says where the noise came from" in call("ledger", "verify", alone, "--delta", "1e-5").stdout


def test_a_simulations_publish_holds_no_model(saved):
    with pytest.raises(InputError, match="no model.npz; of a run without a promise that is in keep/"):
        rd.load_result(saved["simulation"][1] / "publish")


def test_an_attack_on_what_was_passed_on(saved, shared):
    """Who has publish/ has what every eavesdropper has; without the records nothing is scored."""
    done = call("attack", shared, "--json")
    assert done.exit_code == 0, done.output
    assert all(row["recovered"] is None for row in json.loads(done.stdout)["rows"])


# ---------------------------------------------------------------- the certificate


def test_certificates_are_true_of_their_kind_of_run(saved):
    said = {name: read(next(folder.rglob("certificate.json"))) for name, (_, folder) in saved.items()}
    assert {name: found["private"] for name, found in said.items()} == {name: name == "private" for name in KINDS}
    assert said["private"]["promise"].startswith("(2, 1e-05)-differential privacy")
    assert "operating system" in said["private"]["mechanism"]["source"]
    assert "discrete Gaussian on a lattice" in said["private"]["mechanism"]["source"]
    assert said["simulation"]["promise"].startswith("simulation: no promise")
    assert said["simulation"]["epsilon"] is None and said["simulation"]["epsilon_planned"] == pytest.approx(2)
    assert "seed" in said["simulation"]["mechanism"]["source"]
    assert all(row["epsilon"] is None for row in said["simulation"]["agents"])
    assert any(line.startswith("keep/") for line in said["private"]["not_protected"])
    for name in ("simulation", "published", "open"):
        assert said[name]["not_protected"][0].startswith("Every record") and said[name]["rho"] is None
        assert not any("in secret." in line for line in said[name]["assumed"])


@pytest.fixture(scope="module")
def perturbed(problem, tmp_path_factory):
    options = {"activations": 2, "trace": False, "reference": False, "seed": 0}
    result = rd.solve(problem, rd.ring(3), "d-admm", budget=BUDGET, **options)
    return result, result.save(tmp_path_factory.mktemp("perturbed") / "run")


def test_noise_in_the_objective_is_said_to_be_proved_for_real_numbers_alone(perturbed):
    result, folder = perturbed
    found = result.certificate()
    assert found["simulation"] and not found["private"] and found["epsilon"] is None
    assert found["epsilon_planned"] == pytest.approx(BUDGET.epsilon, abs=1e-6)
    assert any(line.startswith("Real numbers") and "float64" in line for line in found["assumed"])
    assert not any("A private run of this plan" in line for line in [*found["assumed"], found["promise"]])
    assert "real numbers" in found["promise"] and "leave the seed out" not in found["promise"]
    assert names(folder / "publish") == PUBLIC and COVERED <= names(folder / "keep")
    shown = " ".join(call("show", folder).stdout.split())
    assert "none: simulation. In real numbers its plan costs 2 at delta" in shown
    assert "in real numbers alone" in call("show", folder / "publish" / "ledger.json").stdout
    again = rd.rerun(folder)
    assert again.simulation and again.x.tobytes() == result.x.tobytes()


def test_a_folder_that_promises_for_noise_in_the_objective_is_read_without_the_promise(perturbed, tmp_path):
    """Earlier versions made such promises."""
    _, folder = perturbed
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    for name, change in {
        "summary.json": {"private": True, "simulation": False, "epsilon": 2.0, "rho": 0.1},
        "ledger.json": {"run": "private"},
        "certificate.json": {"private": True, "simulation": False},
    }.items():
        file = old / "publish" / name
        file.write_text(json.dumps(read(file) | change))
    config = read(old / "publish" / "config.json")
    config["solve"]["walk_seed"] = 5
    (old / "publish" / "config.json").write_text(json.dumps(config))
    (old / "keep" / "config.json").write_text(json.dumps({"problem": read(old / "keep" / "config.json")["problem"]}))
    found = rd.load_result(old)
    assert not found.private and found.simulation and found.epsilon == found.rho == math.inf
    assert "in real numbers alone" in call("ledger", "verify", old).stdout
    assert "in real numbers alone" in call("show", old / "publish" / "ledger.json").stdout
    with pytest.raises(PrivacyError, match="cannot be repeated"):
        rd.rerun(old)


# ---------------------------------------------------------------- running it again


def test_a_private_run_cannot_be_repeated_but_its_plan_can_be_simulated(saved):
    result, folder = saved["private"]
    with pytest.raises(PrivacyError, match="noise .* was kept nowhere.*seed=0"):
        rd.rerun(folder)
    done = call("rerun", folder)
    assert done.exit_code == 2 and "cannot be repeated" in done.stderr and "--seed=0" in done.stderr
    simulated = rd.rerun(folder, seed=5)
    assert simulated.simulation and not simulated.private and simulated.epsilon == math.inf
    assert simulated.epsilon_planned == result.epsilon and simulated.plan == result.plan
    assert not np.array_equal(simulated.x, result.x)
    assert np.array_equal(simulated.x, rd.rerun(folder, seed=5).x)
    told = call("rerun", folder, "--seed", "5")
    assert told.exit_code == 0 and "simulation: no promise" in told.stdout and "identical" not in told.stdout


def test_a_simulation_is_repeated_bit_for_bit_and_another_seed_is_another_run(saved):
    result, folder = saved["simulation"]
    assert rd.rerun(folder).x.tobytes() == result.x.tobytes() == rd.rerun(folder, seed=3).x.tobytes()
    assert not np.array_equal(rd.rerun(folder, seed=4).x, result.x)
    with pytest.raises(InputError, match="seed=-1"):
        rd.rerun(folder, seed=-1)


def test_a_rerun_needs_what_is_kept(saved, shared, tmp_path):
    """Without keep/ nobody knows where the records are; a simulation without its seed does not become private."""
    with pytest.raises(InputError, match="only keep/ says where"):
        rd.rerun(shared, seed=0)
    folder = shutil.copytree(saved["simulation"][1], tmp_path / "cut")
    config = read(folder / "keep" / "config.json")
    del config["solve"]["seed"]
    (folder / "keep" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="holds no seed"):
        rd.rerun(folder)


# ---------------------------------------------------------------- folders of earlier versions


@pytest.fixture
def flat(saved, tmp_path):
    """As versions before the two halves wrote it: everything in one place, and noise from a seed called private."""
    result, folder = saved["simulation"]
    old = tmp_path / "old"
    old.mkdir()
    for path in [*(folder / "publish").iterdir(), *(folder / "keep").iterdir()]:
        if path.name not in ("config.json", "summary.json", "certificate.json"):
            shutil.copy(path, old)
    summary = {**result.summary(), "private": True, "epsilon": 2.0, "rho": 0.12}
    del summary["simulation"], summary["epsilon_planned"]
    certificate = {**result.certificate(), "private": True, "epsilon": 2.0}
    del certificate["simulation"]
    for name, content in (("config", result.config), ("summary", summary), ("certificate", certificate)):
        (old / f"{name}.json").write_text(json.dumps(content))
    return old


def test_an_old_folder_is_read_as_the_simulation_that_it_is(saved, flat, tmp_path):
    old = rd.load_result(flat)
    assert old.simulation and not old.private and old.epsilon == math.inf and old.epsilon_planned == 2.0
    assert np.array_equal(old.x, saved["simulation"][0].x) and old.trace is not None
    assert "Simulation: no promise" in call("ledger", "verify", flat).stdout
    done = call("report", flat, "--out", tmp_path / "page.html")
    assert done.exit_code == 0 and "Simulation: no promise" in (tmp_path / "page.html").read_text()
    saved["open"][0].save(flat, overwrite=True)
    assert rd.load_result(flat).kind == "open" and names(flat) == {"keep", "README.txt"}


# ---------------------------------------------------------------- what is said while it runs


def test_that_there_is_no_minimiser_is_not_said_of_a_private_run(problem, monkeypatch):
    """Separable classes without a ridge have none, which is a fact about the records; and the model is not lost."""

    def none(_):
        raise RelayError("the problem has no minimiser")

    monkeypatch.setattr(sys.modules["relaydp.engine.solver"], "minimise", none)
    bare = rd.solve(problem, rd.ring(3), **OPTIONS)
    assert bare.reference is None and bare.status == "finished" and math.isfinite(bare.objective)
    assert bare.message.endswith("There is no relative error: the problem has no minimiser")
    result = rd.solve(problem, rd.ring(3), **OPTIONS, budget=BUDGET)
    assert result.private and result.reference is None and result.status == "finished"
    assert result.message == "All 3 activations were made in 9 hops." and math.isfinite(result.accuracy)


def test_a_private_runs_words_are_the_same_whatever_the_records(capfd):
    """Records whose minimiser is 0, and others: the same sentences, on the console as in the result."""
    said = []
    for scale in (1.0, 1e-9):
        draw = np.random.default_rng(0)
        data = rd.Records(scale * draw.uniform(-1, 1, (40, 2)), np.sign(draw.normal(size=40)))
        problem = rd.logistic(data, agents=2, l2=0.5, l1=0.3, ranges=(-1.0, 1.0), classes=[-1, 1])
        result = rd.solve(problem, rd.path(2), activations=3, budget=BUDGET, progress=True)
        said.append((result.message, result.guarantee, result.status, result.certificate()))
    assert said[0] == said[1]
    assert "x*" not in "".join(capfd.readouterr())


def test_a_private_result_in_memory_names_no_seed(saved):
    result, _ = saved["private"]
    assert "seed" not in result.config["solve"]
    text = json.dumps(result.certificate())
    assert "walk_seed" not in text and str(result.config["solve"]["walk_seed"]) not in text
    assert dataclasses.replace(result, secret=False).guarantee.startswith("simulation: no promise")
    for epsilon in (math.inf, math.nan):  # nobody promises that
        forged = dataclasses.replace(result, epsilon=epsilon)
        assert not forged.private and forged.guarantee.startswith("simulation: no promise")
        assert not forged.certificate()["private"] and forged.certificate()["account"] is None


def test_a_held_out_label_is_looked_at_before_the_run_and_never_quoted(monkeypatch):
    """Accuracy cannot be measured on it: better said before a model is paid for and lost, and without its value."""
    draw = np.random.default_rng(0)
    X, y = draw.uniform(-1, 1, (30, 2)), np.sign(draw.normal(size=30))
    data = rd.Records(X, y, test=rd.Records(X[:3], np.array([1.0, 47.25, -1.0])))
    odd = rd.logistic(data, agents=2, l2=0.1, ranges=(-1.0, 1.0), classes=[-1, 1])
    monkeypatch.setattr(sys.modules["relaydp.engine.solver"], "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(InputError, match="nothing ran") as caught:
        rd.solve(odd, rd.path(2), activations=2, budget=BUDGET, reference=False)
    assert "47" not in str(caught.value)


@pytest.mark.parametrize("command", [("show",), ("ledger", "verify")], ids=["show", "verify"])
def test_a_private_runs_ledger_prints_no_epsilon_at_a_delta_that_is_none(saved, tmp_path, command):
    """Below the noise's floor, above a half, 1/m or more; a simulation promises nothing and may show any."""
    of = lambda name: saved[name][1] / "publish" / "ledger.json"  # noqa: E731
    for delta, says in (("1e-300", "1e-30 to 0.5"), ("0.9", "1e-30 to 0.5"), ("0.01", "1/152"), ("2", "between 0")):
        folders = (saved["private"][1], saved["private"][1] / "publish") if command != ("show",) else ()
        for place in (of("private"), *folders):
            done = call(*command, place, "--delta", delta)
            assert done.exit_code == 2 and says in " ".join(done.output.split())
            assert "epsilon 0" not in done.output
        # another accountant stops before that
        if 1e-30 <= float(delta) < 1 or (command[0], delta) == ("show", "1e-300"):
            assert call(*command, of("simulation"), "--delta", delta).exit_code == 0
    assert call(*command, of("private"), "--delta", "1e-6").exit_code == 0
