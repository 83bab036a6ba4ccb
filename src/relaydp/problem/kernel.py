"""The fused gradient in machine code: one read of an agent's records, spread over XLA's own threads.

    z_j      = shrink_j (X_j'w - offset'w) + intercept,   w = scale x
    p_j      = s_j min(1, c / (norm_j |s_j|)),            s_j = dphi/dz(z_j, y_j)
    gradient = (1/m) scale (sum_j p_j shrink_j X_j - offset sum_j p_j shrink_j), and (1/m) sum_j p_j for the intercept

Only bytes have an offset, and of a byte's size: to take it out of the sums costs two digits at the very worst.

ROWS records at a time come from memory for z_j, up to BLOCK where they are short, and are still in cache for the sum.
Rows make up parts; whichever thread is free takes the next part, and every part has a sum of its own. How rows fall
into parts, and in which order the parts are added, depends on the sizes alone: one core gives the same bits as many.

Numba compiles this file when a run first needs it and keeps the machine code on disk; only `fused` imports it. XLA
hands over the address of a call frame (xla/ffi/api/c_api.h), its thread pool that of a job; both are read as 64-bit
words, laid out below.
"""

# pyright: reportCallIssue=false
# (an intrinsic is called without the typing context that it is defined with)

import ctypes
import functools
import math

import numba
from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import carray, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

ROWS = 8  # read together: x and the sum then pass through the nearest cache once for all of them
BLOCK = 64  # rows whose slopes are computed together, which is what short rows spend their time on
SHORT = 64  # features: so many rows of a block stay in the nearest cache
ALONE = 2**17  # values: fewer are not worth waking a thread for
PART = 2**14  # values a part has at least; small, because a thread that wakes late should find some left
PARTS = 16  # at most: their sums take time to add
LOGISTIC, LINEAR = 0, 1  # s_j: -y / (1 + exp(yz)), or z - y cut off at the threshold (inf: least squares)

# A job: counters that threads share; the records in question; from HEAD on scale * x and the intercept; then for each
# part its sums: of p shrink X, of p, of p shrink; and BLOCK scores.
NEXT, DONE, USERS, COUNT, SHARE, WIDTH, SIZE = range(7)
RECORDS, LABELS, SHRINK, NORM, DENSE, LOSS, THRESHOLD, CLIP = range(7, 15)
ASK, HEAD = 15, 21  # between the two: the arguments of one call to XLA

# Where c_api.h puts things
FRAME_EXTENSION, FRAME_API, FRAME_CONTEXT, FRAME_ARGS, FRAME_RETS = 1, 2, 3, 9, 14
BUFFER_DTYPE, BUFFER_DATA, BUFFER_DIMS = 2, 3, 5
API_DESTROY_ERROR, API_SCHEDULE, API_THREADS = 8, 17, 18
METADATA, METADATA_AT, METADATA_VERSION = 1, 3, 3
VERSION = 3 << 32  # 0.3, the minor version in the upper half
INT = 0xFFFFFFFF  # a C int in the lower half of a word
U8, F32, F64 = 6, 11, 12

int32, word, byte, single, double = types.int32, types.int64, types.uint8, types.float32, types.float64
exact = numba.njit(error_model="numpy")
quick = numba.njit(error_model="numpy", fastmath={"reassoc", "contract"})  # sums in any order; NaN and inf stay


# ---------------------------------------------------------------- memory


@intrinsic
def at(typingctx, address, kind):
    """A pointer to numbers of this kind."""
    pointer = types.CPointer(kind.instance_type)

    def build(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(word, kind), build


@intrinsic
def fetch_add(typingctx, address, amount):
    """Add to a word that other threads see; its value before."""

    def build(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], ir.IntType(64).as_pointer()), args[1], "seq_cst")

    return word(word, word), build


@intrinsic
def call(typingctx, function, argument):
    """Call a C function of one word."""

    def build(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])

    return word(word, word), build


HELPERS = (ctypes.c_int64 * (F64 + 1))()  # addresses of the compiled functions, by dtype; found under a name,
add_symbol("relaydp_helpers", ctypes.addressof(HELPERS))  # because machine code on disk outlives an address


@intrinsic
def helpers(typingctx):
    def build(context, builder, signature, args):
        table = ir.GlobalVariable(builder.module, ir.IntType(64), "relaydp_helpers")
        return builder.ptrtoint(table, ir.IntType(64))

    return word(), build


malloc = types.ExternalFunction("malloc", word(word))
free = types.ExternalFunction("free", types.void(word))


def load(builder, address, index):
    start = builder.inttoptr(address, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(start, [index]))


@intrinsic
def get(typingctx, address, index):
    """The word `index` places after an address."""

    def build(context, builder, signature, args):
        return load(builder, *args)

    return word(word, word), build


