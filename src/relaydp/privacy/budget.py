"""The privacy guarantee that a user asks for."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import check_delta, check_epsilon, rho_for

PRICED = ("gradient", "objective")  # mechanisms that are planned from public facts, and whose cost has a proof
SOUND = ("gradient",)  # whose proof is about float64 draws, not real numbers: no other run gets an epsilon
MARGIN = 1e-11  # part of a budget left unspent, so that rounding never makes epsilon exceed it
# What secret noise can guarantee; privacy/secret.py has the proof.
DELTA_FLOOR, DELTA_CEILING = 1e-30, 0.5


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta)-differential privacy for every record of every agent, over the whole run.

    Adjacency: replace one record of one agent. Any conclusion from all batons ever sent has nearly the same probability
    if that record is another one: at most e^epsilon times as large, plus delta.

    Args:
        epsilon: How much may leak: 0.1 is strong, 1 usual, 10 weak.
        delta: The chance that the promise fails; well below 1/(number of records).
        allow_large_delta: Make a promise with a delta of 1/m or more all the same, where m is the records of an agent.
            Simulations promise nothing and may have any delta between 0 and 1. Default: False.

    Attributes:
        epsilon: As given, as a float.
        delta: As given, as a float.
        allow_large_delta: As given. Two budgets that differ in it alone are equal.
        rho: The zCDP that Gaussian releases may cost in all. Calibrate noise with this one.
        rho_paper: The same by the paper's conversion: smaller, hence more noise for the same promise.

    Raises:
        PrivacyError: epsilon is not a finite number above 0, or delta is not strictly between 0 and 1.

    Example:
        >>> import relaydp as rd
        >>> budget = rd.Budget(epsilon=1, delta=1e-5)
        >>> budget
        Budget(epsilon=1.0, delta=1e-05)
        >>> print(budget)
        (1, 1e-05)-DP: rho 0.03593 exact, 0.02082 by the paper's conversion
    """

    epsilon: float
    delta: float
    allow_large_delta: bool = field(default=False, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))

    @property
    def rho(self) -> float:
        """The zCDP that Gaussian releases may cost in all. Calibrate noise with this one."""
        return rho_for(self.epsilon, self.delta)

    @property
    def rho_paper(self) -> float:
        """The same by the paper's conversion: smaller, hence more noise for the same promise."""
        return rho_for(self.epsilon, self.delta, "paper")

    def __str__(self) -> str:
        return (
            f"({self.epsilon:g}, {self.delta:g})-DP: rho {self.rho:.4g} exact, "
            f"{self.rho_paper:.4g} by the paper's conversion"
        )


def check_floor(delta: float) -> None:
    """Refuse a delta that our noise cannot guarantee."""
    if not DELTA_FLOOR <= delta <= DELTA_CEILING:
        raise PrivacyError(
            f"delta={delta!r}; with secret noise it must be from {DELTA_FLOOR:g} to {DELTA_CEILING:g}, because the "
            "noise is only as good as the operating system's generator. 1e-5 is usual up to some ten thousand records."
        )


def check_records(budget: Budget, sizes: ArrayLike) -> None:
    """Refuse a delta of 1/m or more for an agent with m records, unless `allow_large_delta` is set.

    An agent that picks one of its m records at random and publishes it whole is (0, 1/m)-DP: a promise with such a
    delta means nothing. It holds for every agent, so the one with the most records decides.

    >>> check_records(Budget(1, 0.019), [40, 50])
    >>> check_records(Budget(1, 0.02, allow_large_delta=True), [40, 50])
    """
    check_floor(budget.delta)
    most = int(np.max(np.asarray(sizes)))
    if budget.delta * most >= 1.0 and not budget.allow_large_delta:
        raise PrivacyError(
            f"delta={budget.delta!r} for an agent with {most} records; it must be less than 1/{most} = {1 / most:.3g}, "
            "because an agent that publishes one whole record, picked at random, already satisfies that delta. Pass a "
            f"smaller one, such as {_well_below(most):g}. To use this one all the same, pass Budget(epsilon, delta, "
            "allow_large_delta=True), or allow_large_delta = true in [run] of a TOML file."
        )


def _well_below(records: int) -> float:
    """1e-5, or a power of ten that is a tenth of 1/records or less."""
    return min(1e-5, 10.0 ** -(len(str(records)) + 1))
