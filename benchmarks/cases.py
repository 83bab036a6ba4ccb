"""The cases of `bench.py`: each measures relaydp and something beside it in one process, and returns its figures.

A figure is {"figure", "ours", "beside", "unit", "ratio", "target"}: two times (or rates) and their quotient. Times are
minima over repeats that take turns, so that a busy machine troubles both sides alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REST = 0.3  # seconds
DATA = ("ijcnn1", "mnist", "fashion", "cifar10")
LARGE = ("mnist", "cifar10")  # for which there are goals
LOSSES = ("logistic", "least_squares")
AGENTS, L2 = 8, 0.01
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
HERE = Path(__file__).parent
Figures = list[dict[str, Any]]


class Options:
    """How thoroughly to measure, and where the records are."""

    def __init__(self, quick: bool, everything: bool, data: str | None, part: str = "both") -> None:
        self.quick, self.everything, self.data, self.part = quick, everything, data, part

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 7


class Skip(Exception):
    """This case cannot be measured here; the text says why."""


def figure(name: str, ours: float, beside: float | None, unit: str, target: str = "", **more: Any) -> dict[str, Any]:
    ratio = None if beside is None else more.pop("ratio", ours / beside)
    return {"figure": name, "ours": ours, "beside": beside, "unit": unit, "ratio": ratio, "target": target, **more}


def best(repeats: int, *actions: Callable[[], Any]) -> list[float]:
    """The least time of each action, over rounds in which they take turns.

    Threads of a BLAS go on spinning for a tenth of a second after its last product, on cores that the next action
    needs: every action begins after REST seconds in which nothing runs.
    """
    least = [float("inf")] * len(actions)
    for _ in range(repeats):
        for k, action in enumerate(actions):
            time.sleep(REST)
            began = time.perf_counter()
            action()
            least[k] = min(least[k], time.perf_counter() - began)
    return least


# -- what is run


def load(name: str, options: Options) -> Any:
    """A data set by name: from --data FOLDER/NAME.npz (X, y, X_test, y_test), else the catalogue's."""
    import relaydp as rd

    if options.data is None:
        return rd.load_data(name)
    with np.load(Path(options.data) / f"{name}.npz") as held:
        ranges = (0, 255) if held["X"].dtype == np.uint8 else (-1.0, 1.0)
        test = rd.Records(held["X_test"], held["y_test"])
        return rd.Records(held["X"], held["y"], ranges=ranges, test=test, name=name)


def make_problem(name: str, loss: str, options: Options) -> Any:
    import relaydp as rd

    return getattr(rd, loss)(load(name, options), agents=AGENTS, l2=L2)


def make_plan(problem: Any, graph: Any, activations: int, algorithm: str = "recal", **asked: Any) -> Any:
    import jax

    from relaydp.planning.planner import make_plan as draw_up

    usual: dict[str, Any] = dict(mechanism=None, budget=None, walk="cyclic", steps="paper", start=0)
    absent: dict[str, Any] = dict(ratio=None, variant=None, noise=None)
    rest = {**usual, **absent, **asked}
    return draw_up(problem, graph, algorithm=algorithm, activations=activations, key=jax.random.key(0), **rest)


def runner(problem: Any, graph: Any, plan: Any, warm: bool = True) -> Callable[[], Any]:
    """A whole run without trace or transcript, compiled unless not `warm`: call it and it has happened."""
    from relaydp.engine.loop import run
    from relaydp.oracle.randomness import Simulated

    def go() -> Any:
        return run(problem, graph, plan, np.zeros(problem.dim), Simulated(1), False)

    if warm:
        go()
    return go


def hop_runner(problem: Any, graph: Any, plan: Any, hops: int) -> Callable[[], None]:
    """The first `hops` hops of a plan in one compiled call, state after state in place; no set-up, no padding."""
    import jax
    import jax.numpy as jnp

    from relaydp.engine import prefetch
    from relaydp.engine.loop import advance, begin, turns_of, world_of

    world = world_of(problem, graph, plan)
    held = [begin(plan.algorithm, plan.variant, world, plan.steps, jnp.zeros(problem.dim))]
    turns = jax.tree.map(lambda part: part[None, :hops], turns_of(plan, max(hops, len(plan.route))))
    key = jax.random.key(1)
    compiled = advance.lower(
        plan.algorithm,
        plan.variant,
        False,
        world,
        plan.steps,
        key,
        held[0],
        turns,
        False,
        1,
        prefetch.pays(plan, problem.dim),
    ).compile()  # not run: an exact minimiser may take minutes

    def go() -> None:
        held[0], _ = compiled(world, plan.steps, key, held[0], turns)
        jax.block_until_ready(held[0])

    return go


