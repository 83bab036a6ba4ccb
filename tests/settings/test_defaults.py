"""One default for one thing, by whichever door; and steps by every algorithm's own names."""

import inspect
import re

import numpy as np
import pytest
import typer.main

import relaydp as rd
from relaydp import defaults
from relaydp.algorithm import ALGORITHMS
from relaydp.cli.main import app
from relaydp.cluster import solving_apart
from relaydp.errors import InputError
from relaydp.graph import WALKS
from relaydp.network.consortium.agreement import ProblemTable
from relaydp.settings.config import Config, build, parse_toml, read_config
from relaydp.settings.values import as_steps

LOSSES = (rd.logistic, rd.softmax, rd.least_squares, rd.huber)
ESTIMATORS = (rd.RelayLogisticRegression, rd.RelayLinearRegression)
FUNCTIONS = (*LOSSES, rd.custom, rd.public_facts, rd.solve, rd.plan, rd.sweep, rd.compare, rd.audit)
FUNCTIONS += (solving_apart.solve_apart, *ESTIMATORS)
# what each argument is by default, wherever a function has it
EXPECTED = {
    "l1": defaults.L1,
    "l2": defaults.L2,
    "walk": defaults.WALK,
    "intercept": defaults.INTERCEPT,
    "fit_intercept": defaults.FIT_INTERCEPT,
    "steps": defaults.STEPS,
    "start": defaults.START,
    "algorithm": defaults.ALGORITHM,
    "delta": defaults.DELTA,
}


# The planner chooses for those who train. An audit is of one promise, and agents that may be lost cannot go by laps.
OWN = {"audit": {"algorithm": "recal"}, "solve_apart": {"algorithm": "recal"}}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_and_estimators_have_these_defaults(function):
    found = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name in EXPECTED and parameter.default is not inspect.Parameter.empty
    }
    expected = EXPECTED | OWN.get(function.__name__, {})
    assert found and found == {name: expected[name] for name in found}


def test_every_door_has_a_ridge_and_a_walk():
    """The test above would hold of a function that lost an argument."""
    for function in (*LOSSES, *ESTIMATORS, solving_apart.solve_apart):
        assert "l2" in inspect.signature(function).parameters
    for function in (rd.solve, rd.plan, rd.sweep, rd.compare, *ESTIMATORS, solving_apart.solve_apart):
        assert "walk" in inspect.signature(function).parameters


def test_files_have_these_defaults():
    for config in (Config(), read_config(), Config.model_validate(parse_toml("", "empty.toml"))):
        assert (config.problem.l1, config.problem.l2, config.problem.intercept) == (0.0, 0.0, False)
        assert (config.run.walk, config.run.steps, config.run.start) == ("tour", "tuned", 0)
        found = (config.problem.l1, config.problem.l2, config.problem.intercept, config.run.walk, config.run.steps)
        assert found == tuple(EXPECTED[name] for name in ("l1", "l2", "intercept", "walk", "steps"))
        assert (config.run.algorithm, config.data.source) == (defaults.ALGORITHM, defaults.DATA)


def test_a_consortiums_file_has_these_defaults():
    fields = ProblemTable.model_fields
    assert {name: fields[name].default for name in ("l1", "l2", "intercept")} == {
        name: EXPECTED[name] for name in ("l1", "l2", "intercept")
    }


TEXTS = {
    "--l2": "0",
    "--walk": "tour",
    "--graph": "ring",
    "--data": "fashion-small",
    "--agents": "8",
    "--delta": "1e-05",
    "--intercept": "no",
    "--algorithm": "auto",
    "--steps": "tuned",
}
# attack and audit use few records and agents of their own; a plan of a consortium is for the agents in its file
OTHERS = {("attack", "--agents"), ("audit", "--agents"), ("agent", "--data"), ("paper", "--data"), ("rerun", "--data")}
OTHERS |= {("audit", "--algorithm"), ("consortium", "--algorithm")}


def options(command, words=()):
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*words, name))
    for param in getattr(command, "params", ()):
        for option in param.opts:
            yield words, option, param


def test_help_has_these_defaults():
    seen = set()
    for words, option, param in options(typer.main.get_command(app)):
        said = re.search(r"[Dd]efault:? ([\w.-]+?)(?:[.,;:]|$)", param.help or "")
        if option in TEXTS and (words[0], option) not in OTHERS and said and said[1] not in ("by", "the"):
            assert said[1] == TEXTS[option], (words, option, param.help)
            seen.add((words[0], option))
    assert {("run", option) for option in TEXTS} <= seen
    assert {("consortium", "--delta"), ("attack", "--l2"), ("plan", "--walk"), ("compare", "--graph")} <= seen


