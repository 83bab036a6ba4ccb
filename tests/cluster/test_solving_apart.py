"""Laws of agents apart, without Ray: plain objects stand in for the actors, so that every crash can be tried."""

import asyncio
import importlib
import pickle
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaydp as rd
from relaydp.cluster import agent_actors, one_node, partitions, relay, solving_apart
from relaydp.cluster.agent_actors import Agent
from relaydp.cluster.checkpoint import NAME, Keeper, Standing
from relaydp.engine import loop
from relaydp.errors import InputError, PrivacyError
from relaydp.party.party import LocalParty

RING, KITE = rd.ring(4), rd.Graph("kite", 4, np.array([(0, 1), (0, 2), (1, 2), (2, 3)]))
BUDGET = rd.Budget(4.0, 1e-4)
EQUAL, UNEQUAL = (20, 20, 20, 20), (12, 31, 17, 22)
LOGISTIC = {"loss": "logistic", "l2": 0.1, "l1": 0.02, "record_norm": 2.0, "classes": [0, 1]}
SQUARES = {"loss": "least-squares", "l2": 0.1, "record_norm": 2.0, "label_bound": 2.0}
RECAL = {"alpha": 1.0, "beta": 0.05, "gamma": 1.0}
FEATURES = 5


class Crash(Exception):
    """The driver dies here."""


class Crew:
    """A crew in one process. It can lose an agent before a call, or the driver, and sees all that passes."""

    def __init__(self, agents: list[Agent], dies_at: int | None = None, loses_at: tuple[int, ...] = ()) -> None:
        self.agents, self.dies_at, self.loses_at = agents, dies_at, loses_at
        self.calls: list[tuple[int, str]] = []
        self.seen: list[Any] = []

    def send(self, agent: int, method: str, *arguments: Any, returns: int = 1) -> Any:
        if len(self.calls) == self.dies_at:
            raise Crash
        if len(self.calls) in self.loses_at:
            lost = self.agents[agent]
            self.agents[agent] = Agent(lost.part, lost.task, lost.key)
        self.calls.append((agent, method))
        self.seen.append(pickle.loads(pickle.dumps(getattr(self.agents[agent], method)(*arguments))))
        return self.seen[-1]

    async def ask(self, agent: int, method: str, *arguments: Any) -> Any:
        return self.send(agent, method, *arguments)

    async def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        return [self.send(agent, method, *arguments) for agent in range(len(self.agents))]

    async def pull(self, references: list[Any], what: str) -> list[Any]:
        return list(references)

    def put(self, value: Any) -> Any:
        return value

    def close(self) -> None: ...


