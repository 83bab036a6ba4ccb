"""Where the baton goes: the simulator's route while everybody answers, and round whoever does not."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaydp as rd
from relaydp.graph import route
from relaydp.network.messages.next_hop import NextHop, route_of
from relaydp.network.records.public_plan import LONGEST_PAUSE

GRAPHS = {
    "ring": rd.ring(6),
    "complete": rd.complete(5),
    "path": rd.path(5),
    "star": rd.star(5),
    "grid": rd.grid(2, 3),
    "tree": rd.from_edges([(0, 1), (1, 2), (1, 3), (3, 4)]),
    "two": rd.path(2),
}
WALKS = ("random", "nonbacktracking", "cyclic", "tour")


def follow(course, graph, start, up=lambda hop, j: True, most=20_000):
    """The hops of a baton that asks neighbours in the course's order; `up` says who answers."""
    made, at, came_from, idle, hops = [0] * graph.agents, start, -1, 0, []
    for hop in range(most):
        acts = course.pace.acts(hop, made[at])
        made[at] += acts
        idle = 0 if acts else idle + 1
        if course.pace.ended(tuple(made), idle):
            return [*hops, (at, at, acts)], made
        answering = [j for j in course.choices(hop, at, came_from, tuple(made)) if up(hop, j)]
        assert all(j in graph.neighbours(at) for j in answering)
        to = answering[0] if answering else None
        if to is None:  # nobody answers: the holder asks again until somebody does
            to = course.choices(hop, at, came_from, tuple(made))[0]
        hops.append((at, to, acts))
        at, came_from = to, at
    raise AssertionError("no end")


NO_CYCLE = ("path", "star", "tree", "two")
PAIRS = [(name, walk) for name in GRAPHS for walk in WALKS if walk != "cyclic" or name not in NO_CYCLE]


@pytest.mark.parametrize(("name", "walk"), PAIRS)
@pytest.mark.parametrize("seed", [0, 3])
def test_it_is_the_simulators_route_while_everybody_answers(name, walk, seed):
    graph, start, T = GRAPHS[name], 1, 7
    key = jax.random.split(jax.random.key(seed))[0]
    laid_out = route(graph, walk, T, key=key, start=start, rule="plan")
    hops, made = follow(NextHop(graph, walk, seed, start, T, patience=500), graph, start)
    holder, receiver, acts, activation = route_of(hops, graph.agents)
    last = len(hops) - 1  # the laid-out route may relay on to the end of its lap
    assert np.array_equal(holder, laid_out.holder[: last + 1])
    assert np.array_equal(receiver[:last], laid_out.receiver[:last])
    assert np.array_equal(acts, laid_out.acts[: last + 1])
    assert np.array_equal(activation[acts], laid_out.activation[: last + 1][acts])
    assert not laid_out.acts[last + 1 :].any() and made == [T] * graph.agents


def test_a_walk_longer_than_a_block_of_draws_goes_on():
    graph = rd.ring(12)
    key = jax.random.split(jax.random.key(1))[0]
    laid_out = route(graph, "random", 400, key=key, rule="plan")
    assert len(laid_out) > 4096
    hops, _ = follow(NextHop(graph, "random", 1, 0, 400, patience=10_000), graph, 0)
    assert np.array_equal(route_of(hops, 12)[0], laid_out.holder)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ring", "complete", "grid"]),
    st.sampled_from(WALKS),
    st.integers(0, 2**32 - 1),
    st.floats(0.0, 0.6),
)
def test_everybody_acts_as_planned_however_often_neighbours_fail(name, walk, seed, failing):
    """Who answers changes the route, never how often a party acts."""
    graph, draw = GRAPHS[name], np.random.default_rng(seed)
    course = NextHop(graph, walk, seed % 97, 0, 4, patience=10_000)
    hops, made = follow(course, graph, 0, up=lambda hop, j: draw.random() > failing)
    assert made == [4] * graph.agents
    assert route_of(hops, graph.agents)[2].sum() == 4 * graph.agents


@pytest.mark.parametrize("walk", WALKS)
def test_a_party_that_is_away_for_long_is_walked_around_and_caught_up_with(walk):
    graph = rd.ring(6)
    course = NextHop(graph, walk, 0, 0, 5, patience=10_000)
    hops, made = follow(course, graph, 0, up=lambda hop, j: j != 3 or hop > 200)
    assert made == [5] * 6
    before = [at for at, _, acts in hops[:150] if acts]
    assert {0, 1, 2, 4, 5} == set(before), "the others go on meanwhile"


def test_who_never_answers_ends_the_run_after_the_agreed_patience():
    graph = rd.ring(6)
    course = NextHop(graph, "cyclic", 0, 0, 5, patience=60)
    hops, made = follow(course, graph, 0, up=lambda hop, j: j != 3)
    assert made[3] == 0 and [made[j] for j in (0, 1, 2, 4, 5)] == [5] * 5
    assert not any(acts for _, _, acts in hops[-60:])


def test_a_lost_party_is_not_waited_for():
    course = NextHop(rd.ring(4), "cyclic", 0, 0, 2, patience=60)
    assert course.pace.ended((2, 2, 0, 2), 0, lost=frozenset({2}))
    assert not course.pace.ended((2, 1, 0, 2), 0, lost=frozenset({2}))
    assert 2 not in course.choices(1, 1, 0, (1, 0, 0, 0), lost=frozenset({2}))


def test_it_pauses_only_when_nobody_can_act():
    course = NextHop(rd.ring(4), "cyclic", 0, 0, 2, patience=60)
    assert [course.pace.pause(idle) for idle in range(4)] == [0.0] * 4
    assert 0 < course.pace.pause(4) < course.pace.pause(12) <= course.pace.pause(10_000) == LONGEST_PAUSE
