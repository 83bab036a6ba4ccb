"""Objective perturbation: the cost of publishing an exact minimiser of an objective with noise in it.

Agent i publishes x = argmin F(x) + <e, x> with e of density proportional to exp(-|e| / scale) and

    F(x) = (1/m) sum_j loss_j(x) + <p, x> + l2/2 |x|^2 + kappa/2 |x - v|^2        p, v public, loss_j(x) = phi(a_j'x)

    (1)  moved = 2 G / (m scale)                 |grad loss_j| <= G
    (2)  bend  = K / (m (l2 + kappa))            loss_j'' = phi'' a_j a_j', of norm at most K
    (3)  epsilon_0 = moved + ln(1 + bend)

Proof of (3), after Chaudhuri, Monteleoni and Sarwate 2011. F is strictly convex and smooth, so x determines e =
-grad F(x) and the map is one to one; the density of x is that of e times det F''(x). Replace one record. At the same x,
e moves by at most 2 G / m, and its density by a factor of at most e^moved. F'' = C + u u' becomes C + w w' with C the
part that stays, C >= (l2 + kappa) I and |u|^2, |w|^2 <= K / m, so det F'' changes by (1 + u'C^-1 u)/(1 + w'C^-1 w) <=
1 + bend. (Chaudhuri and others take the square of that; loss_j'' >= 0 makes one factor enough.)

Conditions, enforced by the plan: a loss with one output, a bounded slope and a second derivative (logistic); records of
bounded norm; no nonsmooth r in the argmin; l2 counts only without an unpenalised intercept. And x is the exact
minimiser and e has exactly that density, both in real numbers: ours are float64, which (3) does not cover. Hence only
simulations have this noise, and (3) is what their plan would cost.

Published costs of the same noise, for comparison (`published`); G is scaled to the 1 of their papers:

    (4)  Zhang and Zhu 2017, dual perturbation     moved/2 + 2 ln(1 + bend)
    (5)  Zhang, Khalili and Liu 2018               moved/2 + 1.4 bend,   for bend < 1/2

Half of (1) is the change by removing a record, not by replacing it. These constants were not checked against the
printed papers.

A budget: T releases of epsilon_0 are (T epsilon_0)-DP, and (rho + 2 sqrt(rho ln 1/delta), delta)-DP with
rho = T epsilon_0^2/2. The larger epsilon_0 that one of the two allows is taken.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaydp.errors import PrivacyError
from relaydp.privacy.accountant import rho_for

PRICES = ("sound", "zhang-zhu", "zhang-khalili-liu")


def pure_share(epsilon: float, delta: float, releases: int, basic: bool = False) -> float:
    """epsilon_0 of each of `releases` releases that together are (epsilon, delta)-DP; with `basic` they are only added
    up.

    >>> pure_share(1.0, 1e-5, 4)
    0.25
    >>> round(pure_share(1.0, 1e-5, 1000), 4)
    0.0065
    """
    even = epsilon / releases
    return even if basic else max(even, math.sqrt(2.0 * rho_for(epsilon, delta, "paper") / releases))


def bend(curvature: float, sizes: NDArray[np.float64], modulus: NDArray[np.float64]) -> NDArray[np.float64]:
    """(2): `modulus` is l2 + kappa."""
    return curvature / (sizes * modulus)


def objective_scale(
    epsilon: NDArray[np.float64],
    slope: float,
    sizes: NDArray[np.float64],
    bent: NDArray[np.float64],
    price: str = "sound",
) -> NDArray[np.float64]:
    """The scale at which a release costs `epsilon`: (3), (4) or (5) solved for it; inf if no noise is enough.

        slope  G       sizes  m       bent  (2)

    >>> round(float(objective_scale(np.array(1.0), 1.0, np.array(100.0), np.array(math.e**0.5 - 1.0))), 12)
    0.04
    """
    match price:
        case "sound":
            moved, factor = epsilon - np.log1p(bent), 2.0
        case "zhang-zhu":
            moved, factor = epsilon - 2.0 * np.log1p(bent), 1.0
        case "zhang-khalili-liu":
            moved, factor = np.where(bent < 0.5, epsilon - 1.4 * bent, 0.0), 1.0
        case _:
            raise PrivacyError(f"price={price!r}; it must be one of {', '.join(PRICES)}.")
    with np.errstate(divide="ignore"):
        return np.where(moved > 0, factor * slope / (sizes * np.maximum(moved, 0.0)), np.inf)


def objective_price(
    scale: NDArray[np.float64], slope: float, sizes: NDArray[np.float64], bent: NDArray[np.float64]
) -> Any:
    """(3): the cost of a release.

    >>> round(float(objective_price(np.array(0.04), 1.0, np.array(100.0), np.array(math.e**0.5 - 1.0))), 12)
    1.0
    """
    return 2.0 * slope / (sizes * scale) + np.log1p(bent)
