"""From a transcript to records: what RECAL and its published noise give away, what the sound mechanism does not, and
that an attack sees nothing but messages and public facts."""

import dataclasses
import gc
import json
import re
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.attack import View, infer, score
from relaydp.attack.exposure import METHODS, About, expose
from relaydp.auditing.campaigns import IMAGES, few, gradient_errors, true_records
from relaydp.cli.main import app
from relaydp.errors import InputError
from relaydp.problem import AgentRecords, Problem
from relaydp.settings.config import AttackConfig, AttackSection, parse_toml

DELTA = 1e-5
CLAIM = rd.Budget(1.0, DELTA)  # what the published mechanism says it keeps


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp")


def small(loss="logistic", sizes=(5, 4, 6, 5), features=6, **options):
    draw = np.random.default_rng(0)
    X = draw.uniform(-0.5, 0.5, size=(sum(sizes), features))
    y = np.sign(X @ draw.normal(size=features) + 0.1 * draw.normal(size=len(X)))
    return getattr(rd, loss)(rd.Records(X, y), agents=list(sizes), record_norm=2.0, **{"l2": 0.05, **options})


def run(problem, **options):
    quick = {"steps": "paper", "walk": "cyclic", "trace": False, "reference": False}
    return rd.solve(problem, rd.ring(problem.agents), **{**quick, **options})


def images_of(name, count, loss, **options):
    """Agents that hold one image each."""
    data = few(rd.load_data(name), count)
    return getattr(rd, loss)(data, agents=count, l2=1e-2, **options)


def about_of(result, name):
    shape, planes = IMAGES.get(name, (None, False))
    return About.of(result, shape=shape, planes=planes)


def view_of(result, about):
    return View.of(result, intercepts=about.outputs if about.intercept else 0)


def marks(result, problem, name, **options):
    """(MSE, SSIM) of each reconstructed record against the true one."""
    about = about_of(result, name)
    got = expose(view_of(result, about), about, **options)
    truth = true_records(problem, got.agent)
    mse = [score.mse(a, b) for a, b in zip(got.records, truth, strict=True)]
    if not about.is_image:
        return np.array(mse), np.full(len(mse), np.nan)
    pairs = zip(about.images(got.records), about.images(truth), strict=True)
    return np.array(mse), np.array([score.ssim(a, b) for a, b in pairs])


# ---------------------------------------------------------------- gradients


@pytest.mark.sample(2)
@pytest.mark.parametrize("noise", [0.0, 1.0, 1000.0])
def test_through_x_nearly_every_gradient_is_recovered_whatever_the_noise(noise):
    """F1: all but each agent's last, and those are under 1 %. Least squares: a logistic slope far out is no more."""
    problem = small("least_squares", clip=1.0)
    result = run(problem, mechanism="published", noise=noise, activations=150)
    found = infer(View.of(result), "x")
    assert len(found) == 150 * problem.agents
    errors = gradient_errors(found, problem, result)
    assert np.mean(found.read & (errors < 1e-6)) >= 0.99
    assert np.median(errors[found.read]) < 1e-10


def test_behind_l1_most_coordinates_are_recovered():
    """A coordinate that l1 holds at 0 hides y_i once, and the gradients after it: the more noise, the fewer zeros."""
    problem = small(l1=0.01)
    for noise in (1.0, 10.0):
        result = run(problem, mechanism="published", noise=noise, activations=40)
        found = infer(View.of(result), "x")
        assert found.point_exact.mean() >= 0.98
    assert found.exact.mean() >= 0.9
    whole = found.exact.all(axis=1) & found.point_exact.all(axis=1)
    assert whole.mean() > 0.5 and (gradient_errors(found, problem, result)[whole] < 1e-6).all()


def test_the_sound_mechanism_gives_away_the_noisy_gradient_and_its_noise_is_what_was_planned():
    problem = small(features=30)
    result = run(problem, budget=rd.Budget(2.0, DELTA), activations=60, seed=0)
    found = infer(View.of(result))
    assert found.exact.all() and len(found) == 60 * problem.agents
    assert result.ledger is not None
    scale = {(release.agent, release.activation): release.scale for release in result.ledger}
    agent_records, clip = problem.working_records, jnp.asarray(problem.gradient_bound())
    truth = jax.jit(lambda i, y: agent_records.gradient(i, y, clip))
    residual = []
    for k, i in enumerate(found.agent):
        clean = np.asarray(truth(jnp.int32(i), jnp.asarray(found.point[k])))
        residual.append((found.gradient[k] - clean) / scale[int(i), int(found.activation[k])])
    assert abs(np.std(residual) - 1.0) < 0.05 and abs(np.mean(residual)) < 0.05