def records_of(loss: str, sizes: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(3)
    X = draw.normal(size=(sum(sizes), FEATURES))
    y = X @ draw.normal(size=FEATURES) + 0.3 * draw.normal(size=len(X))
    cuts = np.cumsum(sizes)[:-1]
    return list(zip(np.split(X, cuts), np.split((y > 0).astype(int) if loss == "logistic" else y, cuts), strict=True))


def write(folder: Path, loss: str, sizes: tuple[int, ...]) -> list[Path]:
    paths = [folder / f"{i}.npz" for i in range(len(sizes))]
    for path, (X, y) in zip(paths, records_of(loss, sizes), strict=True):
        np.savez(path, X=X, y=y)
    return paths


def task_of(problem: dict[str, Any], **extra: Any) -> partitions.ProblemSpec:
    given = {"columns": None, "features": FEATURES, "label": None, "classes": None, "ranges": None} | problem | extra
    return partitions.make_task(given.pop("loss"), **given)


def asked(**how: Any) -> solving_apart.Asked:
    usual = dict(algorithm="recal", mechanism="auto", budget=None, activations=6, walk="random", steps=RECAL, seed=1)
    return solving_apart.Asked(**(usual | dict(start=0, ratio=None, limits=None, prior=None) | how))


def crew_of(
    paths: Any, task: partitions.ProblemSpec, how: solving_apart.Asked
) -> tuple[tuple[partitions.Part, ...], list[Agent]]:
    listed = partitions.list_parts(paths, 4)
    return listed, [Agent(part, task, solving_apart.prints_key(how)) for part in listed]


def simulate(problem: dict[str, Any], records: Any, graph: rd.Graph, how: solving_apart.Asked) -> rd.Result:
    """The same over all parts in one, by `relaydp.solve`."""
    X, y = (np.concatenate([each[k] for each in records]) for k in (0, 1))
    given = dict(problem)
    make = getattr(rd, given.pop("loss").replace("-", "_"))
    whole = make(rd.Records(X, y), agents=[len(each[1]) for each in records], **given)
    return rd.solve(whole, graph, **vars(how), trace=False, reference=False, transcript=False, progress=False)


def assert_same(got: rd.Result, wanted: rd.Result) -> None:
    assert got.x.tobytes() == wanted.x.tobytes()
    assert got.ledger == wanted.ledger
    for name in "status message hops plf messages vectors epsilon_planned private plan walk".split():
        assert getattr(got, name) == getattr(wanted, name), name


# -- the simulator, bit for bit

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], rd.Graph, dict[str, Any]]] = {
    "recal, cyclic": (LOGISTIC, EQUAL, RING, dict(budget=BUDGET, walk="cyclic")),
    "recal, no privacy": (LOGISTIC | {"intercept": True}, EQUAL, KITE, {}),
    "recal, unequal": (LOGISTIC, UNEQUAL, KITE, dict(budget=BUDGET, start=2)),
    "recal, from A'A": (SQUARES, (40, 40, 40, 40), KITE, dict(activations=12)),
    "walkman": (LOGISTIC, EQUAL, KITE, dict(algorithm="walkman-gradient", steps="paper", budget=BUDGET)),
    "nids": (LOGISTIC | {"intercept": True}, UNEQUAL, KITE, dict(algorithm="nids", steps="paper", budget=BUDGET)),
    "nids, no privacy": (LOGISTIC, EQUAL, KITE, dict(algorithm="nids", steps="paper", activations=11)),
    "pg-extra, no privacy": (LOGISTIC, EQUAL, KITE, dict(algorithm="pg-extra", steps="paper")),
    "dgd": (SQUARES | {"l1": 0.0}, EQUAL, KITE, dict(algorithm="dgd", steps="paper", budget=BUDGET)),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES)
def test_agents_apart_are_the_simulator_bit_for_bit(case, tmp_path):
    problem, sizes, graph, given = CASES[case]
    how, task = asked(**given), task_of(problem)
    listed, agents = crew_of(write(tmp_path, problem["loss"], sizes), task, how)
    crew = Crew(agents)
    got = solving_apart.solve_with(crew, listed, task, graph, how, progress=False)
    wanted = simulate(problem, records_of(problem["loss"], sizes), graph, how)
    assert_same(got, wanted)
    assert np.abs(got.x).max() > 0.0
    if got.walk is not None:  # hops on which nobody acts cost no call
        acts = [agent for agent, method in crew.calls if method == "act"]
        assert len(acts) == len(set(acts)) * 6 if how.budget else len(acts) <= got.hops


def test_of_very_many_agents_each_measures_as_one_process_would(tmp_path, monkeypatch):
    for module in ("relaydp.problem.curvature", "relaydp.cluster.agent_actors"):
        monkeypatch.setattr(importlib.import_module(module), "MANY_AGENTS", 3)
    X = np.random.default_rng(0).normal(size=(4, 6, 2))
    for i, rows in enumerate(X.tolist()):
        (tmp_path / f"{i}.csv").write_text(
            "\n".join(["a,b,y", *(f"{a!r},{b!r},{k}.5" for k, (a, b) in enumerate(rows))])
        )
    problem = {"loss": "least-squares", "l2": 0.1}
    task = task_of(problem, columns=["a", "b"], features=None, label="y")
    _, agents = crew_of(str(tmp_path / "*.csv"), task, asked(walk="cyclic", steps="paper"))
    whole = rd.least_squares(rd.Records(X.reshape(24, 2), np.zeros(24)), agents=[6] * 4, l2=0.1)
    longest = (X**2).sum(axis=2).max(axis=1) + 0.1  # and not the largest eigenvalue, which is less
    found = [agent.curvature("float64", 4) for agent in agents]
    assert found == pytest.approx(longest, rel=1e-12)
    assert found == pytest.approx(whole.measured_facts().smoothness, rel=1e-14)


