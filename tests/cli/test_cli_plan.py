"""`relaydp plan`, and limits and priors on the command line: the same plan as from Python, and refusals that help."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.cli.main import app
from relaydp.errors import InputError
from relaydp.settings.config import build, read_config
from relaydp.settings.values import MECHANISMS, VARIANTS, as_limits, as_sizes

# Small, with one candidate: what these tests are about does not depend on tuning.
QUICK = ["--l2", 0.01, "--walk", "cyclic", "--activations", 3, "--steps", "paper"]
SMALL = ["--data", "breast-cancer", "--agents", 3, "--record-norm", 1, *QUICK]
UNSEEN = ["--sizes", "100,200,150", "--features", 6, "--record-norm", 1, *QUICK]
TOML = """
[data]
source = "breast-cancer"
[problem]
agents = 3
record_norm = 1.0
l2 = 0.01
[run]
activations = 3
walk = "cyclic"
steps = "paper"
epsilon = 1.0
limits = {"1" = 0.5}
"""


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp")


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def planned(*args):
    result = call("plan", *args, "--json")
    assert result.exit_code == 0, result.output
    return strict(result.stdout)


# -- the plan


def settings(folder, text):
    """A file with what has no option."""
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def test_json_is_the_plans_summary(tmp_path):
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=3, l2=0.01, record_norm=1.0)
    options = {"walk": "cyclic", "activations": 3, "steps": "paper", "seed": 4, "limits": {2: 0.25}}
    plan = rd.plan(problem, rd.ring(3), rd.Budget(0.8, 1e-4), **options)
    file = settings(tmp_path, '[run]\nlimits = { "2" = 0.25 }\n')
    words = [file, "--epsilon", 0.8, "--delta", 1e-4, "--seed", 4]
    assert planned(*SMALL, *words) == strict(json.dumps(plan.summary(), allow_nan=False))


def test_without_data_it_is_the_plan_of_the_facts():
    facts = rd.public_facts([100, 200, 150], features=6, record_norm=1.0, l2=0.01)
    plan = rd.plan(facts, rd.ring(3), rd.Budget(1.0, 1e-5), walk="cyclic", activations=3, steps="paper")
    assert planned(*UNSEEN, "--epsilon", 1) == strict(json.dumps(plan.summary(), allow_nan=False))


LOSSES = {
    "least-squares": (["--label-bound", 2], {"label_bound": 2.0}),
    "huber": (["[problem]\nthreshold = 0.5\n"], {"threshold": 0.5}),
    "softmax": (["--classes", "a,b,c,d"], {"classes": 4}),
    "logistic": (
        ["[problem]\nl1 = 0.1\nclip = 0.5\n", "--intercept", "--ranges", "0,1"],
        {"intercept": True, "clip": 0.5},
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("named", [True, False], ids=["named", "by its option"])
def test_every_loss_without_data(loss, named, tmp_path):
    words, options = LOSSES[loss]
    words = [settings(tmp_path, word) if str(word).startswith("[") else word for word in words]
    found = planned(*UNSEEN, *words, *(["--loss", loss] if named else []), "--epsilon", 1)
    facts = rd.public_facts([100, 200, 150], features=6, loss=loss, record_norm=1.0, l2=0.01, **options)
    assert found["sensitivity"] == pytest.approx((2 * facts.clip / facts.sizes).tolist())
    assert found["epsilon"] == pytest.approx(1.0)


def test_the_table_says_what_was_chosen_what_it_costs_and_what_it_rests_on(tmp_path):
    words = ["--sizes", "3x400", "--features", 6, "--record-norm", 1, "--walk", "cyclic", "--epsilon", 2]
    words += ["--algorithm", "recal", settings(tmp_path, '[run]\nlimits = { "1" = 0.5 }\n')]
    result = call("plan", *words)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for word in ("recal on ring(3), cyclic walk", "400 records each", "per agent (the PLF)", "messages", "exact",
                 "by the paper's formula at delta 1e-05", "0.5 for agent 1", "bias and", "in the first activation",
                 "alpha", "rests on a guess from public bounds", "the privacy promise does not"):  # fmt: skip
        assert word in text, word
    found = planned(*words)
    rows = [line.split() for line in result.stdout.split("predicted error")[1].strip().splitlines()[1:]]
    assert 5 <= len(rows) <= 8
    curve = {row["activations"]: row for row in found["curve"]}
    for plf, *numbers in (row[:4] for row in rows):
        row = curve[int(plf)]
        assert [float(n) for n in numbers] == pytest.approx([row["bias"], row["noise"], row["total"]], rel=5e-3)
    (chosen,) = [row for row in rows if row[-1] == "chosen"]
    assert int(chosen[0]) == found["activations"]


def test_the_table_of_a_classifier_says_what_accuracy_to_expect():
    words = ["--sizes", "3x400", "--features", 6, "--record-norm", 1, "--walk", "cyclic", "--epsilon", 2]
    result = call("plan", *words)
    assert result.exit_code == 0, result.output
    text, found = " ".join(result.stdout.split()), planned(*words)
    shares = [f"{100 * found['expected_gain'][name]:.0f} %" for name in ("middle", "low", "high")]
    for word in ("relay-gradient on ring(3), cyclic walk", f"{found['activations']} per agent (the PLF)",
                 "expect {} ({} to {})".format(*shares), "stretch 1.7", "Public facts alone"):  # fmt: skip
        assert word in text, word
    assert found["algorithm"] == "relay-gradient" and found["curve"] is None and "predicted error" not in text


def test_a_fixed_number_of_activations_has_no_curve_to_print():
    text = call("plan", *UNSEEN, "--epsilon", 1).stdout
    assert "predicted error" not in text and "predicted:" in text


def test_quiet_prints_nothing():
    assert call("plan", *UNSEEN, "--epsilon", 1, "--quiet").output == ""


def test_many_agents_are_planned_without_a_prediction():
    words = ["--sizes", "600x50", "--features", 3, "--record-norm", 1, "--walk", "cyclic", "--epsilon", 1]
    result = call("plan", *words, "--algorithm", "recal")
    assert result.exit_code == 0 and "too many agents to simulate" in " ".join(result.stdout.split())


def test_run_follows_the_plan(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    found = planned(file)
    ran = call("run", file, "--out", tmp_path / "kept", "--json")
    assert ran.exit_code == 0, ran.output
    ledger = rd.load_result(tmp_path / "kept").ledger
    scales = np.array(found["noise_scales"])
    assert [event.scale for event in ledger] == [scales[e.activation - 1, e.agent] for e in ledger]
    assert strict(ran.stdout)["messages"] == found["messages"]


def test_help_waits_for_nothing_heavy():
    code = (
        "import sys; from relaydp.cli.main import main; sys.argv = ['relaydp', 'plan', '--help']\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
        "heavy = {'jax', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "relaydp plan" in call("--help").stdout


# -- limits and priors in files


def test_a_files_limits_go_with_its_budget(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    assert read_config(file).run.limits == {1: 0.5}
    assert build(read_config(file, {"epsilon": 2.0}))[2]["limits"] == {1: 0.5}
    bare = read_config(file, {"mechanism": "none"}).run
    assert bare.limits is None and bare.epsilon is None


def test_a_run_with_limits_and_prior_can_be_repeated(tmp_path):
    folder = tmp_path / "kept"
    file = settings(tmp_path, '[run]\nlimits = { "0" = 0.5 }\nprior = "breast-cancer"\n')
    made = call("run", file, *SMALL, "--epsilon", 1, "--seed", 0, "--out", folder)
    assert made.exit_code == 0, made.output
    result = rd.load_result(folder)
    assert result.ledger.epsilon_of(0, 1e-5) == pytest.approx(0.5, abs=1e-6)
    assert result.config["solve"]["prior"] is not None
    again = call("rerun", folder)
    assert again.exit_code == 0 and "bit for bit" in again.stdout, again.output


def test_a_prior_is_the_same_problem_over_public_records(tmp_path):
    """Scaled by the private records' ranges, with their columns left out; a file's path starts at its folder."""
    for name, much in (("mine.csv", 3), ("public.csv", 5)):
        rows = "\n".join(f"{k % 7},{k * much % 11},w{k % 2},{k % 2}" for k in range(40))
        (tmp_path / name).write_text(f"age,dose,ward,label\n{rows}\n")
    file = tmp_path / "run.toml"
    text = '[data]\nsource = "mine.csv"\n[problem]\nagents = "ward"\nranges = [0, 20]\nclasses = [0, 1]\nl2 = 0.5\n'
    file.write_text(f'{text}[run]\nepsilon = 1.0\nprior = "public.csv"\n')
    problem, _, asked = build(read_config(file))
    prior = asked["prior"]
    assert prior.agents == 1 and prior.dim == problem.dim == 2 and prior.l2 == 0.5
    assert [bound.tolist() for bound in prior.ranges] == [[0.0, 0.0], [20.0, 20.0]]
    assert prior.data.source["source"] == str(tmp_path / "public.csv")
    found = planned(file, "--activations", 2, "--steps", "paper")
    assert found["planned_for"] == "prior"
    text = " ".join(call("plan", file, "--activations", 2, "--steps", "paper").stdout.split())
    assert "rests on the prior; the privacy promise only on its being public" in text
    unseen = [settings(tmp_path, '[run]\nprior = "public.csv"\n'), "--sizes", "20,20", "--features", 2]
    unseen += ["--ranges", "0,20", "--l2", 0.5]
    same = planned(*unseen, "--drop", "ward", "--epsilon", 1, "--activations", 2, "--steps", "paper")
    assert same["predicted_excess"] == pytest.approx(found["predicted_excess"])


def test_names_of_the_engine_are_known_to_the_command_line():
    from relaydp.algorithm import ALGORITHMS
    from relaydp.planning.planner import MECHANISMS as ENGINE

    assert set(MECHANISMS) == {*ENGINE, "none"}
    assert set(VARIANTS) == {variant for method in ALGORITHMS.values() for variant in method.variants}
    text = " ".join(call("run", "--help").stdout.replace("│", " ").split())
    assert all(name in text for name in MECHANISMS)


def test_an_argmin_method_is_simulated_under_objective_perturbation(tmp_path):
    words = ["--data", "breast-cancer", "--agents", 3, "--record-norm", 1, "--l2", 0.1, "--activations", 2]
    words += ["--algorithm", "d-admm", "--steps", "paper", "--epsilon", 6]
    found = strict(call("run", *words, "--mechanism", "objective", "--seed", 0, "--json").stdout)
    assert found["mechanism"] == "objective" and found["epsilon"] is None and found["simulation"]
    assert found["epsilon_planned"] == pytest.approx(6.0) and "real numbers" in found["guarantee"]
    file = tmp_path / "published.toml"
    file.write_text('[run]\nmechanism = "published"\nvariant = "objective"\n')
    claim = strict(call("run", file, *words, "--json").stdout)
    assert claim["epsilon"] is None and claim["epsilon_paper"] == pytest.approx(6.0)


# -- figures


@pytest.mark.sample(2)
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_is_drawn(tmp_path, suffix):
    file = tmp_path / "deep" / f"plan.{suffix}"
    result = call("plan", *UNSEEN, "--epsilon", 1, "--figure", file)
    assert result.exit_code == 0, result.output
    assert file.stat().st_size > 2000 and f"plan.{suffix}" in "".join(result.stdout.split())


def test_a_figure_of_another_kind_is_refused(tmp_path):
    result = call("plan", *UNSEEN, "--epsilon", 1, "--figure", tmp_path / "plan.bmp")
    assert result.exit_code == 2 and ".png, .svg, .pdf" in result.stderr


def drawn(plan, tmp_path, monkeypatch):
    """The two panels that draw_plan makes."""
    from matplotlib.figure import Figure

    from relaydp.report import draw_plan

    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: kept.append(self))
    draw_plan(tmp_path / "plan.png", plan)
    return kept[0].axes


def test_the_figure_shows_the_outlook_and_the_noise(tmp_path, monkeypatch):
    facts = rd.public_facts([100] * 3, features=6, record_norm=1.0, l2=0.01)
    plan = rd.plan(facts, rd.ring(3), rd.Budget(1.0, 1e-5), algorithm="nids", limits={1: 0.5})
    left, right = drawn(plan, tmp_path, monkeypatch)
    look = plan.outlook
    bias, noise, total, chosen = (line.get_xydata() for line in left.lines)
    for line, values in ((bias, look.bias), (noise, look.noise), (total, look.total)):
        assert line[:, 0].tolist() == look.activations.tolist() and line[:, 1] == pytest.approx(values)
    assert chosen.tolist() == [[plan.activations, plan.predicted]]
    assert left.get_xscale() == left.get_yscale() == "log"
    assert str(plan.activations) in left.texts[0].get_text()
    assert [line.get_label() for line in right.lines] == ["agents 0, 2", "agent 1"]
    for line, agent in zip(right.lines, (0, 1), strict=True):
        assert line.get_ydata() == pytest.approx(plan.scales[:, agent])


def test_many_schedules_become_a_band(tmp_path, monkeypatch):
    sizes = list(range(100, 112))
    options = {"activations": 3, "steps": "paper", "walk": "cyclic"}
    facts = rd.public_facts(sizes, features=6, record_norm=1.0, l2=0.01)
    plan = rd.plan(facts, rd.ring(12), rd.Budget(1.0, 1e-5), **options)
    _, right = drawn(plan, tmp_path, monkeypatch)
    (middle,) = right.lines
    assert middle.get_ydata() == pytest.approx(np.median(plan.scales, axis=1)) and len(right.collections) == 1


def test_a_plan_without_a_prediction_is_drawn_all_the_same(tmp_path, monkeypatch):
    facts = rd.public_facts([50] * 600, features=3, record_norm=1.0, l2=0.01)
    plan = rd.plan(facts, rd.ring(600), rd.Budget(1.0, 1e-5), walk="cyclic")
    left, right = drawn(plan, tmp_path, monkeypatch)
    assert not left.lines and "too many" in left.texts[0].get_text() and len(right.lines) == 1


# -- what is refused

BAD = {
    "delta of 1/m": ([*SMALL, "--epsilon", 1, "--delta", 0.01], ["records", "allow_large_delta = true"]),
    "no epsilon": (UNSEEN, ["epsilon", "--epsilon"]),
    "sizes and data": ([*UNSEEN, "--epsilon", 1, "--data", "digits"], ["--data", "--sizes"]),
    "sizes and agents": ([*UNSEEN, "--epsilon", 1, "--agents", 3], ["--agents", "--sizes"]),
    "sizes and columns": ([*UNSEEN, "--epsilon", 1, "--drop", "ward"], ["--drop", "--sizes"]),
    "sizes without features": (["--sizes", "3x9", "--epsilon", 1], ["--features"]),
    "features of other data": (["--features", 3, "--epsilon", 1], ["fashion-small has 196 features, and --features=3"]),
    "softmax without classes": ([*UNSEEN, "--epsilon", 1, "--loss", "softmax"], ["--classes"]),
    "classes of logistic": (
        [*UNSEEN, "--epsilon", 1, "--loss", "logistic", "--classes", "0,1,2"],
        ["3 classes", "softmax"],
    ),
    "classes of numbers": ([*UNSEEN, "--epsilon", 1, "--loss", "huber", "--classes", "0,1"], ["'huber'", "numbers"]),
    "one class": ([*UNSEEN, "--epsilon", 1, "--classes", 10], ["--classes", "10", "two or more"]),
    "a class twice": ([*UNSEEN, "--epsilon", 1, "--classes", "0,1,0"], ["--classes", "none of them twice"]),
    "fitted ranges": ([*UNSEEN, "--epsilon", 1, "--ranges", "fit-public"], ["fit-public", "LOW,HIGH"]),
    "least squares without a bound": ([*UNSEEN, "--epsilon", 1, "--loss", "least-squares"], ["clip in [problem]"]),
    "sizes in words": (["--sizes", "many", "--features", 3, "--epsilon", 1], ["--sizes 'many'", "8x1500"]),
    "an empty agent": (["--sizes", "100,0", "--features", 3, "--epsilon", 1], ["1 record or more"]),
    "graph of another size": ([*UNSEEN, "--epsilon", 1, "--graph", "grid:2x2"], ["4 agents"]),
    "no bound": (["--data", "breast-cancer", "--ranges", "fit", "--epsilon", 1], ["fit-public"]),
    "argmin": ([*UNSEEN, "--epsilon", 1, "--algorithm", "walkman"], ["argmin", "walkman-gradient"]),
    "limit above the budget": (['limits = {"1" = 2}', *UNSEEN, "--epsilon", 1], ["agent 1", "above the budget's 1"]),
    "limit of nobody": (['limits = {"7" = 0.5}', *UNSEEN, "--epsilon", 1], ["agent 7", "0 to 2"]),
    "limit in words": (['limits = "some"', *UNSEEN, "--epsilon", 1], ["limits='some'", "AGENT = EPSILON"]),
    "limit 0": (['limits = {"1" = 0}', *UNSEEN, "--epsilon", 1], ["line 2", "above 0"]),
    "prior of other columns": (['prior = "digits"', *SMALL, "--epsilon", 1], ["64 features", "data 30"]),
    "unknown prior": (['prior = "digit"', *SMALL, "--epsilon", 1], ["line 2", "Did you mean 'digits'?"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_paragraph_and_exit_2(name, tmp_path):
    words, needles = BAD[name]
    if " = " in str(words[0]):
        words = [settings(tmp_path, f"[run]\n{words[0]}\n"), *words[1:]]
    result = call("plan", *words)
    assert result.exit_code == 2 and result.stdout == "", result.output
    text = result.stderr.strip()
    assert text.startswith("error: ") and "\n" not in text
    for needle in needles:
        assert needle in text, text


@pytest.mark.parametrize(
    ("command", "more", "needles"),
    [
        ("run", "", ["limits", "add epsilon"]),
        ("run", 'epsilon = 1.0\nmechanism = "published"\n', ["limits in [run]", "sound"]),
        ("compare", "epsilon = 1.0\n", ["limits", "comparison"]),
        ("plan", 'epsilon = 1.0\nmechanism = "published"\n', ["published", "'gradient'"]),
    ],
)
def test_limits_are_never_passed_over(tmp_path, command, more, needles):
    file = tmp_path / "run.toml"
    file.write_text(TOML.replace("epsilon = 1.0\n", more))
    result = call(command, file)
    assert result.exit_code == 2, result.output
    assert all(needle in result.stderr for needle in needles), result.stderr


def test_a_files_limits_are_checked_with_their_line(tmp_path):
    file = tmp_path / "run.toml"
    for bad in ('{"1" = "little"}', '{"one" = 0.5}', "{}\nlimits = 3", '{"1" = true}', '{"1" = -1}'):
        file.write_text(TOML.replace('{"1" = 0.5}', bad))
        with pytest.raises(InputError, match=r"run\.toml, line 1\d"):
            read_config(file)


def test_sizes_and_limits():
    assert as_sizes("8x1500") == [1500] * 8
    assert as_sizes(" 2x10 , 5,3 x 1") == [10, 10, 5, 1, 1, 1]
    assert as_limits({"2": 0.25, "0": 1}) == {2: 0.25, 0: 1.0}
    for bad in ("", "x", "3x", "-1,2", "1.5,2"):
        with pytest.raises(InputError, match="--sizes"):
            as_sizes(bad)
    for bad in ("2", "2=0.5", {"": 1}, {"2": float("nan")}, {"2": float("inf")}, {"x": 1}, {"2": 10**400}, 7, [0.5]):
        with pytest.raises(InputError, match="AGENT = EPSILON"):
            as_limits(bad)