def records_of(problem: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Each agent's features and labels, dense float64, as a researcher would hold them."""
    agent_records = problem.working_records.dense()
    X, y, start, size = (
        np.asarray(part) for part in (agent_records.X, agent_records.y, agent_records.start, agent_records.size)
    )
    rows = [slice(first, first + many) for first, many in zip(start, size, strict=True)]
    return [np.ascontiguousarray(X[part]) for part in rows], [y[part] for part in rows]


def numpy_recal(
    A: list[np.ndarray], b: list[np.ndarray], loss: str, steps: Any, laps: int, l2: float = L2, gram: Any = None
) -> np.ndarray:
    """RECAL round a ring as a researcher would write it: dense float64, two products an activation.

    With `gram`, a list of (A'A/m, A'b/m), least squares takes its gradients from those and not from the records.
    """
    n, dim = len(A), A[0].shape[1]
    alpha, beta, gamma = np.asarray(steps.alpha), float(steps.beta), float(steps.gamma)
    y, price, u, x = np.zeros((n, dim)), np.zeros((n, dim)), np.zeros(dim), np.zeros(dim)
    for k in range(laps * n):
        i = k % n
        if gram is not None:
            mean = gram[i][0] @ y[i] - gram[i][1]
        else:
            z = A[i] @ y[i]
            slope = z - b[i] if loss == "least_squares" else -b[i] / (1.0 + np.exp(b[i] * z))
            mean = A[i].T @ slope / len(slope)
        gradient = (mean + l2 * y[i]) / n
        half = price[i] + beta * (x - y[i])
        x = x - gamma * (u + half - price[i])
        y[i] -= alpha[i] * (gradient - half)
        new = price[i] + beta * (x - y[i])
        u += new - price[i]
        price[i] = new
    return x


# -- the cases


def floor(name: str, loss: str, options: Options) -> Figures:
    """An activation beside one BLAS product with the agent's records, and beside a NumPy loop."""
    import relaydp as rd

    most = 50 if name != "ijcnn1" else 100 if loss == "logistic" else 300
    laps = 25 if options.quick or options.part != "both" else most
    problem, graph = make_problem(name, loss, options), rd.ring(AGENTS)
    plan = make_plan(problem, graph, laps)
    hops = laps * AGENTS
    if options.part == "ours":
        runner(problem, graph, plan)
        return []
    A, b = records_of(problem)
    if options.part == "beside":
        del problem  # what is left is what a researcher would hold
        numpy_recal(A, b, loss, plan.steps, 1)
        return []
    ours = runner(problem, graph, plan)
    apart = float(np.abs(ours().x - numpy_recal(A, b, loss, plan.steps, laps)).max())
    if not apart <= 1e-10:
        raise AssertionError(f"the NumPy loop ends {apart:.1e} from our model; needed 1e-10")
    w = np.random.default_rng(0).normal(size=problem.dim)

    def product() -> None:
        for k in range(hops):
            A[k % AGENTS] @ w

    run, loop, products = best(options.repeats, ours, lambda: numpy_recal(A, b, loss, plan.steps, laps), product)
    each = 1e6 / hops
    shape = f"{name}, {loss.replace('_', ' ')} ({A[0].shape[0]} x {A[0].shape[1]})"
    if not skips_records(problem, graph, plan):
        large = name in LARGE
        floor = "under 0.75" if large and loss == "logistic" else ""
        goal = "under 0.5" if large else "under 1"
        return [
            figure(f"{shape}: activation / one product", run * each, products * each, "us", floor),
            figure(f"{shape}: activation / NumPy loop", run * each, loop * each, "us", goal, apart=apart),
        ]

    # Ours reads A'A instead of the records, so neither of those two is quite its like: the same trick in NumPy is, and
    # what it takes to build A'A counts for both.
    def build() -> list[tuple[np.ndarray, np.ndarray]]:
        return [(part.T @ part / len(c), part.T @ c / len(c)) for part, c in zip(A, b, strict=True)]

    def whole() -> None:
        # records loaded and laid out, everything after that anew
        runner(problem.with_agent_records(problem.agent_records), graph, plan, warm=False)()

    gram = build()
    alike, ours_whole, theirs_whole = best(
        options.repeats,
        lambda: numpy_recal(A, b, loss, plan.steps, laps, gram=gram),
        whole,
        lambda: numpy_recal(A, b, loss, plan.steps, laps, gram=build()),
    )
    hint, goal = "no record is read", "ours under 10 ms, ratio under 0.05"
    plainly = f"{shape}, {hops} activations, A'A there: run / NumPy loop over the records"
    return [
        figure(plainly, 1e3 * run, 1e3 * loop, "ms", goal if hops == 2400 else ""),
        figure(f"{shape}, from A'A: activation / NumPy loop from A'A", run * each, alike * each, "us", apart=apart),
        figure(f"{shape}, {hops} activations, A'A built: run / NumPy loop", 1e3 * ours_whole, 1e3 * theirs_whole, "ms"),
        figure(f"{shape}, from A'A ({hint}): activation / one product", run * each, products * each, "us"),
    ]


def skips_records(problem: Any, graph: Any, plan: Any) -> bool:
    """Whether this run takes its gradients from A'A, made beforehand, and reads no record."""
    from relaydp.engine.loop import world_of

    return getattr(world_of(problem, graph, plan).agent_records, "gram", None) is not None


def matmul_rate(rows: int, columns: int, width: int, repeats: int) -> float:
    """flop/s of NumPy's float64 products A X and A'Y, the better of several tries."""
    draw = np.random.default_rng(0)
    A, X, Y = (draw.normal(size=shape) for shape in ((rows, columns), (columns, width), (rows, width)))
    (seconds,) = best(max(3, repeats), lambda: (A @ X, A.T @ Y))
    return 4.0 * rows * columns * width / seconds


def batch(name: str, many: int, options: Options) -> Figures:
    """Many runs at once: the cost of each beside a single run's and a NumPy loop's, and the flop rate."""
    import jax

    import relaydp as rd
    from relaydp.engine.sweeps import run_plans

    if many > 64 and jax.default_backend() == "cpu" and not options.everything:
        raise Skip(f"{many} runs at once are for an accelerator; --all measures them here too")
    laps = 25 if options.quick or name != "ijcnn1" else 100
    problem, graph = make_problem(name, "logistic", options), rd.ring(AGENTS)
    plan = make_plan(problem, graph, laps)
    single = runner(problem, graph, plan)
    keys = jax.random.split(jax.random.key(2), many)

    def together() -> np.ndarray:
        return run_plans(problem, graph, [plan] * many, keys)

    together()
    A, b = records_of(problem)
    one, all_, loop = best(options.repeats, single, together, lambda: numpy_recal(A, b, "logistic", plan.steps, laps))
    rows, hops = len(problem.data) // AGENTS, laps * AGENTS
    rate = 4.0 * rows * problem.dim * hops * many / all_
    peer = matmul_rate(1250, 3072, 64, options.repeats)
    ours, each = 1e6 * all_ / hops / many, 1e6 / hops
    goals = ("under 0.333", "over 0.6") if (name, many) == ("mnist", 64) else ("", "")
    cheap = "under 0.167" if many == 64 else ""
    return [
        figure(f"{name}: a run's activation, {many} at once / alone", ours, one * each, "us", goals[0]),
        figure(f"{name}: a run's activation, {many} at once / NumPy loop", ours, loop * each, "us", cheap),
        figure(f"{name}: flop rate, {many} at once / NumPy matmul", rate / 1e9, peer / 1e9, "Gflop/s", goals[1]),
    ]


def algorithm(method: str, name: str, options: Options) -> Figures:
    """One algorithm's activation beside RECAL's. Exact minimisers solve a problem each, so one round of those."""
    import relaydp as rd
    from relaydp.algorithm import find_algorithm

    problem, graph = make_problem(name, "logistic", options), rd.ring(AGENTS)
    kind = find_algorithm(method)
    rounds = 1 if kind.data == "argmin" else 10 if options.quick else 25
    acts = rounds * AGENTS

    def prepared(which: str, laps: int) -> Callable[[], None]:
        plan = make_plan(problem, graph, laps, which)
        return hop_runner(problem, graph, plan, laps * AGENTS if plan.algorithm.kind == "relay" else laps)

    mine, recal = prepared(method, rounds), prepared("recal", 10)
    repeats = 1 if kind.data == "argmin" else options.repeats
    ours, beside = best(repeats, mine, recal)
    how = " (exact argmin)" if kind.data == "argmin" else ""
    return [figure(f"{name}: {method}{how} / recal", 1e6 * ours / acts, 1e6 * beside / (10 * AGENTS), "us")]


def trace(name: str, options: Options) -> Figures:
    """The same run with its trace, with one of all points, and without."""
    import relaydp as rd

    problem, graph = make_problem(name, "logistic", options), rd.ring(AGENTS)
    laps = 300 if name == "ijcnn1" or not options.quick else 50

    def solve(trace: bool | int) -> None:
        more: dict[str, Any] = {"reference": False, "transcript": False, "progress": False}
        rd.solve(problem, graph, activations=laps, walk="cyclic", steps="paper", trace=trace, **more)

    every = 201
    solve(True)
    solve(every)
    usual, whole, without = best(
        3 * options.repeats, *(lambda asked=asked: solve(asked) for asked in (True, every, False))
    )
    return [
        figure(f"{name}, {laps} activations: with trace / without", usual, without, "s", "under 1.05"),
        figure(f"{name}, {laps} activations: with a trace of {every} points / without", whole, without, "s"),
    ]


def recompilation(options: Options) -> Figures:
    """Programs compiled while seeds, budgets and graphs of one size change, after the first run."""
    import jax

    import relaydp as rd

    compiled = [0]

    def listen(event: str, seconds: float, **_: Any) -> None:
        compiled[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    draw = np.random.default_rng(0)
    X = draw.uniform(size=(400, 10))
    problem = rd.logistic(rd.Records(X, np.where(X[:, 0] > 0.5, 1, -1)), agents=AGENTS, l2=L2, record_norm=1.0)

    def solve(graph: Any = None, epsilon: float | None = 1.0, seed: int = 0, steps: str = "tuned") -> int:
        before = compiled[0]
        budget = None if epsilon is None else rd.Budget(epsilon, 1e-5)
        more: dict[str, Any] = {"activations": 20, "seed": seed, "steps": steps, "progress": False}
        rd.solve(problem, graph or rd.ring(AGENTS), budget=budget, **more)
        return compiled[0] - before

    graphs = [rd.star(AGENTS), rd.complete(AGENTS), rd.erdos_renyi(AGENTS, 0.5), rd.path(AGENTS)]
    first = solve()
    found = [
        ("seeds", sum(solve(seed=seed) for seed in range(1, 6))),
        ("budgets", sum(solve(epsilon=epsilon) for epsilon in (0.3, 0.5, 2.0, 8.0))),
    ]
    first += solve(epsilon=None, steps="paper")
    found.append(("graphs of one size", sum(solve(graph, None, steps="paper") for graph in graphs)))
    rows = [figure(f"compiled over {what} / by the first runs", n, first, "programs", "0") for what, n in found]
    planned = sum(solve(graph) for graph in graphs)  # the simulated walks are as long as the graph makes them
    what = f"compiled over {len(graphs)} graphs, planning included / by the first runs"
    return [*rows, figure(what, planned, first, "programs")]


def decent_bench(options: Options) -> Figures:
    """NIDS, EXTRA and ADMM beside decent-bench's, on one problem, both keeping every iteration."""
    sys.path.insert(0, str(HERE))
    import peers

    there = os.environ.get("RELAYDP_PEER_PYTHON") or peers.HOME.exists()  # a benchmark installs nothing
    python = peers.peer_python() if there else None
    works = (
        python is not None and not subprocess.run([python, "-c", "import decent_bench"], capture_output=True).returncode
    )
    if python is None or not works:
        raise Skip("decent-bench was not found: `python benchmarks/peers.py`, or RELAYDP_PEER_PYTHON=its Python")
    if options.part == "ours":
        peers.ours()
        return []
    if options.part == "beside":
        peers.theirs(python)
        return []
    mine, peer, optimum = peers.ours(), peers.theirs(python), peers.optimum()
    figures = []
    for name in peers.STEPS:
        apart = max(float(np.abs(np.array(found[name]["x"]) - optimum).max()) for found in (mine, peer))
        ours, theirs = (1e6 * found[name]["seconds_an_iteration"] for found in (mine, peer))
        figures.append(figure(f"{name}: an iteration / decent-bench's", ours, theirs, "us", "under 0.02", apart=apart))
    return figures


OCTAVE = """
load(argv(){1}); n = numel(A); dim = columns(A{1}); hops = laps * n;
y = zeros(dim, n); price = zeros(dim, n); u = zeros(dim, 1); x = zeros(dim, 1); tic;
for k = 0:hops-1
  i = mod(k, n) + 1; z = A{i} * y(:, i); s = -b{i} ./ (1 + exp(b{i} .* z));
  g = (A{i}' * s / numel(s) + l2 * y(:, i)) / n; h = price(:, i) + beta * (x - y(:, i));
  x = x - gamma * (u + h - price(:, i)); y(:, i) = y(:, i) - alpha(i) * (g - h);
  p = price(:, i) + beta * (x - y(:, i)); u = u + p - price(:, i); price(:, i) = p;
end
printf("%.17g ", toc / hops, x);
"""


def octave(name: str, options: Options) -> Figures:
    """An activation beside the same loop in GNU Octave."""
    import shutil

    import relaydp as rd

    program = shutil.which("octave-cli") or shutil.which("octave")
    if program is None:
        raise Skip("octave is not on the PATH")
    from scipy.io import savemat

    laps = 10 if options.quick else 50
    problem, graph = make_problem(name, "logistic", options), rd.ring(AGENTS)
    plan = make_plan(problem, graph, laps)
    A, b = records_of(problem)
    cells = [np.empty(AGENTS, object) for _ in range(2)]
    for i in range(AGENTS):
        cells[0][i], cells[1][i] = A[i], b[i][:, None]
    alpha, beta, gamma = (np.asarray(part) for part in plan.steps)
    ours = runner(problem, graph, plan)
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / "problem.mat", Path(folder) / "recal.m"
        numbers = {"alpha": alpha, "beta": float(beta), "gamma": float(gamma), "laps": laps, "l2": L2}
        savemat(file, {"A": cells[0], "b": cells[1], **numbers})
        script.write_text(OCTAVE)
        done = subprocess.run([program, "--norc", script, file], capture_output=True, text=True, check=True)
    seconds, *x = map(float, done.stdout.split())
    apart = float(np.abs(np.array(x) - ours().x).max())
    (run,) = best(options.repeats, ours)
    each = 1e6 / (laps * AGENTS)
    return [figure(f"{name}: activation / Octave loop", run * each, 1e6 * seconds, "us", apart=apart)]


def gpu(options: Options) -> Figures:
    """CIFAR-10, 2,400 activations: alone beside copy bandwidth, 1,024 at once beside float64 matmul."""
    import jax
    import jax.numpy as jnp

    import relaydp as rd
    from relaydp.engine.sweeps import run_plans

    if jax.default_backend() == "cpu" and not options.everything:
        raise Skip("no accelerator")
    on_cpu = jax.default_backend() == "cpu"
    many, laps, name = (8, 25, "ijcnn1") if on_cpu else (1024, 300, "cifar10")
    problem, graph = make_problem(name, "logistic", options), rd.ring(AGENTS)
    plan = make_plan(problem, graph, laps)
    single = runner(problem, graph, plan)
    keys = jax.random.split(jax.random.key(2), many)
    run_plans(problem, graph, [plan] * many, keys)
    rows, hops = len(problem.data) // AGENTS, laps * AGENTS
    big = jnp.ones(2**24 if on_cpu else 2**27)
    A, X = jnp.ones((rows, problem.dim)), jnp.ones((problem.dim, many))
    often = 1 if on_cpu else 50  # in one program, so that starting it does not count
    copy = jax.jit(lambda a: jax.lax.fori_loop(0, often, lambda _, b: b + 1.0, a))
    multiply = jax.jit(lambda A, X: jax.lax.fori_loop(0, often, lambda _, Z: A.T @ (A @ Z) / A.size, X))
    copy(big).block_until_ready()
    multiply(A, X).block_until_ready()
    alone, together, copied, multiplied = best(
        options.repeats,
        single,
        lambda: run_plans(problem, graph, [plan] * many, keys),
        lambda: copy(big).block_until_ready(),
        lambda: multiply(A, X).block_until_ready(),
    )
    bandwidth = 2 * big.size * 8 * often / copied
    stored = problem.records_for(laps, clipped=False).X.dtype.itemsize
    ours = 2 * rows * problem.dim * stored * hops / alone  # each of the two products reads the records once
    rate, peak = (4.0 * rows * problem.dim * many * times for times in (hops / together, often / multiplied))
    return [
        figure(f"{name}, {hops} activations: {many} runs at once / one alone", together, alone, "s"),
        figure(f"{name}, alone: bytes of records read / copy bandwidth", ours / 1e9, bandwidth / 1e9, "GB/s"),
        figure(f"{name}, {many} at once: flop rate / float64 matmul", rate / 1e9, peak / 1e9, "Gflop/s"),
    ]


COLD = """
import relaydp as rd
problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
rd.solve(problem, rd.ring(4), budget=rd.Budget(1.0, 1e-5), progress=False)
"""


def start_up(options: Options) -> Figures:
    """`relaydp --help`, and the first private solve of a fresh process, beside a process that only imports JAX."""

    # without what this process has told JAX about keeping programs, which children would inherit
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPIL", "JAX_PERSIST"))}

    def clock(command: list[str], **environment: str) -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**plain, **environment})
        return time.perf_counter() - began

    def times(command: list[str], many: int = 5, **environment: str) -> float:
        return float(np.median([clock(command, **environment) for _ in range(many)]))

    python = [sys.executable, "-c"]
    bare, jax_ = times([*python, "pass"]), times([*python, "import jax.numpy"], 3)
    found = []
    try:
        found.append(
            figure(
                "relaydp --help / bare Python",
                times([sys.executable, "-m", "relaydp", "--help"]),
                bare,
                "s",
                "ours under 0.3 s",
            )
        )
    except subprocess.CalledProcessError:
        found.append(figure("relaydp --help (typer is not installed here)", float("nan"), None, "s"))
    many = 2 if options.quick else 3
    cold = times([*python, COLD], many, RELAYDP_COMPILED="0")
    found.append(figure("cold private solve / importing JAX", cold, jax_, "s", "ours under 5 s"))
    with tempfile.TemporaryDirectory() as folder:  # as on a machine that has never seen relaydp
        first = clock([*python, COLD], RELAYDP_COMPILED="0", NUMBA_CACHE_DIR=folder)
    found.append(figure("the same, the first ever: the kernel is compiled too / importing JAX", first, jax_, "s"))
    with tempfile.TemporaryDirectory() as folder:
        clock([*python, COLD], RELAYDP_COMPILED=folder)
        warm = times([*python, COLD], many, RELAYDP_COMPILED=folder)
    found.append(figure("the same, compiled programs kept / importing JAX", warm, jax_, "s", "ours under 5 s"))
    return found


