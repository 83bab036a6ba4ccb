"""Laws of one party's local: together the parties are the simulator, bit for bit, and none needs what is another's."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from effort import same_bits

import relaydp as rd
from relaydp.algorithm import ALGORITHMS, Algorithm, nids, recal
from relaydp.algorithm.consensus import apart
from relaydp.engine.loop import run
from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium.agreed_plan import network_algorithms
from relaydp.oracle.randomness import Simulated
from relaydp.party import step
from relaydp.party.party import Keyed, LocalParty, on_network
from relaydp.privacy.mechanism import release
from relaydp.problem.kernels import dispatch

RELAYS = ("recal", "walkman-gradient")
ROUNDS = ("dgd", "huang-ring", "ic-admm", "nids", "pg-admm", "pg-extra")
ABLE = sorted(RELAYS + ROUNDS)
KITE = rd.Graph("kite", 4, np.array([(0, 1), (0, 2), (1, 2), (2, 3)]))
PATH = rd.path(3)
_, NOISE_KEY = jax.random.split(jax.random.key(5))  # what Simulated(5) draws from
_release = jax.jit(release)

# name -> loss, its options, sizes, features, graph; all with a ridge, and r = l1 where there is one
PROBLEMS: dict[str, tuple[str, dict[str, Any], list[int], int, rd.Graph]] = {
    "logistic, unequal": ("logistic", {"l1": 0.02, "intercept": True}, [12, 31, 17, 22], 6, KITE),
    "least squares, equal": ("least_squares", {"l1": 0.02, "label_bound": 2.0}, [20, 20, 20], 9, PATH),
    "logistic, equal": ("logistic", {"l1": 0.05}, [20, 20, 20, 20], 5, rd.ring(4)),
    "least squares, unequal": ("least_squares", {"label_bound": 2.0, "intercept": True}, [40, 11, 26], 30, PATH),
    "softmax, unequal": ("softmax", {"intercept": True}, [33, 21, 40, 25], 4, KITE),
}


def make_problems(kind: str) -> tuple[rd.Problem, list[rd.Problem]]:
    """Everybody's records in one problem, and each party's own in one of its own, made without the others'."""
    loss, options, sizes, features, _ = PROBLEMS[kind]
    draw = np.random.default_rng(3)
    X = draw.normal(size=(sum(sizes), features))
    score = X @ draw.normal(size=features) + 0.3 * draw.normal(size=len(X))
    y = score
    if loss == "logistic":
        y, options = np.sign(score), {**options, "classes": [-1.0, 1.0]}
    if loss == "softmax":
        y, options = np.digitize(score, [-1.0, 1.0]), {**options, "classes": [0, 1, 2]}
    make, start = getattr(rd, loss), np.cumsum(sizes) - sizes
    options = {"l2": 0.1, "record_norm": 2.0, **options}
    own = [make(rd.Records(X[a : a + m], y[a : a + m]), agents=1, **options) for a, m in zip(start, sizes, strict=True)]
    return make(rd.Records(X, y), agents=sizes, **options), own


def draw_of(party: int, agents: int, is_relay: bool):
    """The simulator's noise: one vector a hop, or this party's row of a round's."""

    def draw(value: np.ndarray, scale: float, sensitivity: float, hop: int) -> np.ndarray:
        key = jax.random.fold_in(NOISE_KEY, hop)
        if is_relay:
            return np.asarray(_release(jnp.asarray(value), jnp.asarray(scale), key))
        everyone = jnp.zeros((agents, value.size)).at[party].set(value)
        return np.asarray(_release(everyone, jnp.full((agents, 1), scale), key))[party]

    return draw


@dataclass
class Played:
    """A run by parties, and what was seen on the way."""

    sent: list[np.ndarray] = field(default_factory=list)  # the baton after each hop, or all messages of a round
    rows: list[list[bytes]] = field(default_factory=list)  # everybody's, after each hop or round
    drawn: list[tuple[int, int, float, float]] = field(default_factory=list)  # (party, hop, sensitivity, scale)
    asked: list[str] = field(default_factory=list)  # the call during which records were asked
    x: Any = None


@cache
def plan_for(name: str, kind: str):
    problem, own = make_problems(kind)
    graph = PROBLEMS[kind][-1]
    activations = 7 if name in RELAYS else 5
    plan = rd.plan(problem, graph, rd.Budget(4.0, 1e-4), algorithm=name, activations=activations, steps="paper", seed=2)
    return problem, own, graph, plan