# ---------------------------------------------------------------- images


CASES = {
    "fashion-small": ("logistic", {}),
    "digits": ("softmax", {"intercept": True}),
    "digits, norm": ("softmax", {"record_norm": 1.0}),
}


@pytest.fixture(scope="module", params=CASES, ids=list(CASES))
def case(request):
    """Six images at six agents, and runs of them without noise, as published, and sound."""
    name = request.param.split(",")[0]
    loss, options = CASES[request.param]
    problem = images_of(name, 6, loss, **options)
    runs = {
        "recal": run(problem, activations=4),
        "published": run(problem, mechanism="published", budget=CLAIM, activations=4),
        **{eps: run(problem, budget=rd.Budget(eps, DELTA), activations=4, seed=0) for eps in (12.0, 1.0)},
    }
    return name, problem, runs


@pytest.mark.sample(2)
@pytest.mark.parametrize(("which", "channel"), [("recal", "u"), ("recal", "x"), ("published", "x")])
def test_images_come_out_of_bare_channels(case, which, channel):
    name, problem, runs = case
    mse, ssim = marks(runs[which], problem, name, channel=channel)
    assert len(mse) == 6 and mse.max() < 1e-6 and ssim.min() > 0.95


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", ["closed-form", "pooled"])
def test_through_u_the_published_noise_does_hide_them(case, method):
    name, problem, runs = case
    assert marks(runs["published"], problem, name, channel="u", method=method)[1].mean() < 0.5


@pytest.mark.sample(6)
@pytest.mark.parametrize("method", ["closed-form", "pooled"])
@pytest.mark.parametrize("epsilon", [12.0, 1.0])
def test_the_sound_mechanism_keeps_them(case, epsilon, method):
    name, problem, runs = case
    assert marks(runs[epsilon], problem, name, method=method)[1].mean() < 0.2


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["dlg", "inverting", "gradinversion"])
def test_searches_find_the_image_too(method):
    problem = images_of("digits", 2, "softmax", intercept=True)
    result = run(problem, mechanism="published", budget=CLAIM, activations=3)
    options = {"method": method, "key": jax.random.key(0), "steps": 300, "restarts": 2, "agents": [1]}
    mse, ssim = marks(result, problem, "digits", channel="x", **options)
    assert mse[0] < 1e-2 and ssim[0] > 0.9
    about = about_of(result, "digits")
    got = expose(view_of(result, about), about, **options)
    assert got.path.shape == (1, len(got.at), 64) and np.array_equal(got.path[:, -1], got.records)


def test_a_search_that_loses_its_way_returns_mid_grey_and_says_so():
    """So far out the model's slope is 0 for one of the labels, and has no direction; noise on u hides that."""
    problem = images_of("fashion-small", 2, "logistic", intercept=True)
    result = run(problem, mechanism="published", noise=1.0, activations=3, x0=np.full(197, 1e4))
    about = about_of(result, "fashion-small")
    options = {"channel": "u", "method": "inverting", "key": jax.random.key(0), "steps": 5, "restarts": 1}
    got = expose(view_of(result, about), about, **options)
    assert np.isfinite(got.path).all() and any("mid-grey" in note for note in got.notes)
    assert (got.records == 0.5).all(axis=1).any()


def test_other_algorithms_give_images_away_as_well():
    problem = images_of("digits", 3, "softmax", intercept=True)
    result = run(problem, algorithm="dgd", activations=3)
    about = about_of(result, "digits")
    got = expose(view_of(result, about), about)
    assert got.channel is None and score.mse(got.records, true_records(problem, got.agent)) < 1e-12


def test_labels_and_stored_values_come_with_the_record():
    problem = images_of("digits", 5, "softmax", intercept=True)
    result = run(problem, activations=3)
    about = about_of(result, "digits")
    got = expose(view_of(result, about), about)
    assert np.array_equal(got.labels, problem.encode_labels(problem.data.y))
    assert np.allclose(about.stored(got.records), problem.data.X)


