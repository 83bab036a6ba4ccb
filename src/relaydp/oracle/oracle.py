"""The oracle: the one place where an algorithm's question meets the records, and where the noise is added.

    g~_i(y) = (1/m_i) sum_j clip_c( grad loss_ij(y) ) + N(0, s^2 I) + l2 y

Everything an algorithm does with g~ is post-processing. Without a mechanism nothing is clipped and s = 0.

An oracle is made for one turn and answers once. A second question in the same turn is refused, because the same noise
would be in both answers and would cancel. The turn says whose records are asked, the noise and its scale. If the turn's
agent does not act, the answer is 0 and nothing is charged.

Where parties are seen in sums only, the oracle gives whole numbers to be added up modulo 2^64, with the party's share
of the noise (`privacy.trust`), and opens the sum of a lap:

    v_i = round( (1/m_i) sum_j clip_c( grad loss_ij(y) ) / unit ) + Z_i,      unit sum_i v_i / n + l2 y

There are three kinds of oracle, and a run has one of them. The gradient oracle is above. The one for the sufficient
statistics of least squares is in `oracle.statistics`. The exact oracle,

    argmin f_i(x) + [r(x)] + <p + e, x> + kappa/2 ||x - v||^2,

has noise e in the objective. That mechanism exists in simulations only (`privacy.objective` computes its cost). Without
privacy, e = 0. With noise on gradients the exact oracle is closed; with noise in the objective the gradient oracle is.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array, Float, Int

from relaydp.algorithm import Oracle, Setting, Statistics, Turn
from relaydp.algorithm.base import OBJECTIVE, Sums
from relaydp.errors import PrivacyError
from relaydp.graph import Network
from relaydp.oracle.argmin import find_minimiser
from relaydp.oracle.statistics import PlacedUnits, as_numbers, exact_statistics, from_numbers, with_public_parts
from relaydp.privacy.mechanism import perturbation, release
from relaydp.privacy.secret import release_secret_traced, share_secret_traced, share_simulated
from relaydp.problem import AgentRecords
from relaydp.problem.loss import LEAST_SQUARES
from relaydp.problem.problem import Terms


class Spectra(NamedTuple):
    """Least squares solved once for every kappa: H_i = Q_i diag(h_i) Q_i' + l2 (I - Q_i Q_i'), and b_i = A_i'y / m_i.

    Where there are fewer records than coefficients Q_i spans the records, and all the rest has the ridge's curvature.
    """

    values: Float[Array, "agents rank"]  # h_i, with the ridge
    vectors: Float[Array, "agents dim rank"]  # Q_i
    moments: Float[Array, "agents dim"]  # b_i
    rest: Float[Array, ""]  # l2

    def solve(self, i: Any, p: Array, kappa: Array, v: Array) -> Array:
        """argmin 1/2 x'H_i x - b_i'x + <p, x> + kappa/2 ||x - v||^2 for agent i, or for all with i = slice(None)."""
        h, Q = self.values[i], self.vectors[i]
        right = self.moments[i] - p + kappa[..., None] * v
        turned = jnp.einsum("...kj,...k->...j", Q, right)
        if Q.shape[-1] == Q.shape[-2]:
            return jnp.einsum("...kj,...j->...k", Q, turned / (h + kappa[..., None]))
        beside = self.rest + kappa[..., None]
        bent = turned / (h + kappa[..., None]) - turned / beside
        return right / beside + jnp.einsum("...kj,...j->...k", Q, bent)


class Exact(NamedTuple):
    """What opens the exact oracle: the L_i for an iterative argmin, and for least squares the spectra."""

    smoothness: Float[Array, " agents"]
    spectra: Spectra | None


class Once:
    """Lets one question of a turn through, and only where it is computed as often as it is charged: once.

    A step is traced once, however often it runs. What it asks in its own body is asked once a turn. What it asks in a
    loop or a map of its own is traced once and computed many times, so that it is refused too: there JAX traces under
    another trace than the step's. `setting.when` is the one branch that may ask.
    """

    def __init__(self) -> None:
        self._asked = False
        self._traces = [get_opaque_trace_state()]
        self._lock = Lock()  # a step may start threads, and two of them ask at a time

    def ask(self) -> None:
        with self._lock:
            if self._asked:
                raise PrivacyError(
                    "an algorithm asked the records twice in one turn; one release per agent and activation is "
                    "charged, and a second one would carry the same noise. Ask once, and use the answer again."
                )
            if not self._here():
                raise PrivacyError(
                    "an algorithm asked the records inside a loop, a map or a transformation of its own, where one "
                    "question is computed many times; one release per agent and activation is charged. Ask in the "
                    "body of `step`, or in `setting.when`."
                )
            self._asked = True

    def _here(self) -> bool:
        return any(trace == get_opaque_trace_state() for trace in self._traces)

    def within(self, act: Callable[[], Any]) -> Callable[[], Any]:
        """`act` as a branch: it may ask where it stands if `setting.when` is called where one may ask."""
        if not self._here():
            return act

        def branch() -> Any:
            self._traces.append(get_opaque_trace_state())
            try:
                return act()
            finally:
                self._traces.pop()

        return branch


class _Closed(Once):
    """Before the first turn: nothing is charged yet."""

    def ask(self) -> None:
        raise PrivacyError("an algorithm's init asked the records, which nobody is charged for. Ask in `step`.")


def one_question(turn: Turn | None) -> Once:
    """What lets one question of this turn through; None is before the first turn, where `init` may ask nothing."""
    return _Closed() if turn is None else Once()


def check_points(agents: int, single: bool, draws: Array | None, *points: Array) -> None:
    """Refuse a question at more or fewer points than one release covers: one per agent that is asked."""
    for shape in map(np.shape, points):
        drawn = shape if draws is None else draws.shape  # one for each coordinate
        if not shape or shape[:-1] != (() if single else (agents,)) or shape != drawn:
            asked, needed = ("one holder", "(dim,)") if single else ("all agents", f"({agents}, dim)")
            raise PrivacyError(
                f"an algorithm asked the oracle of {asked} with an array of shape {shape}; one release is at one "
                f"point per agent, so that it needs {needed}, dim the length of x."
            )


NO_NETWORK = Network()
LESS = 1e-12  # of a planned kappa, for rounding: what it moves of epsilon is within a budget's margin
DEAR = 2**14  # numbers that a gradient reads


def _both(acts: Array, act: Callable[[], Any], relay: Callable[[], Any]) -> Any:
    # lax.cond with a batched predicate would copy all records for every run of the batch
    return jax.tree.map(lambda a, b: jnp.where(acts, a, b), act(), relay())


# McCabe counts the functions inside as branches; apart, each would take all that they share as arguments.
def make_oracle(  # noqa: C901
    agent_records: AgentRecords,
    terms: Terms,
    clip: Float[Array, ""] | None,
    network: Network = NO_NETWORK,
    variant: str | None = None,
    batched: bool = False,
    exact: Exact | None = None,
    units: PlacedUnits | None = None,
    parties: Float[Array, ""] | None = None,
) -> Oracle:
    """For every turn, all that a step may use: the oracles and the prox, nothing else of the problem.

    `exact` opens the exact oracle. `units` opens the one for statistics under noise, and shuts all others. So does
    `parties`, their number, where they are seen in sums only.
    """
    agents = agent_records.size.shape[0]
    ridge = 0.0 if terms.free else terms.l2  # what it adds to the least curvature: nothing along a free intercept
    # clip and noise belong together: without a clip there is nothing to protect, and no draw to pay for. The published
    # mechanism puts its noise elsewhere.
    noisy = clip is not None and variant is None
    exact = None if noisy else exact
    shut = noisy and units is not None
    # on an accelerator a branch waits for the host; a gradient costs less, an exact minimiser more
    together = batched or (exact is None and jax.default_backend() != "cpu")
    either = _both if together else jax.lax.cond

    def search(i: Array, p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
        def slope(x: Array) -> Array:
            return agent_records.gradient(i, x, None) + terms.ridge_gradient(x) + p + kappa * (x - v)

        L = _open(exact).smoothness[i]
        return find_minimiser(slope, terms.prox if with_r else None, v, L + kappa, ridge + kappa, _dear(agent_records))

    def searches(p: Array, kappa: Array, v: Array, with_r: bool) -> Array:
        if agent_records.by_passes:  # each agent's search takes the passes that it needs, and stays in cache
            each = jnp.arange(agents, dtype=jnp.int32)
            return jax.lax.map(lambda i: search(i, p[i], kappa[i], v[i], with_r), each)

        def slope(xs: Array) -> Array:
            own = jax.vmap(terms.ridge_gradient)(xs)
            return agent_records.gradients(xs, None) + own + p + kappa[:, None] * (xs - v)

        prox = jax.vmap(terms.prox) if with_r else None
        return find_minimiser(slope, prox, v, _open(exact).smoothness + kappa, ridge + kappa, _dear(agent_records))

    def oracle(turn: Turn | None) -> Setting:  # noqa: C901 (as above)
        once = one_question(turn)
        now: Any = turn

        def check_shape(single: bool, *points: Array) -> None:
            # a turn's noise is for its holder or for all agents, and broadcasting would make one of the other
            if (noisy or variant == OBJECTIVE) and (jnp.ndim(now.acts) == 0) != single:
                asked, other = ("one holder", "all agents") if single else ("all agents", "one holder")
                raise PrivacyError(
                    f"an algorithm asked the oracle of {asked} in a turn of {other}, whose noise is for {other}. "
                    "Ask `gradient` or `argmin` in a relay, `gradients` or `argmins` in rounds."
                )
            check_points(agents, single, now.draws, *points)

        def privatise(value: Array) -> Array:
            if not noisy:
                return value
            scale = now.scale if value.ndim == 1 else now.scale[:, None]
            if now.draws is not None:
                return release_secret_traced(value, scale, now.draws)
            return release(value, scale, now.key)

        def perturbed(p: Array) -> Array:
            if variant != OBJECTIVE:
                return p
            return p + perturbation(p.shape, now.scale, now.key)

        def covered(answer: Array, kappa: Array) -> Array:
            """The answer, and no number for an agent whose question the price does not cover.

            The price is that of the planned kappa, which is public: with less, a record bends more. Compiled code
            cannot raise: no number ends the run.
            """
            if variant != OBJECTIVE or now.kappa is None:
                return answer  # the published mechanism holds nobody to a kappa
            fine = kappa >= now.kappa * (1.0 - LESS)
            return jnp.where(fine[..., None], answer, jnp.nan)

        def charged(answer: Array) -> Array:
            # nobody pays for the answer of an agent that does not act
            return jnp.where(now.acts if answer.ndim == 1 else now.acts[:, None], answer, 0.0)

        def share(y: Float[Array, " dim"]) -> Int[Array, " dim"]:
            once.ask()
            check_shape(True, y)
            value = agent_records.gradient(now.holder, y, clip)
            if now.draws is not None:
                added = share_secret_traced(value, now.unit, now.draws, agents)
            else:
                added = share_simulated(value, now.unit, now.scale, now.key, agents)
            return jnp.where(now.acts, added, jnp.zeros_like(added))

        def opened(total: Int[Array, " dim"], y: Float[Array, " dim"]) -> Float[Array, " dim"]:
            return total.astype(y.dtype) * (now.unit / parties) + terms.ridge_gradient(y)

        def gradient(y: Float[Array, " dim"]) -> Float[Array, " dim"]:
            once.ask()
            _check_gradient(variant, shut, parties)
            check_shape(True, y)
            return charged(privatise(agent_records.gradient(now.holder, y, clip)) + terms.ridge_gradient(y))

        def gradients(ys: Float[Array, "agents dim"]) -> Float[Array, "agents dim"]:
            once.ask()
            _check_gradient(variant, shut, parties)
            check_shape(False, ys)
            return charged(privatise(agent_records.gradients(ys, clip)) + jax.vmap(terms.ridge_gradient)(ys))

        def argmin(
            p: Float[Array, " dim"], kappa: Float[Array, ""], v: Float[Array, " dim"], with_r: bool
        ) -> Float[Array, " dim"]:
            once.ask()
            check_shape(True, p, v)
            spectra, i, noised = _open(exact).spectra, now.holder, perturbed(p)
            found = search(i, noised, kappa, v, with_r) if spectra is None else spectra.solve(i, noised, kappa, v)
            return charged(covered(found, kappa))

        def argmins(
            p: Float[Array, "agents dim"], kappa: Float[Array, " agents"], v: Float[Array, "agents dim"], with_r: bool
        ) -> Float[Array, "agents dim"]:
            once.ask()
            check_shape(False, p, v)
            spectra, noised, every = _open(exact).spectra, perturbed(p), slice(None)
            found = searches(noised, kappa, v, with_r) if spectra is None else spectra.solve(every, noised, kappa, v)
            return charged(covered(found, kappa))

        def statistics() -> Statistics:
            once.ask()
            _check_statistics(noisy, units, variant, agent_records, now)
            own = exact_statistics(agent_records, now.holder, units.label if noisy and units is not None else None)
            spread = (jnp.zeros(()), jnp.zeros(()))
            if noisy and units is not None:
                numbers = as_numbers(*own, units)
                _check_numbers(numbers, now.draws)
                own = from_numbers(privatise(numbers), units, own[1].shape[0])
                spread = (now.scale / units.matrix, now.scale / units.vector)
            told = with_public_parts(*own, spread, terms, agent_records.intercept)
            return jax.tree.map(lambda part: jnp.where(now.acts, part, 0.0), told)  # as `charged`

        def when(acts: Array, act: Callable[[], Any], relay: Callable[[], Any]) -> Any:
            return either(acts, once.within(act), relay)

        sums = None if parties is None else Sums(share, opened)
        oracles = (gradient, gradients, argmin, argmins)
        return Setting(agents, *oracles, terms.prox, when, network, variant, statistics=statistics, sums=sums)

    return oracle


def seen_by_step(turn: Turn, variant: str | None) -> Turn:
    """The turn as a step sees it: without the noise, unless the published mechanism leaves it to the step to add it."""
    return turn if variant not in (None, OBJECTIVE) else turn._replace(key=None, draws=None)


def _dear(agent_records: AgentRecords) -> bool:
    """Whether a gradient costs more than all that the exact argmin may do to save one."""
    numbers = (
        agent_records.rows * agent_records.X.shape[1]
        if agent_records.gram is None
        else agent_records.gram.hessian.shape[-1] ** 2
    )
    return numbers >= DEAR


def _check_gradient(variant: str | None, shut: bool, parties: Array | None) -> None:
    if parties is not None:
        raise PrivacyError(
            "an algorithm asked for a gradient in a run whose parties are seen in sums only: it would carry a share of "
            "the noise, which is too little for it. Ask `setting.sums.share`, or run it without collusion=."
        )
    if shut:
        raise PrivacyError(
            "an algorithm asked for a gradient in a run whose noise is for sufficient statistics. Ask `statistics`, or "
            "leave data='statistics' out of the algorithm."
        )
    if variant == OBJECTIVE:
        raise PrivacyError(
            "an algorithm asked for a gradient under mechanism 'objective', where the noise is in the objective and a "
            "gradient would have none. Ask `argmin`, or use a mechanism with noise on gradients."
        )


def _check_statistics(
    noisy: bool, units: PlacedUnits | None, variant: str | None, agent_records: AgentRecords, turn: Turn
) -> None:
    if agent_records.loss is not LEAST_SQUARES:
        raise PrivacyError(
            f"an algorithm asked for sufficient statistics, and the {agent_records.loss.name} loss has none; needed "
            "least squares. Ask `gradient`."
        )
    if variant is not None or (noisy and units is None):
        raise PrivacyError(
            "an algorithm asked for sufficient statistics in a run whose noise is for something else. Ask for what it "
            "is for, or give the algorithm data='statistics'."
        )
    if jnp.ndim(turn.acts) != 0:
        raise PrivacyError(
            "an algorithm asked for one holder's sufficient statistics in a turn of all agents. Ask them in a relay."
        )


def _check_numbers(numbers: Array, draws: Array | None) -> None:
    """Refuse to hide statistics with noise for another number of numbers."""
    if draws is not None and draws.shape != numbers.shape:
        raise PrivacyError(
            f"{numbers.shape[0]} numbers are to be released and there are draws of shape {draws.shape}; needed one "
            "for each number. Draw as many as the plan's `drawn` says."
        )


def _open(exact: Exact | None) -> Exact:
    if exact is None:
        raise PrivacyError("the exact oracle is closed in a private run; use the algorithm's linearised form.")
    return exact