@cache
def parties_for(name: str, kind: str) -> list[LocalParty]:
    _, own, graph, plan = plan_for(name, kind)
    is_relay = name in RELAYS
    return [LocalParty(plan, graph, i, own[i], draw_of(i, graph.agents, is_relay)) for i in range(graph.agents)]


@cache
def played(name: str, kind: str) -> Played:
    _, _, graph, plan = plan_for(name, kind)
    parties, seen, call = parties_for(name, kind), Played(), [""]
    with pytest.MonkeyPatch.context() as patch:
        gradient = step.mean_gradient

        def counted(*args):
            seen.asked.append(call[0])
            return gradient(*args)

        def noted(party: int, draw):
            def draw_and_note(value, scale, sensitivity, hop):
                assert value.shape == (parties[party].dim,) and value.dtype == np.float64
                seen.drawn.append((party, hop, sensitivity, scale))
                return draw(value, scale, sensitivity, hop)

            return draw_and_note

        patch.setattr(step, "mean_gradient", counted)
        for party, local in enumerate(parties):
            patch.setattr(local, "draw", noted(party, local.draw))
        rows = [local.begin() for local in parties]
        (relay_all if name in RELAYS else round_all)(parties, graph, plan, rows, seen, call)
    return seen


def relay_all(parties, graph, plan, rows, seen, call) -> None:
    baton, call[0] = parties[0].first_baton(), "relay"
    for hop, (i, acts) in enumerate(zip(plan.route.holder, plan.route.acts, strict=True)):
        if acts:
            rows[i], baton = parties[i].relay(rows[i], baton, hop, int(plan.route.activation[hop]))
        seen.sent.append(baton)
        seen.rows.append(list(rows))
    seen.x = parties[-1].answer(baton)


def round_all(parties, graph, plan, rows, seen, call) -> None:
    for hop in range(len(plan.route)):
        call[0] = "speak"
        said = [local.speak(rows[i], hop, hop) for i, local in enumerate(parties)]
        call[0] = "listen"
        for i, local in enumerate(parties):
            heard = {int(j): said[j][1] for j in graph.neighbours(i)}
            rows[i] = local.listen(rows[i], hop, hop, said[i][0], heard)
        seen.sent.append(np.stack([message for _, message in said]))
        seen.rows.append(list(rows))
    seen.x = parties[-1].answer(np.stack([local.share(mine) for local, mine in zip(parties, rows, strict=True)]))


MAIN = "logistic, unequal"
CASES = [(name, MAIN) for name in ABLE]
CASES += [("recal", kind) for kind in PROBLEMS if kind != MAIN]
CASES += [("nids", kind) for kind in PROBLEMS if kind != MAIN and "softmax" not in kind]


# -- which algorithms can


def test_a_consortium_file_may_name_those_that_can_and_no_others():
    assert list(network_algorithms()) == ABLE


def test_these_algorithms_can():
    able = []
    for name, algorithm in ALGORITHMS.items():
        try:
            on_network(algorithm)
        except InputError as refusal:
            assert f"{name} cannot run" in str(refusal) and ", ".join(ABLE) in str(refusal)
        else:
            able.append(name)
    assert sorted(able) == ABLE


def changed(base: Algorithm, **parts) -> Algorithm:
    return replace(base, name="changed", **parts)


def asks_twice(setting, steps, state, turn):
    setting.gradients(state.z)
    return nids.step(setting, steps, state, turn)


def asks_in_a_loop(setting, steps, state, turn):
    _, slopes = jax.lax.scan(lambda z, _: (z, setting.gradients(z)), state.z, jnp.arange(2))
    return state._replace(slope=slopes[1]), nids.Forecasts(setting.exchange(state.x))


def asks_again_elsewhere(setting, steps, state, turn):
    """As an algorithm from outside might, to cancel the noise: the same point, and its own."""
    again = setting.gradient(state.baton.x)
    state, sent = recal.step(setting, steps, state, turn)
    return state, sent._replace(x=sent.x - again)


def asks_at_once(setting, steps, x0):
    return recal.init(setting, steps, setting.gradient(x0))


def asks_never(setting, steps, state, turn):
    return state, nids.Forecasts(setting.exchange(state.x))


def looks_at_others(setting, steps, state, turn):
    state, sent = nids.step(setting, steps, state, turn)
    return state._replace(z=state.z + jnp.mean(state.slope, axis=0)[None]), sent