def test_planes_become_pixels():
    about = About("logistic", False, (2, 3, 3), planes=True)
    image = np.random.default_rng(0).uniform(size=(1, 2, 3, 3))
    assert np.array_equal(about.images(image.transpose(0, 3, 1, 2).reshape(1, -1)), image)


def test_an_agent_with_several_records_gives_their_mean_and_the_note_says_so():
    problem = small(intercept=True)
    result = run(problem, activations=3)
    about = About.of(result)
    got = expose(View.of(result), about)
    assert len(got) == problem.agents and "weighted mean" in got.notes[0]
    mixed = small(sizes=(1, 4, 1), intercept=True)
    result = run(mixed, activations=3)
    got = expose(View.of(result), About.of(result))
    assert got.agent.tolist() == [0, 2] and not any("weighted mean" in note for note in got.notes)
    assert score.mse(got.records, true_records(mixed, got.agent)) < 1e-12


# ---------------------------------------------------------------- what an attack sees


def reachable(thing):
    """Everything a view holds, however deep; code and classes lead everywhere and are left out."""
    seen, todo, found = set(), [thing], []
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType | types.MethodType):
            continue
        seen.add(id(one))
        found.append(one)
        todo += gc.get_referents(one)
    return found


def test_a_view_holds_no_records():
    fields = "transcript algorithm steps graph x0 l2 regulariser intercepts noisy walk sizes coordinates".split()
    assert [field.name for field in dataclasses.fields(View)] == fields
    problem = images_of("digits", 4, "softmax")
    held = reachable(View.of(run(problem, activations=3)))
    assert not any(isinstance(one, Problem | rd.Records | AgentRecords | rd.result.Result) for one in held)
    features = true_records(problem, np.arange(4))
    for one in held:
        if isinstance(one, np.ndarray | jax.Array) and np.shape(one)[-1:] == (64,):
            for row in np.asarray(one).reshape(-1, 64):
                assert not any(np.allclose(row, record) for record in (*features, *problem.data.X))


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", METHODS)
def test_an_attack_works_from_a_saved_folder_whose_data_is_gone(tmp_path, monkeypatch, method):
    """Bit for bit the same exposure with the records deleted, every way to them shut, and none in the config."""
    file = tmp_path / "visits.csv"
    file.write_text("age,dose,label\n0.25,0.5,1\n0.75,0.125,0\n0.5,0.875,1\n")
    problem = rd.logistic(rd.load_data(file), agents=3, l2=0.1, intercept=True, ranges=(0, 1))
    result = run(problem, mechanism="published", budget=CLAIM, activations=3)
    options = {"method": method, "channel": "x", "key": jax.random.key(0)}
    if method not in ("closed-form", "pooled"):
        options |= {"steps": 20, "restarts": 2}
    here = expose(View.of(result), About.of(result), **options)
    folder = result.save(tmp_path / "run")
    file.unlink()

    def shut(*_, **__):
        raise AssertionError("an attack reached for the records")

    del problem, result
    for name in ("gradient", "gradients", "value", "mean_gradient", "dense"):
        monkeypatch.setattr(AgentRecords, name, shut)
    monkeypatch.setattr("relaydp.data.catalogue.load_data", shut)
    monkeypatch.setattr(rd.Records, "__post_init__", shut)
    saved = rd.load_result(folder)
    there = expose(View.of(saved), About.of(saved), **options)
    for field in dataclasses.fields(here):
        a, b = getattr(here, field.name), getattr(there, field.name)
        assert a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b, field.name


def test_records_that_differ_only_after_the_run_change_nothing():
    """The same transcript beside other records: an attack that looked at them would answer otherwise."""
    problem = images_of("digits", 4, "softmax")
    result = run(problem, activations=3)
    about = about_of(result, "digits")
    before = expose(View.of(result), about)
    object.__setattr__(problem.data, "X", np.zeros_like(problem.data.X))  # frozen for everybody but us
    after = expose(View.of(result), about)
    assert before.records.tobytes() == after.records.tobytes() and before.records.any()


# ---------------------------------------------------------------- what is refused


