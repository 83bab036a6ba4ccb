"""The quality of an attack. Only this module takes the true records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import correlate1d
from scipy.optimize import linear_sum_assignment

from relaydp.attack.shared import Reconstruction
from relaydp.attack.threat import Inferred
from relaydp.errors import InputError

SSIM_WINDOW, SSIM_SPREAD = 11, 1.5  # pixels; the Gaussian window of Wang et al. 2004
SSIM_LUMINANCE, SSIM_CONTRAST = 0.01, 0.03  # K1 and K2 there


def relative_errors(inferred: Inferred, truth: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
    """How far each inferred gradient is from the true one: ||found - true|| / ||true||.

    This is for scoring an attack. It needs the records, which no attack gets.

    Args:
        inferred: What `infer` found.
        truth: A function (agent, point) that gives the agent's mean gradient at the point, without the ridge.

    Returns:
        One number per row of `inferred`; NaN where the attack itself says that it is not exact.
    """
    errors = np.full(len(inferred), np.nan)
    for k in np.flatnonzero(inferred.exact.all(axis=1) & inferred.point_exact.all(axis=1)):
        true = np.asarray(truth(int(inferred.agent[k]), inferred.point[k]))
        errors[k] = np.linalg.norm(inferred.gradient[k] - true) / max(np.linalg.norm(true), np.finfo(float).tiny)
    return errors


def gradient_error(found: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> float:
    """||found - true|| / ||true||, all parameters of a model together.

    >>> gradient_error({"W": np.array([3.0, 1.0])}, {"W": np.array([3.0, 0.0])})
    0.3333333333333333
    """
    apart = sum(float(np.sum((np.asarray(found[k]) - np.asarray(truth[k])) ** 2)) for k in truth)
    return float(np.sqrt(apart / sum(float(np.sum(np.asarray(v) ** 2)) for v in truth.values())))


# -- images


@dataclass(frozen=True)
class Score:
    """The error of a reconstruction, image by image in the order of the true records, after the best matching."""

    mse: np.ndarray
    psnr: np.ndarray  # dB
    ssim: np.ndarray  # NaN for records that are not images
    labels: float  # share of labels that are right
    order: np.ndarray  # order[j]: the reconstructed image that was matched with true image j


def score(found: Reconstruction, images: np.ndarray, labels: np.ndarray, low: float = 0.0, high: float = 1.0) -> Score:
    """Compare a reconstruction with the true batch. A gradient does not determine the order of its records, so they are
    matched first."""
    order = match(found.images, images)
    pairs = [(found.images[i], np.asarray(true)) for i, true in zip(order, images, strict=True)]
    similar = [ssim(a, b, low, high) if a.ndim == 3 else np.nan for a, b in pairs]
    return Score(
        mse=np.array([mse(a, b) for a, b in pairs]),
        psnr=np.array([psnr(a, b, low, high) for a, b in pairs]),
        ssim=np.array(similar),
        labels=float(np.mean(found.labels[order] == np.asarray(labels))),
        order=order,
    )


def match(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The one-to-one matching of two batches with the least total squared error: found[order] corresponds to truth."""
    found, truth = _pair(found, truth)
    a, b = found.reshape(len(found), -1), truth.reshape(len(truth), -1)
    cost = np.mean((b[:, None, :] - a[None, :, :]) ** 2, axis=2)
    return linear_sum_assignment(cost)[1]


def mse(a: np.ndarray, b: np.ndarray) -> float:
    """Mean squared error."""
    a, b = _pair(a, b)
    return float(np.mean((a - b) ** 2))


def psnr(a: np.ndarray, b: np.ndarray, low: float = 0.0, high: float = 1.0) -> float:
    """Peak signal to noise ratio, 10 log10(range^2 / mse), in dB; infinite for equal images.

    >>> round(psnr(np.zeros(4), np.full(4, 0.5)), 6)
    6.0206
    """
    error = mse(a, b)
    return float("inf") if error == 0.0 else float(10.0 * np.log10((high - low) ** 2 / error))


def ssim(a: np.ndarray, b: np.ndarray, low: float = 0.0, high: float = 1.0) -> float:
    """Structural similarity of two (height, width, channels) images (Wang, Bovik, Sheikh and Simoncelli 2004).

        (1)  SSIM = mean over windows of  (2 m_a m_b + C1)(2 v_ab + C2) / ((m_a^2 + m_b^2 + C1)(v_a + v_b + C2))

    with m, v the means and (co)variances under an 11 x 11 Gaussian window of spread 1.5, windows inside the image only,
    channels averaged, C = (K range)^2. An image smaller than 11 pixels takes the largest odd window that fits.
    """
    a, b = _pair(a, b)
    if a.ndim != 3:
        raise InputError(f"the images have shape {a.shape}; it must be (height, width, channels). Reshape them.")
    side = min(SSIM_WINDOW, *(size - 1 + size % 2 for size in a.shape[:2]))
    ticks = np.arange(side) - side // 2
    window = np.exp(-0.5 * (ticks / SSIM_SPREAD) ** 2)
    window /= window.sum()

    def mean(x: np.ndarray) -> np.ndarray:
        for axis in (0, 1):
            x = correlate1d(x, window, axis=axis)
        edge = side // 2
        return x[edge : x.shape[0] - edge, edge : x.shape[1] - edge]

    c1, c2 = ((k * (high - low)) ** 2 for k in (SSIM_LUMINANCE, SSIM_CONTRAST))
    ma, mb = mean(a), mean(b)
    va, vb, vab = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    return float(np.mean((2 * ma * mb + c1) * (2 * vab + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))))  # (1)


def _pair(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise InputError(f"the arrays have shapes {a.shape} and {b.shape}; both must have the same shape.")
    return a, b


# -- membership


def membership_advantage(members: np.ndarray, others: np.ndarray) -> float:
    """max over thresholds of (true positive rate - false positive rate) when larger scores mean "member".

    0 is guessing, 1 is certainty (Yeom et al. 2018, arXiv 1709.01604).

    >>> membership_advantage(np.array([3.0, 2.0]), np.array([1.0, 2.5]))
    0.5
    """
    members, others = np.sort(np.asarray(members, dtype=np.float64)), np.sort(np.asarray(others, dtype=np.float64))
    thresholds = np.concatenate([members, others])
    rates = [1.0 - np.searchsorted(scores, thresholds, side="left") / len(scores) for scores in (members, others)]
    return float(max(np.max(rates[0] - rates[1]), 0.0))
