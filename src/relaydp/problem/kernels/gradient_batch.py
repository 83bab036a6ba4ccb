"""The fused gradient at many points at once: one read of an agent's records for all of them.

The equations are `gradient`'s, for LANES points side by side: a panel. ROWS records at a time become float64, a tile;
of their features those that are 0 in all of them are left out, which in drawings are most. What is left meets every
panel twice:

    (1)  z_jl += X_jk w_kl        (2)  total_kl += X_jk p_jl        for the listed k, ROWS records j, LANES points l

Both keep in registers what they add to, or multiply with: the inner loop of a matrix product, at its rate. LLVM does
not find it by itself, so these two are written in its language. Panels that fit into the second cache together share
a tile. Parts are such groups of panels times rows, and sums are added in an order that depends on sizes alone.

What is skipped would add 0, unless a point is not finite: its scores are then no numbers for every record, so that what
one record adds never depends on those beside it. How long it takes does: this is for batches, which are simulations.

Only `dispatch` imports this, when a batch first needs it, and `losses`. `native` has what it is made with.
"""

# pyright: reportCallIssue=false
# (an intrinsic is called without the typing context that it is defined with)

import math

from llvmlite import ir
from numba import carray, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core import cgutils
from numba.extending import intrinsic

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
    PANELS,
    SHARE,
    SHRINK,
    THRESHOLD,
    U8,
    argument,
    at,
    byte,
    compiled,
    double,
    dtype_of,
    exact,
    exponential,
    get,
    helpers,
    int32,
    is_question,
    joined,
    leave,
    make_job,
    numbers,
    put,
    records,
    result_of,
    shape,
    share_out,
    single,
    size_of,
    word,
    work,
)

DIGEST = "7daae82ad675"  # of native.py
LANES = 16  # points side by side: two of AVX-512's registers, four of AVX's
ROWS = 6  # records at a time: their scores of a panel stay in registers
NEAR = 2**20  # bytes of the second cache
PARTS = 4  # at least, where there are enough rows for them
LEAST = 64  # rows a part
SHORT = 64  # features

# After a job's head: four numbers; every point's intercept; the panels, w. Then for each part its sums, of p and of
# p shrink X; a tile, its scores, and which features count.
STRIPES, GROUP, MANY, INTERCEPT = range(HEAD, HEAD + 4)
START = HEAD + 4

vector = ir.VectorType(ir.DoubleType(), LANES)
CONTRACT = ("contract",)  # as in `joined`


# ---------------------------------------------------------------- inner loops


def _vector_at(builder, address, index):
    """A pointer to the LANES numbers of this index."""
    return builder.gep(builder.inttoptr(address, vector.as_pointer()), [index])


def _spread(builder, tile, at):
    """One number of the tile, LANES times."""
    one = builder.load(builder.gep(builder.inttoptr(tile, ir.DoubleType().as_pointer()), [at]))
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), one, ir.IntType(32)(0))
    nowhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), nowhere)


def _place(builder, places, n):
    kept = builder.load(builder.gep(builder.inttoptr(places, ir.IntType(32).as_pointer()), [n]))
    return builder.zext(kept, ir.IntType(64))


@intrinsic
def score_panel(typingctx, count, places, tile, q, w, z, across):
    """(1) from zero: w is q x LANES, the tile ROWS x q, `places` the k; z's rows lie `across` panels apart."""

    def build(context, builder, signature, args):
        count, places, tile, q, w, z, across = args
        integer = ir.IntType(64)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(ROWS)]
        with cgutils.for_range(builder, count) as loop:
            k = _place(builder, places, loop.index)
            column = builder.load(_vector_at(builder, w, k), align=8)
            for r, total in enumerate(sums):
                x = _spread(builder, tile, builder.add(builder.mul(q, integer(r)), k))
                product = builder.fmul(x, column, flags=CONTRACT)
                builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
        for r, total in enumerate(sums):
            builder.store(builder.load(total), _vector_at(builder, z, builder.mul(across, integer(r))), align=8)
        return context.get_dummy_value()

    return types.void(word, word, word, word, word, word, word), build