@intrinsic
def argument(typingctx, frame, number):
    """Where the call's argument of this number lies."""

    def build(context, builder, signature, args):
        buffers = load(builder, args[0], ir.IntType(64)(FRAME_ARGS))
        return load(builder, load(builder, buffers, args[1]), ir.IntType(64)(BUFFER_DATA))

    return word(word, word), build


@intrinsic
def put(typingctx, address, index, value):
    """Set that word."""

    def build(context, builder, signature, args):
        start = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(args[2], builder.gep(start, [args[1]]))
        return context.get_dummy_value()

    return types.void(word, word, word), build


@intrinsic
def as_word(typingctx, number):
    """A double's bits."""

    def build(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return word(double), build


@intrinsic
def as_double(typingctx, bits):
    """The double with these bits."""

    def build(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return double(word), build


@exact
def numbers(address, number):
    return carray(at(address, double), (number,))


# ---------------------------------------------------------------- rows


# e^x = 2^n e^r with n = x / log 2 rounded, so |r| < 0.35: thirteen terms of the series are exact to rounding. Adding
# ROUNDER leaves n in the lowest bits of a double. Nothing here branches, so that LLVM computes several at once.
PER_LOG2, LOG2_HIGH, LOG2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDER, LARGEST = 6755399441055744.0, 708.0  # 1.5 2^52; e^LARGEST is a normal number, and so is its inverse
SERIES = tuple(1.0 / math.factorial(k) for k in range(14))


@exact
def exponential(x):
    """e^x for |x| up to LARGEST, the nearest of those beyond it, and NaN for NaN."""
    x = LARGEST if x > LARGEST else x
    x = -LARGEST if x < -LARGEST else x
    shifted = x * PER_LOG2 + ROUNDER
    n = shifted - ROUNDER
    r = (x - n * LOG2_HIGH) - n * LOG2_LOW
    s = SERIES
    series = s[11] + r * (s[12] + r * s[13])
    series = s[7] + r * (s[8] + r * (s[9] + r * (s[10] + r * series)))
    series = s[3] + r * (s[4] + r * (s[5] + r * (s[6] + r * series)))
    series = 1.0 + r * (1.0 + r * (s[2] + r * series))
    return series * as_double((as_word(shifted) + 1023) << 52)


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
        z[r] = z[r] * (clip / length) if length > clip else z[r]


@exact
def leave(job):
    """The last to leave a job frees it: a helper that wakes late still finds it there."""
    if fetch_add(job + 8 * USERS, -1) == 1:
        free(job)
    return 0


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
    mine = job + 8 * (HEAD + q + 2 + part * (q + 2 + BLOCK))
    total, z = numbers(mine, q + 2), numbers(mine + 8 * (q + 2), BLOCK)
    w = numbers(job + 8 * HEAD, q + 2)
    y, norm, shrink = numbers(get(job, LABELS), m), numbers(get(job, NORM), m), numbers(get(job, SHRINK), m)
    clip, threshold = numbers(get(job, CLIP), m)[0], numbers(get(job, THRESHOLD), m)[0]
    dense, loss, intercept, shift = get(job, DENSE) != 0, get(job, LOSS), w[q], w[q + 1]
    for k in range(q):
        total[k] = 0.0
    level = shrunk = 0.0
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
            z[r] = (z[r] if dense else shrink[j + r] * (z[r] - shift)) + intercept
        if loss == LOGISTIC:
            logistic_slopes(z, y, j, rows)
        else:
            linear_slopes(z, y, j, rows, threshold)
        clip_slopes(z, norm, j, rows, clip)
        for r in range(rows):
            level += z[r]
            z[r] = z[r] if dense else shrink[j + r] * z[r]
            shrunk += z[r]
        for r in range(0, whole, ROWS):
            add_all(X, j + r, z, r, total)
        for r in range(whole, rows):
            add(X, j + r, z, r, total)
        j += rows
    total[q], total[q + 1] = level, shrunk


@exact
def work(job, X):
    """Do parts until none is left to begin."""
    while True:
        part = fetch_add(job + 8 * NEXT, 1)
        if part >= get(job, COUNT):
            break
        sum_part(job, X, part)
        fetch_add(job + 8 * DONE, 1)
    return leave(job)


# ---------------------------------------------------------------- jobs


def help_byte(job):
    return work(job, carray(at(get(job, RECORDS), byte), (get(job, SIZE), get(job, WIDTH))))


def help_single(job):
    return work(job, carray(at(get(job, RECORDS), single), (get(job, SIZE), get(job, WIDTH))))


def help_double(job):
    return work(job, carray(at(get(job, RECORDS), double), (get(job, SIZE), get(job, WIDTH))))


HELP = {"uint8": (U8, help_byte), "float32": (F32, help_single), "float64": (F64, help_double)}


@exact
def ask(frame, function, room, third, fourth):
    """Call XLA about this context; whether it agreed. Its errors are ours to destroy."""
    put(room, 0, 40)
    put(room, 1, 0)
    put(room, 2, get(frame, FRAME_CONTEXT))
    put(room, 3, third)
    put(room, 4, fourth)
    error = call(get(get(frame, FRAME_API), function), room)
    if error != 0:
        put(room, 0, 24)
        put(room, 2, error)
        call(get(get(frame, FRAME_API), API_DESTROY_ERROR), room)
    return error == 0


@exact
def share_out(frame, job, helper):
    """Wake threads for a job of several parts, help them, and wait for the parts that others have begun."""
    parts, room = get(job, COUNT), job + 8 * ASK
    threads = 1
    if parts > 1 and ask(frame, API_THREADS, room, room + 8 * 5, 0):
        threads = min(parts, get(room, 5))
    fetch_add(job + 8 * USERS, threads)  # every thread that helps leaves once, this one too
    for _ in range(threads - 1):
        if not ask(frame, API_SCHEDULE, room, helper, job):
            fetch_add(job + 8 * USERS, -1)
    call(helper, job)
    while fetch_add(job + 8 * DONE, 0) < parts:
        pass


@exact
def add_part(sums, at, length):
    for k in range(length):
        sums[k] += sums[at + k]


@exact
def entry(frame, number, i):
    """Element i of an int32 argument; the nearest there is, as XLA has it, where i is not among them."""
    many = get(get(get(get(frame, FRAME_ARGS), number), BUFFER_DIMS), 0)
    return carray(at(argument(frame, number), int32), (many,))[max(0, min(i, many - 1))]


def handle(frame):
    """XLA calls this with X, y, shrink, norm, offset, scale, start, size, i, x, clip, threshold, and three whole
    numbers: the loss, whether there is an intercept, whether X is dense."""
    extension = get(frame, FRAME_EXTENSION)
    if extension != 0 and get(extension, 1) & INT == METADATA:
        put(get(extension, METADATA_AT), METADATA_VERSION, VERSION)
        return 0
    X = get(get(frame, FRAME_ARGS), 0)
    q, dtype = get(get(X, BUFFER_DIMS), 1), get(X, BUFFER_DTYPE) & INT
    i = carray(at(argument(frame, 8), int32), (1,))[0]
    start, m = entry(frame, 6, i), entry(frame, 7, i)
    choices = argument(frame, 12)
    intercept, dense = get(choices, 1), get(choices, 2)
    asked = numbers(argument(frame, 9), q + intercept)
    offset, scale = numbers(argument(frame, 4), q), numbers(argument(frame, 5), q)

    parts = 1 if m * q < ALONE else max(1, min(PARTS, m * q // PART, m // (2 * ROWS)))
    share = -(-m // (parts * ROWS)) * ROWS  # whole blocks of rows
    parts = -(-m // share)
    stride = q + 2 + BLOCK
    job = malloc(8 * (HEAD + q + 2 + parts * stride))
    put(job, NEXT, 0)
    put(job, DONE, 0)
    put(job, USERS, 1)  # this call, to the end
    put(job, COUNT, parts)
    put(job, SHARE, share)
    put(job, WIDTH, q)
    put(job, SIZE, m)
    put(job, LOSS, get(choices, 0))
    put(job, RECORDS, get(X, BUFFER_DATA) + start * q * (1 if dtype == U8 else 4 if dtype == F32 else 8))
    put(job, LABELS, argument(frame, 1) + 8 * start)
    put(job, SHRINK, argument(frame, 2) + 8 * start)
    put(job, NORM, argument(frame, 3) + 8 * start)
    put(job, DENSE, dense)
    put(job, CLIP, argument(frame, 10))
    put(job, THRESHOLD, argument(frame, 11))
    w, sums = numbers(job + 8 * HEAD, q + 2), numbers(job + 8 * (HEAD + q + 2), parts * stride)
    w[q], w[q + 1] = asked[q] if intercept else 0.0, 0.0
    for k in range(q):
        w[k] = asked[k] if dense else scale[k] * asked[k]
        w[q + 1] += 0.0 if dense else offset[k] * w[k]
    share_out(frame, job, get(helpers(), dtype))

    for part in range(1, parts):
        add_part(sums, part * stride, q + 2)
    result = numbers(get(get(get(frame, FRAME_RETS), 0), BUFFER_DATA), q + intercept)
    for k in range(q):
        result[k] = sums[k] / m if dense else (sums[k] - offset[k] * sums[q + 1]) * scale[k] / m
    if intercept:
        result[q] = sums[q] / m
    return leave(job)


# ---------------------------------------------------------------- compiled


@functools.cache
def compiled(function):
    try:
        return numba.cfunc(word(word), cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep machine code in
        return numba.cfunc(word(word), error_model="numpy")(function)


def handler_for(dtype):
    """The address of `handle`, once it can serve records of this dtype."""
    number, function = HELP[dtype]
    HELPERS[number] = compiled(function).address
    return compiled(handle).address