def test_mistakes_are_told_with_their_cure():
    problem = images_of("digits", 3, "softmax", intercept=True)
    result = run(problem, activations=2)
    about = about_of(result, "digits")
    view = view_of(result, about)
    for options, text in (
        ({"method": "guess"}, "unknown method"),
        ({"agents": [7]}, "numbered 0 to 2"),
        ({"method": "dlg"}, "pass key="),
    ):
        with pytest.raises(InputError, match=text):
            expose(view, about, **options)
    with pytest.raises(InputError, match="coefficients"):
        expose(view, dataclasses.replace(about, outputs=2))
    with pytest.raises(InputError, match="intercepts=3"):
        expose(dataclasses.replace(view, intercepts=0), about)
    with pytest.raises(InputError, match="64 values|63 values"):
        About.of(result, shape=(7, 9, 1))
    with pytest.raises(InputError, match="low must be less than high"):
        dataclasses.replace(about, low=2.0)
    seldom = run(small(), mechanism="published", noise=1.0, activations=1)
    with pytest.raises(InputError, match="more activations"):
        expose(View.of(seldom), About.of(seldom))
    unbounded = run(rd.logistic(rd.Records(np.eye(3), [0, 1, 0]), agents=3, l2=0.1), activations=2)
    with pytest.raises(InputError, match="neither ranges nor record_norm"):
        About.of(unbounded)
    huber = run(rd.huber(rd.Records(np.eye(3), [0.0, 1.0, 0.5]), agents=3, l2=0.1, ranges=(0, 1)), activations=2)
    with pytest.raises(InputError, match="unknown loss"):
        About.of(huber)


# ---------------------------------------------------------------- the command


KEYS = (
    "run algorithm mechanism epsilon delta channel method agents gradients recovered share median_error mse psnr ssim "
    "ssim_best iterations mse_curve notes"
).split()