@intrinsic
def add_panel(typingctx, count, places, tile, q, p, across, total):
    """(2): total is q x LANES, p's rows lie `across` panels apart."""

    def build(context, builder, signature, args):
        count, places, tile, q, p, across, total = args
        integer = ir.IntType(64)
        pulls = [builder.load(_vector_at(builder, p, builder.mul(across, integer(r))), align=8) for r in range(ROWS)]
        with cgutils.for_range(builder, count) as loop:
            k = _place(builder, places, loop.index)
            where = _vector_at(builder, total, k)
            sum_ = builder.load(where, align=8)
            for r, pull in enumerate(pulls):
                x = _spread(builder, tile, builder.add(builder.mul(q, integer(r)), k))
                sum_ = builder.fadd(sum_, builder.fmul(x, pull, flags=CONTRACT), flags=CONTRACT)
            builder.store(sum_, where, align=8)
        return context.get_dummy_value()

    return types.void(word, word, word, word, word, word, word), build


@exact
def fill(X, j, rows, tile):
    q = X.shape[1]
    for r in range(ROWS):
        if r < rows:
            for k in range(q):
                tile[r * q + k] = X[j + r, k]
        else:
            for k in range(q):
                tile[r * q + k] = 0.0


@exact
def flag_row(X, j, flags):
    for k in range(X.shape[1]):
        flags[k] |= 1 if X[j, k] != 0 else 0


ALL_EIGHT = 0x0101010101010101