SMALL_FIT = """
import relaydp as rd
problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
def fit():
    rd.solve(problem, rd.ring(4), budget=rd.Budget(1.0, 1e-5), walk="cyclic", progress=False)
"""
SMALL_FIT_BESIDE = """
import sys
import numpy as np
from sklearn.linear_model import LogisticRegression
records = np.load(sys.argv[1])
X, y = records["X"], records["y"]
X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
def fit():
    LogisticRegression(C=1 / (1e-2 * len(y)), fit_intercept=False).fit(X, y)
"""
TWICE = """
import time
fit()
first, again = time.time(), []
for _ in range(5):
    began = time.perf_counter()
    fit()
    again.append(time.perf_counter() - began)
print(first, sorted(again)[2])
"""


def small_fit(options: Options) -> Figures:
    """The first private fit of a process and the next ones, beside scikit-learn's: medians over processes, in turns."""
    import relaydp as rd

    plain = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPIL", "JAX_PERSIST"))}

    def clock(program: str, *given: str, **environment: str) -> tuple[float, float]:
        """From the start of a process to the end of its first fit, and its median of five more."""
        command, began = [sys.executable, "-c", program + TWICE, *given], time.time()
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**plain, **environment})
        first, again = map(float, done.stdout.split())
        return first - began, again

    with tempfile.TemporaryDirectory() as folder:
        data, file = rd.load_data("breast-cancer"), str(Path(folder) / "records.npz")
        np.savez(file, X=data.X, y=data.y)
        clock(SMALL_FIT, RELAYDP_COMPILED=folder)  # compiles, and keeps
        clock(SMALL_FIT_BESIDE, file)
        ours, beside = [], []
        for _ in range(options.repeats):
            ours.append(clock(SMALL_FIT, RELAYDP_COMPILED=folder))
            beside.append(clock(SMALL_FIT_BESIDE, file))
    (cold, warm), (cold_beside, warm_beside) = np.median(ours, axis=0), np.median(beside, axis=0)
    what = "private fit of breast-cancer, 4 agents"
    return [
        figure(f"first {what} / scikit-learn's", float(cold), float(cold_beside), "s", "ours under 2.5 s"),
        figure(f"another {what} / scikit-learn's", float(warm), float(warm_beside), "s", "ours under 0.1 s"),
    ]