def test_number_types_that_differ_between_parts_are_made_one(tmp_path):
    draw = np.random.default_rng(0)
    records = []
    for i in range(4):
        X = draw.integers(0, 200, (20, 2)) if i < 3 else draw.normal(size=(20, 2)) * 90.0
        records.append((X, (X.sum(axis=1) > 200).astype(int)))
        lines = [f"{a},{b},{label}" for (a, b), label in zip(X.tolist(), records[-1][1].tolist(), strict=True)]
        (tmp_path / f"{i}.csv").write_text("\n".join(["a,b,seen", *lines]) + "\n")
    problem = {"loss": "logistic", "l2": 0.1, "record_norm": 300.0, "classes": [0, 1]}
    how, task = asked(walk="cyclic", steps="paper"), task_of(problem, columns=["a", "b"], features=None, label="seen")
    listed, agents = crew_of(str(tmp_path / "*.csv"), task, how)
    assert {agent.about().raw for agent in agents} == {"int64", "float64"}
    got = solving_apart.solve_with(Crew(agents), listed, task, RING, how, progress=False)
    assert_same(got, simulate(problem, records, RING, how))


@pytest.mark.sample(2)
@pytest.mark.parametrize("algorithm, growth", [("recal", 0.05), ("recal", 0.08), ("nids", 0.05)])
def test_a_run_that_grows_is_stopped_where_the_simulator_stops_it(algorithm, growth, tmp_path, monkeypatch):
    for module in (solving_apart, loop):
        monkeypatch.setattr(module, "GROWTH", growth)  # steps that do grow are refused beforehand
    how = asked(algorithm=algorithm, walk="cyclic", steps="paper", activations=60)
    task = task_of(SQUARES)
    listed, agents = crew_of(write(tmp_path, "least-squares", EQUAL), task, how)
    got = solving_apart.solve_with(Crew(agents), listed, task, RING, how, progress=False)
    wanted = simulate(SQUARES, records_of("least-squares", EQUAL), RING, how)
    assert (got.status, got.hops) == (wanted.status, wanted.hops)
    assert got.status == "diverged" and np.isnan(got.x).all() and 0 < got.hops < 240


# -- what the driver sees


def test_no_record_passes_the_driver(tmp_path):
    how, task = asked(budget=BUDGET), task_of(LOGISTIC)
    listed, agents = crew_of(write(tmp_path, "logistic", UNEQUAL), task, how)
    crew = Crew(agents)
    solving_apart.solve_with(crew, listed, task, KITE, how, progress=False)
    told = [each for each, (_, method) in zip(crew.seen, crew.calls, strict=True) if method == "about"]
    assert [(each.records, each.features) for each in told] == [(m, FEATURES) for m in UNEQUAL]
    assert {method for _, method in crew.calls} == {"about", "act"}  # a private run asks for nothing measured
    passed = pickle.dumps(crew.seen)
    for X, _ in records_of("logistic", UNEQUAL):
        assert not any(value.tobytes() in passed for value in X.ravel())
    assert np.asarray(crew.seen[-1][1])[0].tobytes() in passed  # it can fail: what does pass is found