@exact
def find(X, j, rows, flags, flags_at, places):
    """List the features that are not 0 in all these rows; how many there are."""
    for k in range(flags.size):
        flags[k] = 0
    for r in range(rows):
        flag_row(X, j + r, flags)
    count = 0
    for eight in range(flags.size // 8):
        found = get(flags_at, eight)
        if found == ALL_EIGHT:
            for k in range(8):
                places[count + k] = 8 * eight + k
            count += 8
        elif found != 0:
            for k in range(8):
                places[count] = 8 * eight + k
                count += flags[8 * eight + k]
    return count


@exact
def fill_and_find(X, j, tile, places):
    """Both at once for ROWS rows, sooner done where these are short."""
    q = X.shape[1]
    count = 0
    for k in range(q):
        some = False
        for r in range(ROWS):
            tile[r * q + k] = X[j + r, k]
            some |= X[j + r, k] != 0
        places[count] = k
        count += 1 if some else 0
    return count


# ---------------------------------------------------------------- rows


# A row's scores, one a point; `width` is not a constant, or LLVM would unroll these loops and then not vectorise them.


@joined
def logistic_row(z, width, y, shrink, bias):
    for n in range(width):
        z[n] = -y / (1.0 + exponential(y * (shrink * z[n] + bias[n])))


@joined
def linear_row(z, width, y, shrink, bias, threshold):
    for n in range(width):
        slope = shrink * z[n] + bias[n] - y
        slope = threshold if slope > threshold else slope
        z[n] = -threshold if slope < -threshold else slope


@exact
def clip_row(z, width, norm, clip):
    for n in range(width):
        length = norm * abs(z[n])
        clipped = z[n] * (clip / length) if length < FAR else 0.0  # NaN is left out
        clipped = z[n] if length <= clip else clipped
        z[n] = clipped if norm > 0.0 else 0.0  # however steep a record of zeros is


@exact
def add_row(z, width, level):
    for n in range(width):
        level[n] += z[n]


@exact
def shrink_row(z, width, shrink):
    for n in range(width):
        z[n] *= shrink


# ---------------------------------------------------------------- parts


@exact
def part_size(q, group):
    """Numbers: level, totals, tile, z, places (half a number each), flags (an eighth)."""
    return group * LANES * (1 + q + ROWS) + ROWS * q + (q + 16) // 2 + (q + 7) // 8


@exact
def panels_of(job, q, part):
    """A part's panels: how many, and where are their intercepts, w, and what the part adds up."""
    group, panels = get(job, GROUP), get(job, MANY)
    first = part // get(job, STRIPES) * group
    bias_at = job + 8 * (START + first * LANES)
    w_at = job + 8 * (START + panels * LANES + first * q * LANES)
    level_at = job + 8 * (START + panels * LANES * (1 + q) + part * part_size(q, group))
    return min(group, panels - first), bias_at, w_at, level_at


@exact
def rows_of(job, m, part):
    """A part's first row, and the one after its last."""
    first = part % get(job, STRIPES) * get(job, SHARE)
    return first, min(m, first + get(job, SHARE))


@exact
def score_rows(X, j, rows, many, group, w_at, tile_at):
    """(1) for these rows and all panels; how many features count. After the tile lie its scores, places and flags."""
    q = X.shape[1]
    z_at = tile_at + 8 * ROWS * q
    places_at = z_at + 8 * ROWS * group * LANES
    flags_at = places_at + 8 * ((q + 16) // 2)
    places, flags = carray(at(places_at, int32), (q + 9,)), carray(at(flags_at, byte), ((q + 7) // 8 * 8,))
    tile = numbers(tile_at, ROWS * q)
    if rows == ROWS and q <= SHORT:
        count = fill_and_find(X, j, tile, places)
    else:
        fill(X, j, rows, tile)
        count = find(X, j, rows, flags, flags_at, places)
    for p in range(many):
        w = w_at + 8 * p * q * LANES
        score_panel(count, places_at, tile_at, q, w, z_at + 8 * p * LANES, group)
    return count, z_at, places_at


@exact
def sum_part(job, X, part):
    m, q = X.shape
    group = get(job, GROUP)
    many, bias_at, w_at, level_at = panels_of(job, q, part)
    total_at = level_at + 8 * group * LANES
    tile_at = total_at + 8 * group * LANES * q
    width = many * LANES
    sums, bias, level = numbers(level_at, group * LANES * (1 + q)), numbers(bias_at, width), numbers(level_at, width)
    y, norm, shrink = numbers(get(job, LABELS), m), numbers(get(job, NORM), m), numbers(get(job, SHRINK), m)
    clip, threshold = numbers(get(job, CLIP), m)[0], numbers(get(job, THRESHOLD), m)[0]
    dense, loss, intercept = get(job, DENSE) != 0, get(job, LOSS), get(job, INTERCEPT) != 0
    for k in range(sums.size):
        sums[k] = 0.0
    j, last = rows_of(job, m, part)
    while j < last:
        rows = min(ROWS, last - j)
        count, z_at, places_at = score_rows(X, j, rows, many, group, w_at, tile_at)
        scores = numbers(z_at, ROWS * group * LANES)
        for r in range(rows):
            z = numbers(z_at + 8 * r * group * LANES, width)
            shorter = 1.0 if dense else shrink[j + r]
            if loss == LOGISTIC:
                logistic_row(z, width, y[j + r], shorter, bias)
            else:
                linear_row(z, width, y[j + r], shorter, bias, threshold)
            if clip < math.inf:
                clip_row(z, width, norm[j + r], clip)
            if intercept:
                add_row(z, width, level)
            if not dense:
                shrink_row(z, width, shorter)
        for k in range(rows * group * LANES, ROWS * group * LANES):  # rows that are not there
            scores[k] = 0.0
        for p in range(many):
            total = total_at + 8 * p * q * LANES
            add_panel(count, places_at, tile_at, q, z_at + 8 * p * LANES, group, total)
        j += rows


# ---------------------------------------------------------------- jobs


def help_byte(job):
    return work(job, records(job, byte), sum_part)


def help_single(job):
    return work(job, records(job, single), sum_part)


def help_double(job):
    return work(job, records(job, double), sum_part)


HELP = {"uint8": (U8, help_byte), "float32": (F32, help_single), "float64": (F64, help_double)}


@exact
def lay_in(w, bias, asked, first, many, q, dim, intercept, dense, scale):
    """Points first, first + 1, ..., one a row of `asked`, into a panel w."""
    for n in range(LANES):
        bias[n] = asked[(first + n) * dim + q] if intercept and n < many else 0.0
    for k in range(q):
        by = 1.0 if dense else scale[k]
        for n in range(many):
            w[k * LANES + n] = asked[(first + n) * dim + k] * by
            bias[n] += 0.0 * w[k * LANES + n]  # NaN where that is not finite
        for n in range(many, LANES):
            w[k * LANES + n] = 0.0


@exact
def add_part(into, more, length):
    for k in range(length):
        into[k] += more[k]


@exact
def lay_out(result, total, level, first, many, q, dim, intercept, dense, scale, m):
    """A panel of sums into rows of the result."""
    for k in range(q):
        by = 1.0 if dense else scale[k]
        for n in range(many):
            result[(first + n) * dim + k] = total[k * LANES + n] * by / m
    if intercept:
        for n in range(many):
            result[(first + n) * dim + q] = level[n] / m


@exact
def begin(frame):
    """A job with the points of x, one a row, laid into panels."""
    m, q, choices = size_of(frame), shape(frame, 0, 1), argument(frame, 11)
    runs, dim = shape(frame, 8, 0), shape(frame, 8, 1)
    intercept, dense = get(choices, 1), get(choices, 2)
    scale = numbers(argument(frame, 4), q)

    panels = -(-runs // LANES)
    group = max(1, min(panels, NEAR // (16 * q * LANES)))
    groups = -(-panels // group)
    stripes = max(1, min(-(-PARTS // groups), m // LEAST))
    share = -(-m // (stripes * ROWS)) * ROWS  # whole tiles
    stripes = -(-m // share)
    room = START - HEAD + panels * LANES * (1 + q) + groups * stripes * part_size(q, group)
    job = make_job(frame, groups * stripes, share, room)
    put(job, STRIPES, stripes)
    put(job, GROUP, group)
    put(job, MANY, panels)
    put(job, INTERCEPT, intercept)
    asked = numbers(argument(frame, 8), runs * dim)
    for p in range(panels):
        bias = numbers(job + 8 * (START + p * LANES), LANES)
        w = numbers(job + 8 * (START + (panels + p * q) * LANES), q * LANES)
        here = min(LANES, runs - p * LANES)
        lay_in(w, bias, asked, p * LANES, here, q, dim, intercept, dense, scale)
    return job


@exact
def add_stripes(job, q, length):
    """Add up what the parts of each group of panels have found, `length` numbers each, in the first of them."""
    stripes, group, panels = get(job, STRIPES), get(job, GROUP), get(job, MANY)
    for p in range(0, panels, group):
        _, _, _, into = panels_of(job, q, p // group * stripes)
        for stripe in range(1, stripes):
            _, _, _, more = panels_of(job, q, p // group * stripes + stripe)
            add_part(numbers(into, length), numbers(more, length), length)


def handle(frame):
    """XLA calls this; x has one point a row, the result one gradient."""
    if is_question(frame):
        return 0
    m, q, choices = size_of(frame), shape(frame, 0, 1), argument(frame, 11)
    runs, dim = shape(frame, 8, 0), shape(frame, 8, 1)
    intercept, dense = get(choices, 1), get(choices, 2)
    scale = numbers(argument(frame, 4), q)
    result = numbers(result_of(frame), runs * dim)
    job = begin(frame)
    share_out(frame, job, get(helpers(), PANELS + dtype_of(frame)))

    group, stripes = get(job, GROUP), get(job, STRIPES)
    add_stripes(job, q, group * LANES * (1 + q))
    for p in range(get(job, MANY)):
        _, _, _, first = panels_of(job, q, p // group * stripes)
        level = numbers(first + 8 * (p % group) * LANES, LANES)
        total = numbers(first + 8 * (group + p % group * q) * LANES, q * LANES)
        here = min(LANES, runs - p * LANES)
        lay_out(result, total, level, p * LANES, here, q, dim, intercept, dense, scale, m)
    return leave(job)


def handler_for(dtype):
    """The address of `handle`, once it can serve records of this dtype."""
    number, function = HELP[dtype]
    HELPERS[PANELS + number] = compiled(function).address
    return compiled(handle).address