def test_fresh_runs_in_one_json_object_and_two_figures(tmp_path):
    grid, curve, file = tmp_path / "grid.png", tmp_path / "curve.png", tmp_path / "attack.toml"
    file.write_text("[attack]\nrecords = 9\nactivations = 3\niterations = 20\nrestarts = 1\n")
    words = ["--data", "digits", "--records", 3, "--epsilon", 5, "--method", "closed-form,dlg"]
    done = call("attack", file, *words, "--figure", grid, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["data"] == "digits" and found["agents"] == 3 and found["shape"] == [8, 8, 1]
    rows = found["rows"]
    assert [row["run"] for row in rows[::2]] == [
        "RECAL", "published, epsilon 5, through u", "published, epsilon 5, through x", "sound, epsilon 5",
    ]  # fmt: skip
    assert all(list(row) == KEYS for row in rows)
    by = {(row["run"], row["method"]): row for row in rows}
    bare = by["published, epsilon 5, through x", "closed-form"]
    assert bare["recovered"] == 6 and bare["gradients"] == 9 and bare["mse"] < 1e-6 and bare["ssim"] > 0.95
    assert by["RECAL", "closed-form"]["share"] == 1.0 and by["sound, epsilon 5", "closed-form"]["recovered"] == 0
    search = by["RECAL", "dlg"]
    assert len(search["mse_curve"]) == len(search["iterations"]) and search["iterations"][-1] == 20
    words = ["--data", "breast-cancer", "--records", 3, "--mechanism", "none", "--method", "dlg"]
    assert call("attack", file, *words, "--figure", curve, "--quiet").exit_code == 0  # no images: how a search goes
    assert grid.stat().st_size > 1000 and curve.stat().st_size > 1000


def test_a_folder_is_scored_while_its_data_is_there_and_attacked_without(tmp_path):
    file, folder = tmp_path / "visits.csv", tmp_path / "run"
    file.write_text("age,dose,label\n0.25,0.5,1\n0.75,0.125,0\n0.5,0.875,1\n")
    words = ["--data", file, "--agents", 3, "--ranges", "0,1", "--activations", 3, "--walk", "cyclic"]
    assert call("run", *words, "--out", folder, "--quiet").exit_code == 0
    row = json.loads(call("attack", folder, "--json").stdout)["rows"][0]
    assert row["recovered"] == row["gradients"] == 9 and row["mse"] < 1e-12 and row["ssim"] is None
    moved = file.rename(tmp_path / "moved.csv")
    done = call("attack", folder)
    assert done.exit_code == 0 and "Not scored" in done.stdout
    assert call("attack", folder, "--quiet").stdout == ""
    alone = json.loads(call("attack", folder, "--json").stdout)["rows"][0]
    assert alone["mse"] is None and alone["recovered"] is None and alone["gradients"] == 9
    assert json.loads(call("attack", folder, "--data", moved, "--json").stdout)["rows"][0]["mse"] < 1e-12
    moved.write_text(moved.read_text().replace("0.25", "0.26"))
    changed = call("attack", folder, "--data", moved)
    assert changed.exit_code == 2 and "checksum" in changed.output


def test_a_file_can_name_the_saved_run(tmp_path):
    folder, file = tmp_path / "run", tmp_path / "attack.toml"
    words = ["--data", "breast-cancer", "--agents", 3, "--activations", 3, "--walk", "cyclic"]
    assert call("run", *words, "--out", folder, "--quiet").exit_code == 0
    file.write_text('[attack]\nrun = "run"\nmethod = "pooled"\n')  # a path starts at the file's folder
    found = [json.loads(call("attack", *words, "--json").stdout) for words in ([file], [folder, "--method", "pooled"])]
    assert found[0]["rows"] == found[1]["rows"] and found[0]["rows"][0]["method"] == "pooled"
    for more, said in (("records = 4\n", "error: records does not apply"), ("datum = 1\n", "line 4")):
        file.write_text(f'[attack]\nrun = "run"\nmethod = "pooled"\n{more}')
        refused = call("attack", file)
        assert refused.exit_code == 2 and said in refused.output


def test_the_example_file_is_good_and_so_is_each_commented_key():
    text = (Path(__file__).parents[2] / "examples" / "attack.toml").read_text()
    lines = text.split("\n")
    optional = [k for k, line in enumerate(lines) if re.match(r"# \w+ = ", line)]
    assert len(optional) + len(re.findall(r"^\w+ = ", text, re.M)) == len(AttackSection.model_fields)
    for k in [None, *optional]:
        parse_toml("\n".join(line[2:] if i == k else line for i, line in enumerate(lines)), "a.toml", AttackConfig)


def test_the_table_names_every_run(tmp_path):
    file = tmp_path / "attack.toml"
    file.write_text('[attack]\nactivations = 2\nintercept = true\nvariant = "carried"\n')
    words = ["--data", "digits", "--records", 3, "--mechanism", "none,published"]
    done = call("attack", file, *words)
    assert done.exit_code == 0, done.output
    for text in ("RECAL", "through u", "through x", "SSIM", "identified exactly"):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--data", "nowhere"], "unknown data set"),
        (["--records", "1"], "needed 2 to"),
        (["--method", "guess"], "unknown method"),
        (["--method", ","], "needed one or more"),
        (["--mechanism", "objective"], "unknown mechanism"),
        (['variant = "carried"', "--mechanism", "none"], "belongs to mechanism published"),
        (["--epsilon", "-1"], "epsilon"),
        (["--figure", "grid.txt"], "must end in"),
        (["iterations = 5"], "does not search"),
        (['method = "guess"'], "unknown method"),
        (
            ["--data", "breast-cancer", "--records", "3", "--mechanism", "none", "--figure", "a.png"],
            "draws images, and these records are not",
        ),
        (["nowhere-at-all"], "not a result folder"),
        (["somewhere", "--records", "4"], "Leave it out"),
        (["--records", "many"], "Invalid value"),
        (['activations = "many"'], "line 2"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(words, text, tmp_path):
    if " = " in words[0]:
        (tmp_path / "attack.toml").write_text(f"[attack]\n{words[0]}\n")
        words = [str(tmp_path / "attack.toml"), *words[1:]]
    done = call("attack", *words)
    assert done.exit_code == 2 and text in done.output and "Traceback" not in done.output


# ---------------------------------------------------------------- the paper's data


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion", "cifar10", "ijcnn1"])
def test_the_papers_data_sets(name, intercept):
    """$RELAYDP_DATA or the cache holds them."""
    problem = images_of(name, 8, "logistic", intercept=intercept)
    bare = run(problem, activations=4)
    published = run(problem, mechanism="published", budget=CLAIM, activations=4)
    for result, channel in ((bare, "u"), (bare, "x"), (published, "x")):
        mse, ssim = marks(result, problem, name, channel=channel)
        assert mse.max() < 1e-6 and (name == "ijcnn1" or ssim.min() > 0.95)
    hidden, kept = marks(published, problem, name, channel="u"), []
    for epsilon in (12.0, 1.0):
        kept.append(marks(run(problem, budget=rd.Budget(epsilon, DELTA), activations=4, seed=0), problem, name))
    for mse, ssim in (hidden, *kept):
        assert np.median(mse) > 0.02 if name == "ijcnn1" else ssim.mean() < 0.2