def asks_after_hearing(setting, steps, state, turn):
    mixed = state.x - apart(setting, setting.exchange(state.x))
    return state._replace(x=setting.gradients(mixed)), nids.Forecasts(state.x)


def sends_what_it_heard(setting, steps, state, turn):
    state, sent = nids.step(setting, steps, state, turn)
    return state, nids.Forecasts(apart(setting, sent.v))


def forgets_u(setting, steps, state, payload):
    return state._replace(baton=state.baton._replace(x=payload.x))


@pytest.mark.parametrize(
    "algorithm, why",
    [
        (changed(nids.NIDS, step=asks_twice), "asked the records twice in one turn"),
        (changed(nids.NIDS, step=asks_in_a_loop), "inside a loop"),
        (changed(recal.RECAL, step=asks_again_elsewhere), "asked the records twice in one turn"),
        (changed(recal.RECAL, init=asks_at_once), "init asked the records"),
        (changed(nids.NIDS, step=asks_never), "asks for no gradient"),
        (changed(nids.NIDS, step=looks_at_others), "private state of others"),
        (changed(nids.NIDS, step=asks_after_hearing), "its neighbours' messages"),
        (changed(nids.NIDS, step=sends_what_it_heard), "its neighbours' messages"),
        (changed(nids.NIDS, answer=lambda state: state.z[0]), "not made of the agents' copies"),
        (changed(nids.NIDS, exchanges=2), "sends something other"),
        (changed(recal.RECAL, receive=None), "Algorithm.receive"),
        (changed(recal.RECAL, receive=forgets_u), "baton with all"),
        (changed(recal.RECAL, vectors=3), "sends 2 vectors"),
        (ALGORITHMS["gradient-tracking"], "sends 2 vectors"),
        (ALGORITHMS["tripd-dist"], "sends something other"),
        (ALGORITHMS["d-admm"], "does not ask its records for gradients"),
    ],
)
def test_an_algorithm_that_a_party_cannot_run_by_itself_is_refused(algorithm, why):
    with pytest.raises(InputError, match=why):
        on_network(algorithm)


# -- the simulator, bit for bit: on one machine, where both are compiled by one compiler; other processors, other bits


@pytest.mark.sample(3)
@pytest.mark.parametrize("name, kind", CASES)
def test_party_are_the_simulator_bit_for_bit(name, kind):
    problem, _, graph, plan = plan_for(name, kind)
    seen = played(name, kind)
    wanted = run(problem, graph, plan, np.zeros(problem.dim), Simulated(5), keep=True)
    sent = np.stack(jax.tree.leaves(wanted.sent), axis=-2)
    assert same_bits(np.stack(seen.sent), sent) and same_bits(seen.x, wanted.x)
    assert np.abs(seen.x).max() > 0.0  # it went somewhere


@pytest.mark.sample(2)
@pytest.mark.parametrize("name, kind", [case for case in CASES if case[0] in RELAYS])
def test_a_key_gives_what_drawing_outside_gives(name, kind):
    _, own, graph, plan = plan_for(name, kind)
    parties = [LocalParty(plan, graph, i, own[i], Keyed(NOISE_KEY)) for i in range(graph.agents)]
    seen = Played()
    relay_all(parties, graph, plan, [local.begin() for local in parties], seen, [""])
    drawn = played(name, kind)
    assert np.stack(seen.sent).tobytes() == np.stack(drawn.sent).tobytes()
    assert seen.rows == drawn.rows
    with pytest.raises(PrivacyError, match="the plan has noise for 7"):
        parties[0].relay(parties[0].begin(), parties[0].first_baton(), 50, 7)


def test_rounds_take_no_key():
    _, own, graph, plan = plan_for("nids", MAIN)
    with pytest.raises(PrivacyError, match="noise for rounds is a key"):
        LocalParty(plan, graph, 0, own[0], Keyed(NOISE_KEY))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [kind for kind in PROBLEMS if "softmax" not in kind])
def test_rounds_over_many_records_are_the_simulator_bit_for_bit(monkeypatch, kind):
    """There an agent takes a fused pass, alone as among all; how many are many is for everybody to know."""
    problem, own, graph, plan = plan_for("nids", kind)
    monkeypatch.setattr(dispatch, "MANY", problem.data.X.size)
    parties = [LocalParty(plan, graph, i, own[i], draw_of(i, graph.agents, False)) for i in range(graph.agents)]
    assert all(local._agent_records.by_passes for local in parties)
    seen = Played()
    round_all(parties, graph, plan, [local.begin() for local in parties], seen, [""])
    wanted = run(problem, graph, plan, np.zeros(problem.dim), Simulated(5), keep=True)
    assert np.stack(seen.sent).tobytes() == np.stack(jax.tree.leaves(wanted.sent), axis=-2).tobytes()
    assert seen.x.tobytes() == wanted.x.tobytes()
    monkeypatch.setattr(dispatch, "MANY", problem.data.X.size + 1)
    assert not LocalParty(plan, graph, 0, own[0], draw_of(0, graph.agents, False))._agent_records.by_passes


