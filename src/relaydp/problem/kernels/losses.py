"""The mean loss, or the share of right labels, at many points at once: one read of an agent's records for all of them.

The scores are `gradient_batch`'s (1); what follows is a row's loss at each point, added up. Logistic losses are
logarithms of products, taken FOLDED records at a time:

    sum_j log(1 + e^-t_j) = sum_j max(-t_j, 0) + log prod_j (1 + e^-|t_j|)        t_j = y_j z_j

Only `dispatch` imports this, when something large is first measured.
"""

# pyright: reportCallIssue=false
# (an intrinsic is called without the typing context that it is defined with)

import math

from relaydp.problem.kernels.gradient_batch import (
    GROUP,
    LANES,
    ROWS,
    STRIPES,
    add_stripes,
    begin,
    panels_of,
    rows_of,
    score_rows,
)
from relaydp.problem.kernels.native import (
    DENSE,
    F32,
    F64,
    HELPERS,
    LABELS,
    LOGISTIC,
    LOSS,
    RIGHT,
    SHRINK,
    THRESHOLD,
    U8,
    VALUES,
    byte,
    compiled,
    double,
    dtype_of,
    exact,
    exponential,
    get,
    helpers,
    is_question,
    joined,
    leave,
    numbers,
    records,
    result_of,
    shape,
    share_out,
    single,
    size_of,
    work,
)

DIGEST = "63bab7659201"  # of native.py and gradient_batch.py
FOLDED = 512  # records: the product of so many numbers from 1 to 2 is one that a double holds


# ---------------------------------------------------------------- rows


@joined
def logistic_values(z, width, y, shrink, bias, level, factor):
    for n in range(width):
        t = y * (shrink * z[n] + bias[n])
        level[n] += -t if t < 0.0 else 0.0
        factor[n] *= 1.0 + exponential(t if t < 0.0 else -t)


@joined
def linear_values(z, width, y, shrink, bias, threshold, level):
    for n in range(width):
        t = shrink * z[n] + bias[n] - y
        t = -t if t < 0.0 else t
        inner = threshold if t > threshold else t
        level[n] += 0.5 * inner * inner + (inner * (t - inner) if t > inner else 0.0)


@exact
def right_values(z, width, y, shrink, bias, level):
    """A label that is neither -1 nor +1 is never right."""
    if abs(y) == 1.0:
        for n in range(width):
            level[n] += 1.0 if (shrink * z[n] + bias[n] > 0.0) == (y > 0.0) else 0.0


@exact
def fold(level, factor, width):
    for n in range(width):
        level[n] += math.log(factor[n])
        factor[n] = 1.0


@exact
def value_part(job, X, part):
    m, q = X.shape
    group = get(job, GROUP)
    many, bias_at, w_at, level_at = panels_of(job, q, part)
    factor_at = level_at + 8 * group * LANES  # where a gradient has its totals
    tile_at = factor_at + 8 * group * LANES * q
    width = many * LANES
    bias, level, factor = numbers(bias_at, width), numbers(level_at, width), numbers(factor_at, width)
    y, shrink = numbers(get(job, LABELS), m), numbers(get(job, SHRINK), m)
    threshold, dense, loss = numbers(get(job, THRESHOLD), m)[0], get(job, DENSE) != 0, get(job, LOSS)
    for n in range(width):
        level[n], factor[n] = 0.0, 1.0
    j, last = rows_of(job, m, part)
    folded = j
    while j < last:
        rows = min(ROWS, last - j)
        _, z_at, _ = score_rows(X, j, rows, many, group, w_at, tile_at)
        for r in range(rows):
            z = numbers(z_at + 8 * r * group * LANES, width)
            shorter = 1.0 if dense else shrink[j + r]
            if loss == LOGISTIC:
                logistic_values(z, width, y[j + r], shorter, bias, level, factor)
            elif loss == RIGHT:
                right_values(z, width, y[j + r], shorter, bias, level)
            else:
                linear_values(z, width, y[j + r], shorter, bias, threshold, level)
        j += rows
        if j - folded > FOLDED:
            fold(level, factor, width)
            folded = j
    fold(level, factor, width)


# ---------------------------------------------------------------- jobs


def help_byte(job):
    return work(job, records(job, byte), value_part)


def help_single(job):
    return work(job, records(job, single), value_part)


def help_double(job):
    return work(job, records(job, double), value_part)


HELP = {"uint8": (U8, help_byte), "float32": (F32, help_single), "float64": (F64, help_double)}


def handle(frame):
    """XLA calls this; x has one point a row, the result one number for each."""
    if is_question(frame):
        return 0
    m, q, runs = size_of(frame), shape(frame, 0, 1), shape(frame, 8, 0)
    result = numbers(result_of(frame), runs)
    job = begin(frame)
    share_out(frame, job, get(helpers(), VALUES + dtype_of(frame)))

    group, stripes = get(job, GROUP), get(job, STRIPES)
    add_stripes(job, q, group * LANES)
    for n in range(runs):
        p = n // LANES
        _, _, _, first = panels_of(job, q, p // group * stripes)
        result[n] = numbers(first + 8 * (p % group) * LANES, LANES)[n % LANES] / m
    return leave(job)


def handler_for(dtype):
    """The address of `handle`, once it can serve records of this dtype."""
    number, function = HELP[dtype]
    HELPERS[VALUES + number] = compiled(function).address
    return compiled(handle).address