def test_fingerprints_tell_records_apart_and_belong_to_one_seed():
    (X, y), (other, _), *_ = records_of("logistic", EQUAL)
    one, two = (partitions.fingerprint(rd.Records(each, y), "relaydp 1") for each in (X, other))
    assert one == partitions.fingerprint(rd.Records(X.copy(), y), "relaydp 1") != two
    assert one != partitions.fingerprint(rd.Records(X, y), "relaydp 2")
    assert len({partitions.fingerprint(rd.Records(X, labels), "") for labels in (y, 1 - y, y.astype(str))}) == 3


# -- crashes


@cache
def standing_crew(algorithm: str, folder: str):
    """A small run whose agents are kept: they have no state, and would compile again."""
    steps = RECAL if algorithm == "recal" else "paper"
    how, task = asked(algorithm=algorithm, budget=BUDGET, steps=steps, activations=5), task_of(LOGISTIC)
    listed, agents = crew_of(write(Path(folder), "logistic", EQUAL), task, how)
    crew = Crew(list(agents))
    wanted = solving_apart.solve_with(crew, listed, task, KITE, how, progress=False)
    return how, task, listed, agents, wanted, len(crew.calls)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("crew"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("algorithm, every", [("recal", 1), ("recal", 3), ("nids", 2)])
def test_a_driver_may_die_at_any_call_and_goes_on_to_the_same_model(algorithm, every, folder, tmp_path):
    how, task, listed, agents, wanted, _ = standing_crew(algorithm, folder)
    whole, saved = Crew(agents), 0
    assert_same(
        solving_apart.solve_with(whole, listed, task, KITE, how, tmp_path / "whole", every, progress=False), wanted
    )
    for k in range(len(whole.calls)):
        place = tmp_path / str(k)
        with pytest.raises(Crash):
            solving_apart.solve_with(Crew(agents, dies_at=k), listed, task, KITE, how, place, every, progress=False)
        again = Crew(agents)
        got = solving_apart.solve_with(again, listed, task, KITE, how, place, every, progress=False)
        assert_same(got, wanted)
        assert len(got.ledger) == len({(each.agent, each.hop) for each in got.ledger}) == 20
        saved += len(whole.calls) - len(again.calls)
    assert saved > 0  # work before a checkpoint was not done again


@pytest.mark.parametrize("algorithm", ["recal", "nids"])
def test_agents_may_be_lost_before_any_call(algorithm, folder):
    how, task, listed, agents, wanted, calls = standing_crew(algorithm, folder)
    crew = Crew(list(agents), loses_at=tuple(range(5, calls, 4)))
    assert_same(solving_apart.solve_with(crew, listed, task, KITE, how, progress=False), wanted)


def test_an_interrupt_keeps_what_is_done(folder, tmp_path):
    how, task, listed, agents, wanted, _ = standing_crew("recal", folder)

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    got = solving_apart.solve_with(Crew(agents), listed, task, KITE, how, tmp_path, progress=stop)
    assert got.status == "interrupted" and 0 < len(got.ledger) < 20 and got.epsilon_planned == wanted.epsilon_planned
    assert_same(solving_apart.solve_with(Crew(agents), listed, task, KITE, how, tmp_path, progress=False), wanted)


def test_a_finished_run_is_found_finished(folder, tmp_path):
    how, task, listed, agents, wanted, _ = standing_crew("recal", folder)
    for _ in range(2):
        crew = Crew(agents)
        assert_same(solving_apart.solve_with(crew, listed, task, KITE, how, tmp_path, progress=False), wanted)
    assert {method for _, method in crew.calls} == {"about"}


def test_a_checkpoint_is_whole_or_the_one_before(tmp_path, monkeypatch):
    keeper, standing = Keeper(tmp_path, "run", every=1), Standing(2)
    standing.charge(0, 0)
    standing.position, standing.baton, standing.rows = 1, np.arange(4.0).reshape(2, 2), [b"12345678", b""]
    keeper.save(standing)
    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"os.{call}", fail)
            with pytest.raises(InputError, match="cannot be written .no space.*is complete"):
                keeper.save(Standing(2, position=9))
        found = keeper.load(2)
        assert (found.position, found.rows, list(found.charged)) == (1, standing.rows, [(0, 0)])
        assert found.baton.tobytes() == standing.baton.tobytes()
        assert [path.name for path in tmp_path.iterdir()] == [NAME]


