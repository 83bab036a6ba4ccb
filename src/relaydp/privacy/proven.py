"""The numerical conditions of the proof for secret noise. The proof is in `secret`, with its formulas; this part does
not need JAX."""

from __future__ import annotations

from relaydp.errors import PrivacyError
from relaydp.privacy.budget import check_floor

K = 40  # noise has a scale of 2^K steps: fine enough for (2) and (6), and 2^22 scales fit in 2^62 steps
SPARE = 2.0**-30  # of the scale: it covers (7), and is negligible
EPSILON_CEILING = 1000.0  # the largest epsilon for which (8) is proven


def slack(dim: int, releases: int) -> float:
    """tau of (6): the largest difference, in logarithms, between exact noise and rounded Gaussian noise over so many
    releases.

    >>> slack(3072, 1000) < 1e-18
    True
    """
    return releases * (dim + 2700.0) / (9.0 * 4.0**K)


def check_promise(epsilon: float, delta: float, dim: int, releases: int) -> None:
    """Raise unless (8) holds, that is, unless this noise has the (epsilon, delta) guarantee of Gaussian noise."""
    check_floor(delta)
    if not epsilon <= EPSILON_CEILING:
        raise PrivacyError(
            f"epsilon={epsilon!r}; the proof for secret noise goes up to {EPSILON_CEILING:g}, which hides nothing. "
            "Choose a smaller one: 10 is weak already."
        )
    tau, most = slack(dim, releases), SPARE / 12 * min(1.0, epsilon)
    if not tau <= most:
        raise PrivacyError(
            f"the run has {releases} releases in {dim} dimensions at epsilon={epsilon!r}; the noise is exact enough "
            f"for {int(releases * most / tau)} of them. Plan for fewer activations, or a larger epsilon."
        )
