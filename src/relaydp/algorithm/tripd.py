"""TriPD-Dist: a primal-dual method with two copies of a dual on every edge, in which agents may skip rounds.

With signs s_ij = +1 for i < j and -1 otherwise, an acting agent i does, for each neighbour j,

    (1)  wb_ij <- (m_ij + m_ji) / 2
    (2)  x_i+  <- prox_{a_i r}( x_i - a_i ( sum_j s_ij wb_ij + grad f_i(x_i) ) )
    (3)  w_ij  <- wb_ij + k s_ij (x_i+ - x_i)
    (4)  m_ij  <- w_ij + k s_ij x_i+                 sent to j, who keeps it until the next one

from w = 0, that is m_ij = k s_ij x_0. w_ij and w_ji, the two ends' copies, agree in the limit. Each agent acts with its
own probability p_i in a round; a_i < 1/(L_i/2 + k d_i), d_i the number of neighbours.
Source: Latafat, Freris and Patrinos 2019, A new randomized block-coordinate primal-dual proximal algorithm for
distributed optimization, arXiv 1706.02882.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm.base import Algorithm, Setting, Turn
from relaydp.algorithm.consensus import Everyone, spread
from relaydp.algorithm.menu import Menu, product, refuse
from relaydp.graph import Graph
from relaydp.problem import Facts

Slots = Float[Array, "agents slots dim"]


class TripdSteps(NamedTuple):
    stepsize: Float[Array, " agents"]  # a_i, each agent's own
    penalty: Float[Array, ""]  # k
    probability: Float[Array, " agents"] = 1.0  # type: ignore[assignment]  # p_i, of acting in a round


class TripdState(NamedTuple):
    x: Everyone  # never leaves its agent
    sent: Slots  # m_ij at agent i's slot for j; zero where there is no neighbour


class Edges(NamedTuple):
    """Each agent's m_ij, one for each neighbour."""

    m: Slots


def _signs(setting: Setting, penalty: Float[Array, ""]) -> Float[Array, "agents slots 1"]:
    """k s_ij; zero where there is no neighbour."""
    network = setting.network
    upward = jnp.asarray(network.neighbours) > jnp.arange(setting.agents, dtype=jnp.int32)[:, None]
    return (penalty * jnp.where(network.real, jnp.where(upward, 1.0, -1.0), 0.0))[:, :, None]


def init(setting: Setting, steps: TripdSteps, x0: Float[Array, " dim"]) -> TripdState:
    x = spread(x0, setting.agents)
    return TripdState(x, _signs(setting, steps.penalty) * x[:, None, :])


def step(setting: Setting, steps: TripdSteps, state: TripdState, turn: Turn) -> tuple[TripdState, Edges]:
    """Let the acting agents take one step from their neighbours' last messages, and send new ones.

    Leaves agent i, when it acts: m_ij, to neighbour j. Private when `setting.gradients` is: every m_ij is made of
    gradients that went through it, each asked for once; those of agents that do not act are dropped.
    """
    network, signs = setting.network, _signs(setting, steps.penalty)

    def act() -> TripdState:
        slope = setting.gradients(state.x)
        received = state.sent[network.neighbours, network.back]  # m_ji
        middle = jnp.where(network.real[:, :, None], (state.sent + received) / 2.0, 0.0)  # (1)
        pull = jnp.sum(signs * middle, axis=1) / steps.penalty
        ahead = state.x - steps.stepsize[:, None] * (pull + slope)
        x = jax.vmap(setting.prox)(ahead, steps.stepsize)  # (2)
        sent = middle + signs * (2.0 * x - state.x)[:, None, :]  # (3) and (4)
        if setting.variant is not None:
            noise = jax.random.normal(turn.key, sent.shape, sent.dtype)
            sent = sent + jnp.where(network.real, turn.scale[:, None], 0.0)[:, :, None] * noise
        return TripdState(
            jnp.where(turn.acts[:, None], x, state.x), jnp.where(turn.acts[:, None, None], sent, state.sent)
        )

    state = setting.when(jnp.any(turn.acts), act, lambda: state)
    return state, Edges(state.sent)


def answer(state: TripdState) -> Float[Array, " dim"]:
    return jnp.mean(state.x, axis=0)


def _limit(facts: Facts, graph: Graph, penalty: float) -> np.ndarray:
    return 1.0 / (facts.smoothness / 2.0 + penalty * graph.degree)


def paper_steps(facts: Facts, graph: Graph) -> TripdSteps:
    """k = L/(2 max d_i), a_i at 0.99 of its limit."""
    penalty = float(facts.smoothness.max()) / (2.0 * float(graph.degree.max()))
    return TripdSteps(0.99 * _limit(facts, graph, penalty), penalty)  # type: ignore[arg-type]


def grid(facts: Facts, graph: Graph) -> list[TripdSteps]:
    """k = share L/(2 mean d_i), a_i = length/(L/2 + k d_i) for the largest L."""
    L = float(facts.smoothness.max())
    unit = L / (2.0 * float(graph.degree.mean()))
    rows = product(k=unit * np.geomspace(0.02, 20.0, 18), length=(0.99, 0.8, 0.5, 0.25, 0.12, 0.06, 0.03))
    return [TripdSteps(row["length"] / (L / 2.0 + row["k"] * graph.degree), row["k"]) for row in rows]  # type: ignore[arg-type]


def check(steps: TripdSteps, facts: Facts, graph: Graph) -> None:
    stepsize, limit = np.asarray(steps.stepsize), _limit(facts, graph, float(steps.penalty))
    i = int(np.argmax(stepsize / limit))
    refuse(f"stepsize[{i}]", float(stepsize[i]), float(limit[i]), "1/(L_i/2 + k d_i)")


def claim(facts: Facts, steps: TripdSteps, graph: Graph) -> np.ndarray:
    """2 k a_i D sqrt(d_i) with D = 2c: 2 k a_i D an edge, the d_i messages as one long vector; state held equal."""
    return 4.0 * float(steps.penalty) * np.asarray(steps.stepsize) * facts.clip * np.sqrt(graph.degree)


TRIPD = Algorithm(
    name="tripd-dist",
    title="TriPD-Dist",
    kind="rounds",
    init=init,
    step=step,
    answer=answer,
    menu=Menu(TripdSteps, paper_steps, grid, check, per_agent=("stepsize", "probability"), fixed=("probability",)),
    mechanisms=("gradient", "published"),
    links="slots",
    needs=("neighbours", "real", "back"),
    claim=claim,
)
