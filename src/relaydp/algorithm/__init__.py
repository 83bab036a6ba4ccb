"""Algorithms: one file each, pure init and step, found here by name."""

from collections.abc import Iterable

from relaydp.algorithm.afbs import AFBS
from relaydp.algorithm.base import Algorithm, Baton, Oracle, Setting, Statistics, Turn
from relaydp.algorithm.d_admm import D_ADMM
from relaydp.algorithm.dgd import DGD
from relaydp.algorithm.gradient_tracking import GRADIENT_TRACKING
from relaydp.algorithm.huang import HUANG_RING, HUANG_STAR
from relaydp.algorithm.i_admm import I_ADMM
from relaydp.algorithm.ic_admm import IC_ADMM
from relaydp.algorithm.m_admm import M_ADMM
from relaydp.algorithm.menu import Menu
from relaydp.algorithm.nids import NIDS
from relaydp.algorithm.pg_admm import PG_ADMM
from relaydp.algorithm.pg_extra import PG_EXTRA
from relaydp.algorithm.r_admm import MR_ADMM, R_ADMM
from relaydp.algorithm.recal import RECAL
from relaydp.algorithm.recal_steps import RecalSteps
from relaydp.algorithm.relay_gradient import RELAY_GRADIENT
from relaydp.algorithm.rw_admm import RW_ADMM, RW_ADMM_LINEARISED
from relaydp.algorithm.sufficient_statistics import SUFFICIENT_STATISTICS
from relaydp.algorithm.tripd import TRIPD
from relaydp.algorithm.walkman import WALKMAN, WALKMAN_GRADIENT
from relaydp.errors import choose

_ALL = (
    RELAY_GRADIENT,
    RECAL,
    AFBS,
    PG_EXTRA,
    NIDS,
    D_ADMM,
    M_ADMM,
    R_ADMM,
    MR_ADMM,
    HUANG_STAR,
    HUANG_RING,
    RW_ADMM,
    RW_ADMM_LINEARISED,
    TRIPD,
    IC_ADMM,
    PG_ADMM,
    WALKMAN,
    WALKMAN_GRADIENT,
    I_ADMM,
    DGD,
    GRADIENT_TRACKING,
    SUFFICIENT_STATISTICS,
)
ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ALL}


def algorithm_of_steps(names: Iterable[str]) -> str:
    """What the algorithm "auto" stands for where the user gives steps by these names.

    >>> algorithm_of_steps(["stepsize"]), algorithm_of_steps(["alpha", "beta", "gamma"])
    ('relay-gradient', 'recal')
    """
    given = set(names)
    for method in (RELAY_GRADIENT, SUFFICIENT_STATISTICS):
        if given and given <= set(method.menu.steps._fields):
            return method.name
    return RECAL.name


def algorithms() -> list[str]:
    """List the names of all algorithms that `solve` knows.

    Returns:
        The names in sorted order, as `solve(..., algorithm=name)` takes them.

    Example:
        >>> import relaydp as rd
        >>> "recal" in rd.algorithms(), "pg-extra" in rd.algorithms()
        (True, True)
    """
    return sorted(ALGORITHMS)


def find_algorithm(name: str) -> Algorithm:
    return ALGORITHMS[choose("algorithm", name, ALGORITHMS)]


__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Baton",
    "Oracle",
    "Menu",
    "RecalSteps",
    "Setting",
    "Statistics",
    "Turn",
    "algorithms",
    "find_algorithm",
]