def make_network(shape: str, n: int, private: bool) -> tuple[Any, Any, Any, int]:
    """(problem, graph, plan, hops): 1 to 4 records of 22 features an agent, and as many hops for every n."""
    import relaydp as rd

    hops = 20_000
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 5, size=n)
    X = draw.random((int(sizes.sum()), 22))
    y = np.where(X @ draw.normal(size=22) > 0, 1.0, -1.0)
    problem = rd.logistic(rd.Records(X, y), agents=sizes, l2=L2, record_norm=1.0)
    del X, y
    graph = rd.ring(n) if shape == "ring" else rd.random_regular(n, 4, seed=0)
    walk = "cyclic" if shape == "ring" else "random"
    # a random walk ends when somebody has acted this often: enough for `hops` hops, and not for many more
    laps = -(-hops // n) if shape == "ring" else 14 if n >= 100_000 else 20 + 2 * hops // n
    asked: dict[str, Any] = {"walk": walk}
    if private:
        asked |= {"mechanism": "gradient", "budget": rd.Budget(1.0, 1e-5)}
    plan = make_plan(problem, graph, laps, **asked)
    return problem, graph, plan, min(hops, len(plan.route))


def network(shape: str, n: int, private: bool, options: Options) -> Figures:
    """An activation among n agents beside one among 100."""
    few = make_network(shape, SIZES[0], private)  # for n = 100 the same again: how far the machine can be trusted
    go_small = hop_runner(*few)
    began = time.perf_counter()
    large = make_network(shape, n, private)
    set_up = time.perf_counter() - began
    go = hop_runner(*large)
    hops = large[3]
    ours, small = best(3 * options.repeats, go, go_small)
    walk, kind = ("cyclic", "ring") if shape == "ring" else ("random walk", "4-regular")
    what = f"{kind}, {walk}{', private' if private else ''}: activation, {n:,} agents / 100 agents"
    return [figure(what, 1e6 * ours / hops, 1e6 * small / few[3], "us", "under 1.5", set_up=set_up)]


def cases(options: Options) -> dict[str, tuple[Callable[[Options], Figures], bool]]:
    """Case name -> (what to call, whether each side's memory is measured in a process of its own)."""
    found: dict[str, tuple[Callable[[Options], Figures], bool]] = {}
    for loss in LOSSES:
        for name in DATA:
            found[f"floor/{name}-{loss}"] = (lambda o, a=name, b=loss: floor(a, b, o), True)
    for many in (64, 1024):
        for name in DATA:
            found[f"batch/{name}-{many}"] = (lambda o, a=name, b=many: batch(a, b, o), False)
    for name in DATA:
        found[f"trace/{name}"] = (lambda o, a=name: trace(a, o), False)
    found["recompilation/loop"] = (recompilation, False)
    found["start-up/cold"] = (start_up, False)
    found["start-up/small-fit"] = (small_fit, False)
    for shape, private in (("ring", False), ("regular", False), ("ring", True)):
        for n in SIZES:
            label = f"network/{shape}{'-private' if private else ''}-{n}"
            found[label] = (lambda o, a=shape, b=n, c=private: network(a, b, c, o), False)
    found["peers/decent-bench"] = (decent_bench, True)
    found["peers/octave"] = (lambda o: octave("mnist", o), False)
    found["gpu/cifar10"] = (gpu, False)
    from relaydp.algorithm import algorithms

    for name in DATA:
        for method in algorithms():
            found[f"algorithm/{name}-{method}"] = (lambda o, a=method, b=name: algorithm(a, b, o), False)
    if options.quick:  # a few minutes: the small data sets, and networks by powers of a hundred
        slow = ("mnist", "fashion", "-1000", "-100000")
        found = {
            name: case
            for name, case in found.items()
            if not any(name.endswith(end) for end in slow[2:])
            and not any(part in name for part in slow[:2])
            and not (name.startswith(("algorithm", "batch")) and "cifar10" in name)
        }
    return found
