"""Algorithms: one file each, pure init and step, found here by name."""

from relaydp.algorithm.afbs import AFBS
from relaydp.algorithm.base import Algorithm, Baton, Setting, Turn
from relaydp.algorithm.lab import Noise
from relaydp.algorithm.pg_extra import PG_EXTRA
from relaydp.algorithm.recal import RECAL
from relaydp.algorithm.steps import RecalSteps
from relaydp.errors import choose

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (RECAL, AFBS, PG_EXTRA)}


def algorithms() -> list[str]:
    """Names of all algorithms that `solve` knows."""
    return sorted(ALGORITHMS)


def find_algorithm(name: str) -> Algorithm:
    return ALGORITHMS[choose("algorithm", name, ALGORITHMS)]


__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Baton",
    "Noise",
    "RecalSteps",
    "Setting",
    "Turn",
    "algorithms",
    "find_algorithm",
]
