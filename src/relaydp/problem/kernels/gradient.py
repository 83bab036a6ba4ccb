"""The fused gradient in machine code: one read of an agent's records, spread over XLA's own threads.

    z_j      = shrink_j X_j'w + intercept,             w = scale x
    p_j      = s_j min(1, c / (norm_j |s_j|)),         s_j = dphi/dz(z_j, y_j)
    gradient = (1/m) scale sum_j p_j shrink_j X_j,     and (1/m) sum_j p_j for the intercept

Every term is as short as its record's clipped gradient: nothing is added that something else would take off again, for
one record's p_j may be 1e60 times another's, and what cancels takes the others' digits along.

ROWS records at a time come from memory for z_j, up to BLOCK where they are short, and are still in cache for the sum.
Rows make up parts; whichever thread is free takes the next part, and every part has a sum of its own. How rows fall
into parts, and in which order the parts are added, depends on the sizes alone: one core gives the same bits as many.

Only `dispatch` imports this, when a run first needs it. `native` has what it is made with.
"""

# pyright: reportCallIssue=false
# (an intrinsic is called without the typing context that it is defined with)

import math

from relaydp.problem.kernels.native import (
    CLIP,
    DENSE,
    F32,
    F64,
    FAR,
    HEAD,
    HELPERS,
    LABELS,
    LOGISTIC,
    LOSS,
    NORM,
    SHARE,
    SHRINK,
    SINGLE,
    THRESHOLD,
    U8,
    argument,
    byte,
    compiled,
    double,
    dtype_of,
    exact,
    exponential,
    get,
    helpers,
    is_question,
    leave,
    make_job,
    numbers,
    quick,
    records,
    result_of,
    shape,
    share_out,
    single,
    size_of,
    work,
)

DIGEST = "7daae82ad675"  # of native.py
ROWS = 8  # read together: x and the sum then pass through the nearest cache once for all of them
BLOCK = 64  # rows whose slopes are computed together, which is what short rows spend their time on
SHORT = 64  # features: so many rows of a block stay in the nearest cache
ALONE = 2**17  # values: fewer are not worth waking a thread for
PART = 2**14  # values a part has at least; small, because a thread that wakes late should find some left
PARTS = 16  # at most: their sums take time to add

# After a job's head: scale * x, the intercept; then for each part its sums, of p shrink X and of p, and BLOCK scores.


# ---------------------------------------------------------------- rows


# By comparisons, not min and max: those would lose a NaN.


@exact
def logistic_slopes(z, y, j, rows):
    for r in range(rows):
        z[r] = -y[j + r] / (1.0 + exponential(y[j + r] * z[r]))


@exact
def linear_slopes(z, y, j, rows, threshold):
    for r in range(rows):
        slope = z[r] - y[j + r]
        slope = threshold if slope > threshold else slope
        z[r] = -threshold if slope < -threshold else slope


@exact
def clip_slopes(z, norm, j, rows, clip):
    for r in range(rows):
        length = norm[j + r] * abs(z[r])
        clipped = z[r] * (clip / length) if length < FAR else 0.0  # NaN is left out
        clipped = z[r] if length <= clip else clipped
        z[r] = clipped if norm[j + r] > 0.0 else 0.0  # however steep a record of zeros is


# Loops over features are functions of their own: inside a larger one LLVM does not vectorise them.


@quick
def score(X, j, w, z, r):
    z0 = 0.0
    for k in range(X.shape[1]):
        z0 += X[j, k] * w[k]
    z[r] = z0


@quick
def scores(X, j, w, z, r):
    z0 = z1 = z2 = z3 = z4 = z5 = z6 = z7 = 0.0
    for k in range(X.shape[1]):
        a = w[k]
        z0 += X[j, k] * a
        z1 += X[j + 1, k] * a
        z2 += X[j + 2, k] * a
        z3 += X[j + 3, k] * a
        z4 += X[j + 4, k] * a
        z5 += X[j + 5, k] * a
        z6 += X[j + 6, k] * a
        z7 += X[j + 7, k] * a
    z[r], z[r + 1], z[r + 2], z[r + 3], z[r + 4], z[r + 5], z[r + 6], z[r + 7] = z0, z1, z2, z3, z4, z5, z6, z7


@quick
def add(X, j, p, r, total):
    p0 = p[r]
    for k in range(X.shape[1]):
        total[k] += X[j, k] * p0