def test_rounds_of_several_outputs_are_the_simulator_to_rounding():
    # XLA has another routine for the product of one party's records than for a batch of all
    problem, _, graph, plan = plan_for("nids", "softmax, unequal")
    wanted = run(problem, graph, plan, np.zeros(problem.dim), Simulated(5), keep=True)
    np.testing.assert_allclose(played("nids", "softmax, unequal").x, wanted.x, rtol=0.0, atol=1e-13)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ABLE)
def test_records_are_asked_once_an_activation_and_noise_is_drawn_as_planned(name):
    _, _, _, plan = plan_for(name, MAIN)
    seen = played(name, MAIN)
    call = "relay" if name in RELAYS else "speak"
    assert seen.asked == [call] * len(seen.drawn)
    who, when, sensitivity, scale = plan.releases()
    assert sorted(seen.drawn) == sorted(zip(who, when, sensitivity, scale, strict=True))


@pytest.mark.parametrize("name", ROUNDS)
def test_listening_needs_neither_records_nor_noise(name):
    local = parties_for(name, MAIN)[1]
    rows = played(name, MAIN).rows[1][1]
    released, _ = local.speak(rows, 2, 2)
    heard = {j: np.full((1, local.dim), 0.1 * j) for j in (0, 2)}
    wanted = local.listen(rows, 2, 2, released, heard)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_agent_records", None)
        patch.setattr(local, "draw", None)
        assert local.listen(rows, 2, 2, released, heard) == wanted


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ABLE)
def test_of_others_a_party_has_what_they_told_it_and_no_more(name):
    local, graph = parties_for(name, MAIN)[3], KITE  # agent 3 has one neighbour, agent 2
    rows = local._unpack(played(name, MAIN).rows[-1][3])
    baton = local.first_baton() if name in RELAYS else None
    state = step._known(local.algorithm, local._inputs, rows, baton)
    for part, leaf in state._asdict().items():
        if getattr(leaf, "ndim", 1) == 1:
            continue
        others = np.asarray(leaf)[:3]
        if part in local.algorithm.heard:
            assert not others[:2].any() and np.isfinite(others[2]).all()
        else:
            assert np.isnan(others).all()
    assert graph.neighbours(3).tolist() == [2]


@pytest.mark.parametrize("name", ABLE)
def test_messages_are_finite_float64_of_the_size_announced(name):
    local, seen = parties_for(name, MAIN)[0], played(name, MAIN)
    shape = (local.vectors, local.dim)
    for sent in seen.sent:
        for message in [sent] if name in RELAYS else sent:
            assert message.shape == shape and message.dtype == np.float64 and np.isfinite(message).all()


def test_u_is_the_sum_of_the_prices_at_every_hop():
    parties, seen = parties_for("recal", MAIN), played("recal", MAIN)
    for baton, rows in zip(seen.sent, seen.rows, strict=True):
        prices = [local._unpack(mine)[1][0] for local, mine in zip(parties, rows, strict=True)]
        np.testing.assert_allclose(np.sum(prices, axis=0), baton[0], atol=1e-14)


@pytest.mark.parametrize("name", ["recal", "nids"])
def test_noise_is_drawn_anew_at_every_call(name):
    _, own, graph, plan = plan_for(name, MAIN)
    generator = np.random.default_rng(0)
    local = LocalParty(
        plan, graph, 0, own[0], lambda value, scale, *_: value + scale * generator.normal(size=value.shape)
    )
    if name == "recal":
        results = [local.relay(local.begin(), local.first_baton(), 0, 0) for _ in range(2)]
    else:
        results = [local.speak(local.begin(), 0, 0) for _ in range(2)]
    assert (results[0][1] != results[1][1]).any() and results[0][0] is not results[1][0]


# -- what is refused


