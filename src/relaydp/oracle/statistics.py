"""The oracle's third question: what least squares needs of an agent's records, with noise.

    v~_i = (1/m_i) sum_j w ( S(a_j a_j'), t y_j a_j )  +  N(0, s^2 I)            `privacy.statistics` has S, w and t

It is one release of q (q + 3)/2 numbers. Taking them apart again, and adding the ridge, which is no data, is
post-processing:

    H~_i = S^-1(..)/w + l2 I,     b~_i = (..)/(w t),     f_i(x) = 1/2 x'H_i x - b_i'x + a constant

With an intercept the last entry of A_i'A_i/m_i is 1, whatever the records: it needs no noise, and gets none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from relaydp.algorithm import Statistics
from relaydp.arrays import placed
from relaydp.errors import PrivacyError
from relaydp.privacy.statistics import Units, units_of
from relaydp.problem import AgentRecords, Facts
from relaydp.problem.problem import Terms

ROOT2 = float(np.sqrt(2.0))


class PlacedUnits(NamedTuple):
    """`privacy.statistics.Units` for compiled code."""

    label: Float[Array, ""]
    matrix: Float[Array, ""]
    vector: Float[Array, ""]


def placed_units(facts: Facts) -> PlacedUnits:
    """The units of a plan from public facts."""
    return PlacedUnits(*map(placed, units_from(facts)))


def units_from(facts: Facts) -> Units:
    if facts.squares is None:
        raise PrivacyError(
            "a release of sufficient statistics needs public bounds on records and labels, and a least-squares "
            "problem: pass label_bound= (the largest |label|; larger ones are cut off to it) and record_norm= or "
            "ranges= where the problem is made."
        )
    return units_of(*facts.squares, facts.clip)


def as_numbers(hessian: Float[Array, "dim dim"], moment: Float[Array, " dim"], units: PlacedUnits) -> Array:
    """v of one agent. Only entries on and above the diagonal are read."""
    rows, columns = np.triu_indices(moment.shape[0])
    weight = np.where(rows == columns, 1.0, ROOT2)
    return jnp.concatenate([units.matrix * (weight * hessian[rows, columns]), units.vector * moment])


def from_numbers(numbers: Array, units: PlacedUnits, dim: int) -> tuple[Array, Array]:
    """The symmetric matrix and the vector that `as_numbers` made v of."""
    rows, columns = np.triu_indices(dim)
    weight = np.where(rows == columns, 1.0, ROOT2)
    part = numbers[: len(rows)] / (units.matrix * weight)
    hessian = jnp.zeros((dim, dim), numbers.dtype).at[rows, columns].set(part).at[columns, rows].set(part)
    return hessian, numbers[len(rows) :] / units.vector


def exact_statistics(agent_records: AgentRecords, i: Array, label: Array | None) -> tuple[Array, Array]:
    """A_i'A_i/m_i and A_i'y_i/m_i, without noise; labels are cut off to `label`, if there is one."""
    if label is None and agent_records.gram is not None:
        return agent_records.gram.hessian[i], agent_records.gram.moment[i]
    return agent_records.squares(i, label)


def with_public_parts(
    hessian: Array, moment: Array, spread: tuple[Array, Array], terms: Terms, intercept: bool
) -> Statistics:
    """What the step gets: with the ridge, and where it is public what needs no noise."""
    dim = moment.shape[0]
    if intercept:
        hessian = hessian.at[-1, -1].set(1.0)
    ridge = np.ones(dim)
    ridge[dim - terms.free :] = 0.0
    return Statistics(hessian + terms.l2 * jnp.diag(ridge), moment, jnp.stack(spread))