@quick
def add_all(X, j, p, r, total):
    p0, p1, p2, p3, p4, p5, p6, p7 = p[r], p[r + 1], p[r + 2], p[r + 3], p[r + 4], p[r + 5], p[r + 6], p[r + 7]
    for k in range(X.shape[1]):
        total[k] += (
            X[j, k] * p0
            + X[j + 1, k] * p1
            + X[j + 2, k] * p2
            + X[j + 3, k] * p3
            + X[j + 4, k] * p4
            + X[j + 5, k] * p5
            + X[j + 6, k] * p6
            + X[j + 7, k] * p7
        )


@exact
def sum_part(job, X, part):
    m, q = X.shape
    mine = job + 8 * (HEAD + q + 1 + part * (q + 1 + BLOCK))
    total, z = numbers(mine, q + 1), numbers(mine + 8 * (q + 1), BLOCK)
    w = numbers(job + 8 * HEAD, q + 1)
    y, norm, shrink = numbers(get(job, LABELS), m), numbers(get(job, NORM), m), numbers(get(job, SHRINK), m)
    clip, threshold = numbers(get(job, CLIP), m)[0], numbers(get(job, THRESHOLD), m)[0]
    dense, loss, intercept = get(job, DENSE) != 0, get(job, LOSS), w[q]
    for k in range(q):
        total[k] = 0.0
    level = 0.0
    j = part * get(job, SHARE)
    last = min(m, j + get(job, SHARE))
    block = BLOCK if q <= SHORT else ROWS
    while j < last:
        rows = min(block, last - j)
        whole = rows - rows % ROWS
        for r in range(0, whole, ROWS):
            scores(X, j + r, w, z, r)
        for r in range(whole, rows):
            score(X, j + r, w, z, r)
        for r in range(rows):
            z[r] = (z[r] if dense else shrink[j + r] * z[r]) + intercept
        if loss == LOGISTIC:
            logistic_slopes(z, y, j, rows)
        else:
            linear_slopes(z, y, j, rows, threshold)
        if clip < math.inf:
            clip_slopes(z, norm, j, rows, clip)
        for r in range(rows):
            level += z[r]
            z[r] = z[r] if dense else shrink[j + r] * z[r]
        for r in range(0, whole, ROWS):
            add_all(X, j + r, z, r, total)
        for r in range(whole, rows):
            add(X, j + r, z, r, total)
        j += rows
    total[q] = level


# ---------------------------------------------------------------- jobs


def help_byte(job):
    return work(job, records(job, byte), sum_part)


def help_single(job):
    return work(job, records(job, single), sum_part)


def help_double(job):
    return work(job, records(job, double), sum_part)


HELP = {"uint8": (U8, help_byte), "float32": (F32, help_single), "float64": (F64, help_double)}


@exact
def add_part(sums, at, length):
    for k in range(length):
        sums[k] += sums[at + k]


def handle(frame):
    """XLA calls this; x and the result are one vector."""
    if is_question(frame):
        return 0
    m, q, choices = size_of(frame), shape(frame, 0, 1), argument(frame, 11)
    intercept, dense = get(choices, 1), get(choices, 2)
    asked = numbers(argument(frame, 8), q + intercept)
    scale = numbers(argument(frame, 4), q)

    parts = 1 if m * q < ALONE else max(1, min(PARTS, m * q // PART, m // (2 * ROWS)))
    share = -(-m // (parts * ROWS)) * ROWS  # whole blocks of rows
    parts = -(-m // share)
    stride = q + 1 + BLOCK
    job = make_job(frame, parts, share, q + 1 + parts * stride)
    w, sums = numbers(job + 8 * HEAD, q + 1), numbers(job + 8 * (HEAD + q + 1), parts * stride)
    w[q] = asked[q] if intercept else 0.0
    for k in range(q):
        w[k] = asked[k] if dense else scale[k] * asked[k]
    share_out(frame, job, get(helpers(), SINGLE + dtype_of(frame)))

    for part in range(1, parts):
        add_part(sums, part * stride, q + 1)
    result = numbers(result_of(frame), q + intercept)
    for k in range(q):
        result[k] = sums[k] / m if dense else sums[k] * scale[k] / m
    if intercept:
        result[q] = sums[q] / m
    return leave(job)


def handler_for(dtype):
    """The address of `handle`, once it can serve records of this dtype."""
    number, function = HELP[dtype]
    HELPERS[SINGLE + number] = compiled(function).address
    return compiled(handle).address