@pytest.mark.parametrize("name", ["recal", "pg-extra"])
def test_rows_come_back_as_they_were_packed_and_other_lengths_are_refused(name):
    local, rows = parties_for(name, MAIN)[2], played(name, MAIN).rows[-1][2]
    assert local._pack(local._unpack(rows)) == rows
    assert len(rows) == len(local.begin()) and rows != local.begin()
    for wrong in (rows[:-8], rows + bytes(8), b""):
        with pytest.raises(InputError, match=f"rows have {len(wrong)} bytes; they must have {len(rows)}"):
            local._unpack(wrong)


def test_a_baton_that_is_none_is_refused():
    local = parties_for("recal", MAIN)[0]
    baton = local.first_baton()
    for wrong in (baton[0], baton[:, :-1], baton.astype(np.float32), np.full_like(baton, np.nan)):
        with pytest.raises(InputError, match="a baton has shape"):
            local.relay(local.begin(), wrong, 0, 0)
    with pytest.raises(InputError, match="an ending has shape"):
        local.answer(baton[:1])


def test_a_round_needs_all_neighbours_and_nobody_else():
    local = parties_for("nids", MAIN)[3]
    released, message = local.speak(local.begin(), 0, 0)
    for wrong in ({}, {0: message}, {2: message, 0: message}):
        with pytest.raises(InputError, match=r"party 3 needs one of each neighbour, \[2\]"):
            local.listen(local.begin(), 0, 0, released, wrong)
    with pytest.raises(InputError, match="a message of party 2"):
        local.listen(local.begin(), 0, 0, released, {2: message[0]})
    with pytest.raises(InputError, match="a released gradient"):
        local.listen(local.begin(), 0, 0, released[:-1], {2: message})


def test_an_activation_that_is_not_planned_is_refused():
    local = parties_for("recal", MAIN)[0]
    for activation in (-1, local.plan.activations):
        with pytest.raises(PrivacyError, match="the plan has noise for 7"):
            local.relay(local.begin(), local.first_baton(), 0, activation)


def test_calls_of_the_other_kind_are_refused():
    relay, rounds = parties_for("recal", MAIN)[0], parties_for("nids", MAIN)[0]
    for call in (lambda: relay.speak(relay.begin(), 0, 0), lambda: relay.share(relay.begin())):
        with pytest.raises(InputError, match="recal has kind 'relay', not 'rounds'; call first_baton and relay"):
            call()
    for call in (rounds.first_baton, lambda: rounds.relay(rounds.begin(), np.zeros((1, rounds.dim)), 0, 0)):
        with pytest.raises(InputError, match="nids has kind 'rounds', not 'relay'; call speak"):
            call()


def test_a_party_takes_what_was_planned_and_nothing_else():
    problem, own, graph, plan = plan_for("recal", MAIN)
    draw = draw_of(0, 4, True)
    for records in (own[1], problem):
        with pytest.raises(InputError, match="Pass all of party 0's own records"):
            LocalParty(plan, graph, 0, records, draw)
    with pytest.raises(InputError, match="party 4 of kite"):
        LocalParty(plan, graph, 4, own[0], draw)
    with pytest.raises(InputError, match="the graph that was planned for"):
        LocalParty(plan, rd.ring(4), 0, own[0], draw)
    with pytest.raises(PrivacyError, match="Plan with a budget"):
        LocalParty(replace(plan, mechanism=None), graph, 0, own[0], draw)
    with pytest.raises(PrivacyError, match="Plan with a budget"):
        LocalParty(replace(plan, sensitivity=0.9 * plan.sensitivity), graph, 0, own[0], draw)
    least = 2.0 * plan.facts.clip / plan.facts.sizes  # in real numbers: rounding adds to it
    assert (plan.sensitivity > least).all()
    for short in (least, np.nextafter(plan.sensitivity, 0.0)):
        with pytest.raises(PrivacyError, match="with rounding. Plan with a budget"):
            LocalParty(replace(plan, sensitivity=short), graph, 0, own[0], draw)
    with pytest.raises(PrivacyError, match="releases of party 0 without noise"):
        LocalParty(replace(plan, scales=0.0 * plan.scales), graph, 0, own[0], draw)
    with pytest.raises(InputError, match="d-admm cannot run"):
        LocalParty(replace(plan, algorithm=ALGORITHMS["d-admm"]), graph, 0, own[0], draw)


def test_a_draw_of_another_shape_is_refused():
    _, own, graph, plan = plan_for("recal", MAIN)
    local = LocalParty(plan, graph, 0, own[0], lambda value, *_: value[:-1])
    with pytest.raises(InputError, match="a draw has shape"):
        local.relay(local.begin(), local.first_baton(), 0, 0)