def test_the_default_walk_is_possible_on_every_graph():
    assert defaults.WALK in WALKS
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, record_norm=1.0)
    for graph in (rd.ring(4), rd.path(4), rd.star(4), rd.complete(4)):
        result = rd.solve(problem, graph, activations=2, steps="paper", reference=False, progress=False)
        assert result.walk == defaults.WALK and result.status == "finished"


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_steps_go_by_the_names_of_the_algorithm(algorithm):
    menu = ALGORITHMS[algorithm].menu
    numbers = {name: 0.5 for name in menu.names}
    text = ",".join(f"{name}=0.5" for name in numbers)
    assert read_config(flags={"algorithm": algorithm, "steps": text}).run.steps == numbers
    table = "{ " + ", ".join(f"{name} = 0.5" for name in numbers) + " }"
    file = f'[run]\nalgorithm = "{algorithm}"\nsteps = {table}\n'
    assert parse_toml(file, "run.toml")["run"]["steps"] == numbers
    for name in menu.per_agent:
        assert as_steps({**numbers, name: [0.5, 0.25]}, algorithm)[name] == [0.5, 0.25]
    for name in menu.names:
        lacking = {other: 0.5 for other in numbers if other != name}
        if name in menu.steps._field_defaults:
            assert as_steps(lacking, algorithm) == lacking
        else:
            with pytest.raises(InputError, match=f"lack {name}; {algorithm} needs"):
                as_steps(lacking, algorithm)


@pytest.mark.parametrize(
    ("algorithm", "steps", "said"),
    [
        ("nids", "alpha=1,beta=1,gamma=1", "unknown step of nids 'alpha'"),
        ("recal", "stepsize=1", "unknown step of recal 'stepsize'"),
        ("nids", "stepsize", "unknown steps"),
        ("nids", "stepsize=much,mixing=1", "'stepsize=much' is not name=number"),
        ("nids", "stepsize=1,mixing=1,stepsize=2", "give stepsize twice"),
        ("nids", {"stepsize": [1.0], "mixing": [1.0]}, "step mixing="),
        ("nids", 3, "needed 'tuned', 'paper', or a table of stepsize, mixing"),
    ],
)
def test_steps_of_another_algorithm_are_refused_by_name(algorithm, steps, said):
    with pytest.raises(InputError, match=re.escape(said)):
        as_steps(steps, algorithm)


def test_a_misspelt_algorithm_is_the_complaint_not_its_steps():
    with pytest.raises(InputError, match="Did you mean 'nids'"):
        read_config(flags={"algorithm": "nid", "steps": "stepsize=1,mixing=1"})


def test_tables_with_ranges_and_a_budget_are_shrunk_as_the_estimators_shrink_them(tmp_path):
    flags = {"data": "visits.csv", "ranges": "0,1", "epsilon": 1.0}
    assert read_config(flags=flags).problem.record_norm == "typical"
    assert read_config(flags={**flags, "record_norm": 2.0}).problem.record_norm == 2.0
    for other in ({"epsilon": None}, {"ranges": None}, {"ranges": "fit"}, {"mechanism": "published"}):
        asked = {name: value for name, value in {**flags, **other}.items() if value is not None}
        assert read_config(flags=asked).problem.record_norm is None
    apart = {**flags, "data": "site-*.csv"}
    assert read_config(flags=apart).problem.record_norm is None
    file = tmp_path / "run.toml"
    file.write_text('[data]\nsource = "v.csv"\n[problem]\nranges = [0, 1]\none_hot = ["job"]\n[run]\nepsilon = 1.0\n')
    assert read_config(file).problem.record_norm is None


def test_the_command_line_and_an_estimator_train_the_same_model_on_a_table(tmp_path):
    """Many columns that are mostly 0, with nothing said but what is public of them."""
    draw = np.random.default_rng(0)
    X = (draw.random((600, 12)) < 0.2) * draw.uniform(0.0, 9.0, (600, 12))
    y = (X @ draw.normal(size=12) > 0.5).astype(int)
    names = [f"c{k}" for k in range(12)]
    rows = [",".join(map(repr, [*map(float, row), int(label)])) for row, label in zip(X, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*names, "label"]), *rows]) + "\n")
    flags = {"data": str(tmp_path / "t.csv"), "label": "label", "classes": "0,1", "agents": "4", "ranges": "0,9"}
    problem, graph, asked = build(read_config(flags={**flags, "epsilon": 2.0, "seed": 3, "intercept": True}))
    ours = rd.solve(problem, graph, **asked, trust="curator", trace=False)  # which an estimator is
    theirs = rd.RelayLogisticRegression(epsilon=2.0, bounds=(0, 9), agents=4, random_state=3, classes=[0, 1]).fit(X, y)
    assert problem.predict(ours.x, problem.data.X).tolist() == theirs.predict(X).tolist()