def fail(*_):
    raise OSError(28, "no space")


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(folder, tmp_path):
    how, task, listed, agents, *_ = standing_crew("recal", folder)
    solving_apart.solve_with(Crew(agents), listed, task, KITE, how, tmp_path, progress=False)
    other = solving_apart.Asked(**(vars(how) | {"activations": 4}))
    with pytest.raises(InputError, match="written by another run"):
        solving_apart.solve_with(Crew(agents), listed, task, KITE, other, tmp_path, progress=False)
    whole = (tmp_path / NAME).read_bytes()
    for damaged in (whole[:-40], whole[:100], b""):
        (tmp_path / NAME).write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read.*start again"):
            solving_apart.solve_with(Crew(agents), listed, task, KITE, how, tmp_path, progress=False)


def test_a_release_is_charged_once_and_a_changed_account_gives_no_result(folder, tmp_path):
    standing = Standing(2)
    standing.charge(1, 7)
    with pytest.raises(PrivacyError, match="agent 1 has released at hop 7 already"):
        standing.charge(1, 7)
    how, task, listed, agents, *_ = standing_crew("recal", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Standing, "charge", lambda self, agent, seq: self.charged.setdefault((agent, seq // 2)))
        with pytest.raises(PrivacyError, match="do not agree"):
            solving_apart.solve_with(Crew(agents), listed, task, KITE, how, progress=False)


def test_an_agent_that_comes_back_to_other_records_computes_nothing(tmp_path):
    how, task = asked(budget=BUDGET, activations=3), task_of(LOGISTIC)
    paths = write(tmp_path, "logistic", EQUAL)
    listed, agents = crew_of(paths, task, how)
    X, y = records_of("logistic", EQUAL)[0]
    changed = X.copy()
    changed[0, 0] += 1.0

    def change(done: int, total: int) -> None:
        np.savez(paths[0], X=changed, y=y)
        agents[0] = Agent(listed[0], task, agents[0].key)

    with pytest.raises(PrivacyError, match=r"agent 0 \(.*0.npz\) has other records than when the run began"):
        solving_apart.solve_with(Crew(agents), listed, task, KITE, how, progress=change)


# -- what is refused


def test_what_is_public_must_be_given():
    for missing, match in (
        ({"classes": None}, "needs classes="),
        ({"features": None}, "exactly one of columns= and features="),
        ({"columns": ["a"]}, "exactly one of columns= and features="),
        ({"features": None, "columns": ["a", "a"], "label": "y"}, "names must be different"),
        ({"features": None, "columns": ["a", "b"]}, "label=None"),
        ({"ranges": "fit"}, "would look at the records of all agents"),
        ({"loss": "huber"}, "classes= is for classification"),
        ({"loss": "logistc"}, "Did you mean 'logistic'"),
    ):
        with pytest.raises(InputError, match=match):
            task_of(LOGISTIC | missing)
    bare = task_of(LOGISTIC | {"record_norm": None}).outline([5, 5])
    with pytest.raises(PrivacyError, match="needs a public bound"):
        bare.public_facts()
    given = task_of(LOGISTIC | {"intercept": True}).outline([5, 9]).public_facts()
    told = rd.public_facts([5, 9], FEATURES, record_norm=2.0, l2=0.1, intercept=True)
    assert all(np.array_equal(a, b) for a, b in zip(vars(given).values(), vars(told).values(), strict=True))


def test_parts_are_one_an_agent(tmp_path):
    paths = write(tmp_path, "logistic", EQUAL)
    assert [part.at for part in partitions.list_parts(str(tmp_path / "*.npz"), 4)] == [str(path) for path in paths]
    for wrong, match in (
        (paths[:3], "3 parts for 4 agents"),
        (str(tmp_path / "*.csv"), "no file matches"),
        ([*paths[:3], tmp_path / "x.doc"], "agent 3 is .*x.doc, whose suffix"),
        ([*paths[:3], (np.eye(2), [0, 1])], "agent 3 is a tuple in this process"),
    ):
        with pytest.raises(InputError, match=match):
            partitions.list_parts(wrong, 4)


def test_a_part_that_does_not_fit_names_agent_and_path(tmp_path, monkeypatch):
    task = task_of(LOGISTIC, columns=["a", "b"], features=None, label="y")

    def read(name: str, text: str | None = None, task: partitions.ProblemSpec = task) -> rd.Records:
        if text is not None:
            (tmp_path / name).write_text(text)
        return partitions.read_part(partitions.Part(2, "agent 2", str(tmp_path / name)), task, None)  # type: ignore[arg-type]

    assert read("good.csv", "b,y,more,a\n1,0,x,2\n3,1,x,4\n").X.tolist() == [[2, 1], [4, 3]]
    for name, text, match in (
        ("gone.csv", None, "does not exist"),
        ("other.csv", "a,c,y\n1,2,0\n", "no column 'b'"),
        ("twice.csv", "a,b,b,y\n1,2,3,0\n", "more than one column 'b'"),
        ("label.csv", "a,b,y\n1,2,5\n", "label 5 is not one of the classes"),
        ("text.csv", "a,b,y\n1,x,0\n", "a feature must be a number"),
        ("empty.csv", "a,b,y\n", "no rows"),
        ("broken.parquet", "PAR1", "could not be read as Parquet"),
        ("rows.npz", "", "no column names; pass features="),
    ):
        with pytest.raises(InputError, match=match) as refusal:
            read(name, text)
        assert f"agent 2 ({tmp_path / name})" in str(refusal.value)
    np.savez(tmp_path / "wide.npz", X=np.eye(3), y=[0, 1, 0])
    with pytest.raises(InputError, match=r"agent 2 \(.*wide.npz\).*it has 3 features; all agents must have 5"):
        read("wide.npz", task=task_of(LOGISTIC))

    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(partitions, "read_delimited", full)
    with pytest.raises(InputError, match=r"agent 2 \(.*good.csv\).*do not fit in memory"):
        read("good.csv")


def test_what_cannot_run_apart_is_refused_before_any_release(tmp_path):
    listed, agents = crew_of(write(tmp_path, "logistic", EQUAL), task_of(LOGISTIC), asked())
    for how, error, match in (
        (dict(algorithm="d-admm", steps="tuned"), InputError, "cannot run on a network"),
        (dict(algorithm="recal", mechanism="published", budget=BUDGET), PrivacyError, "or no mechanism"),
        (dict(mechanism="gradient"), PrivacyError, "needs budget"),
        (dict(walk="sideways"), InputError, "unknown walk"),
    ):
        crew = Crew(agents)
        task = task_of(LOGISTIC | {"l1": 0.0, "clip": 1.0})
        with pytest.raises(error, match=match):
            solving_apart.solve_with(crew, listed, task, RING, asked(**how), progress=False)
        assert not {"act", "turn"} & {method for _, method in crew.calls}


def test_a_party_without_noise_takes_only_plans_that_promise_nothing():
    X, y = records_of("logistic", EQUAL)[0]
    task = task_of(LOGISTIC)
    own, whole = task.build_as_agreed(rd.Records(X, y), [20]), task.outline(EQUAL)
    private = solving_apart._plan(whole, KITE, asked(budget=BUDGET))
    with pytest.raises(PrivacyError, match="'gradient' needs noise"):
        LocalParty(private, KITE, 0, own, None)


def test_few_records_are_one_part_for_one_thread():
    from relaydp.problem.kernels import gradient

    assert agent_actors.ONE_THREAD == gradient.ALONE


def test_placement_is_by_name_or_number():
    listed = partitions.list_parts([f"/data/{i}.csv" for i in range(3)], 3, ["north", "south", "east"])
    made = agent_actors._places({"south": {"resources": {"big": 1}}, 2: {"labels": {"zone": "b"}}}, listed)
    assert made == {1: {"resources": {"big": 1}}, 2: {"label_selector": {"zone": "b"}}}
    for wrong, match in (
        ({"west": {}}, "unknown agent .* in placement"),
        ({0: "big"}, "placement of 0"),
        ({0: {"cpu": 1}}, "way to"),
    ):
        with pytest.raises(InputError, match=match):
            agent_actors._places(wrong, listed)


def test_arguments_are_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(solving_apart, "connect", None)  # not reached
    given: dict[str, Any] = {"features": 5, "classes": [0, 1]}
    for wrong, match in (
        (dict(budget=1.0), "must be Budget"),
        (dict(seed=-1), "seed=-1"),
        (dict(budget=BUDGET), "agents on Ray draw their noise from a seed.*consortium"),
        (dict(patience=0), "patience=0"),
        (dict(l2=-1.0), "l2=-1.0"),
        (dict(threshold=1.0), "for the .huber. loss"),
        (dict(smoothness=1.0), "for a loss of your own"),
        (dict(loss=3), "must be a name"),
    ):
        with pytest.raises((InputError, PrivacyError), match=match):
            solving_apart.solve_apart([f"{i}.npz" for i in range(4)], RING, **(given | wrong))

    whole = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
    for words in (dict(budget=BUDGET), dict(budget=BUDGET, seed=None)):
        with pytest.raises(PrivacyError, match="simulation without a promise"):
            one_node.solve_on_ray(whole, RING, **words)
    with pytest.raises(PrivacyError, match="simulation without a promise"):
        one_node.solve_on_ray(whole, RING, "recal", "gradient", BUDGET)
    with pytest.raises(InputError, match="that relaydp.solve takes"):
        one_node.solve_on_ray(whole, RING, budgets=BUDGET)

    with pytest.raises(InputError, match="every=0"):
        Keeper("x", "run", 0)


def test_a_notebooks_own_loop_is_no_obstacle():
    async def cell() -> int:
        return solving_apart._wait(asyncio.sleep(0, 7))

    assert asyncio.run(cell()) == solving_apart._wait(asyncio.sleep(0, 7)) == 7


def test_a_time_out_says_what_was_waited_for():
    crew = object.__new__(agent_actors.RayAgents)
    crew.ray, crew.patience = SimpleNamespace(exceptions=None), 0.01
    part = partitions.Part(1, "agent 1", "/data/1.csv")
    never = SimpleNamespace(as_future=lambda: asyncio.get_running_loop().create_future())
    with pytest.raises(InputError, match=r"agent 1 \(/data/1.csv\) has not answered for 0.01 s \(act\)"):
        asyncio.run(crew._answer(never, part, "act"))


def test_growth_is_looked_for_where_the_simulator_looks():
    class Plan:
        route, activations, preparing, training = range(60), 60, 0, 60
        algorithm = type("algorithm", (), {"kind": "rounds"})
        facts = type("facts", (), {"agents": 4})

    standing = Standing(4)
    watch = relay.Watch(Plan(), standing, limit=10.0)  # type: ignore[arg-type]
    assert (watch.stride, watch.chunk) == (1, 25)
    assert watch.until(1, 20, lambda: np.array([99.0])) is None  # seen, and judged at the end of the chunk
    assert watch.until(21, 30, lambda: np.array([1.0])) == 25
    standing.peak = 0.0
    assert watch.until(26, 49, lambda: np.array([1.0])) is None and standing.peak == 1.0
    assert watch.until(50, 60, lambda: np.array([-np.inf])) == 50
