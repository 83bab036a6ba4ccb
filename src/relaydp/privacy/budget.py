"""The promise a user asks for."""

from dataclasses import dataclass

from relaydp.privacy.accountant import check_delta, check_epsilon, rho_for

SOUND = ("gradient", "objective")  # mechanisms with a proof in docs/privacy.md; no other run gets an epsilon
MARGIN = 1e-11  # of a budget left unspent, so that rounding never carries epsilon past it


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta)-differential privacy for every record of every agent, over the whole run.

    Adjacency: replace one record of one agent. Whatever anybody concludes from all batons ever sent, they
    would have concluded with nearly the same probability had that record been another: e^epsilon times, plus
    delta.

        epsilon  how much may leak: 0.1 is strong, 1 usual, 10 weak.
        delta    the chance that the promise fails; well below 1/(number of records).

    >>> budget = Budget(epsilon=1, delta=1e-5)
    >>> budget
    Budget(epsilon=1.0, delta=1e-05)
    >>> print(budget)
    (1, 1e-05)-DP: rho 0.03593 exact, 0.02082 by the paper's conversion
    """

    epsilon: float
    delta: float

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
