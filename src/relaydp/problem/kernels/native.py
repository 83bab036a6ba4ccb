"""What native kernels (`gradient`, `gradient_batch`, `losses`, `engine.prefetch_native`) share: memory, calls, threads.

XLA hands over the address of a call frame (xla/ffi/api/c_api.h), its thread pool that of a job; both are read as 64-bit
words. A job begins with the words below; threads share its counters, take its parts one by one, and the last to leave
frees it. Numba compiles a kernel when a run first needs it and keeps the machine code on disk, as long as the kernel's
own file has not changed: so each of them notes the digest of this file (`DIGEST`), and a test compares.
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

# s_j: -y / (1 + exp(yz)), or z - y cut off at the threshold (inf: least squares); or, for a value alone, whether z and
# y have one sign
LOGISTIC, LINEAR, RIGHT = 0, 1, 2
FAR = 1e200  # `privacy.mechanism.FAR`: longer gradients are clipped to nothing

# A job: counters that threads share, and the records in question. A kernel's own words come after HEAD.
NEXT, DONE, USERS, COUNT, SHARE, WIDTH, SIZE = range(7)
RECORDS, LABELS, SHRINK, NORM, DENSE, LOSS, THRESHOLD, CLIP = range(7, 15)
ASK, HEAD = 15, 21  # between the two: the arguments of one call to XLA

# Where c_api.h puts things
FRAME_EXTENSION, FRAME_API, FRAME_CONTEXT, FRAME_COUNT, FRAME_ARGS, FRAME_RETS = 1, 2, 3, 7, 9, 14
BUFFER_DTYPE, BUFFER_DATA, BUFFER_RANK, BUFFER_DIMS = 2, 3, 4, 5
API_DESTROY_ERROR, API_SCHEDULE, API_THREADS = 8, 17, 18
METADATA, METADATA_AT, METADATA_VERSION = 1, 3, 3
VERSION = 3 << 32  # 0.3, the minor version in the upper half
INT = 0xFFFFFFFF  # a C int in the lower half of a word
U8, F32, F64 = 6, 11, 12

int32, word, byte, single, double = types.int32, types.int64, types.uint8, types.float32, types.float64
exact = numba.njit(error_model="numpy")
joined = numba.njit(error_model="numpy", fastmath={"contract"})  # a product and a sum may become one instruction
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


HELPERS = (ctypes.c_int64 * 48)()  # addresses of what threads are to call, by kernel and dtype: KERNEL + dtype;
add_symbol("relaydp_helpers", ctypes.addressof(HELPERS))  # found under a name: kept machine code outlives an address
SINGLE, PANELS, VALUES = 0, 16, 32


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


# ---------------------------------------------------------------- the exponential


# e^x = 2^n e^r with n = x / log 2 rounded, so |r| < 0.35: thirteen terms of the series are exact to rounding. Adding
# ROUNDER leaves n in the lowest bits of a double. Nothing here branches, so that LLVM computes several at once.
PER_LOG2, LOG2_HIGH, LOG2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDER, LARGEST = 6755399441055744.0, 708.0  # 1.5 2^52; e^LARGEST is a normal number, and so is its inverse
SERIES = tuple(1.0 / math.factorial(k) for k in range(14))


@joined
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


# ---------------------------------------------------------------- calls and jobs


@exact
def is_question(frame):
    """Whether XLA calls to ask for the version it is spoken to in; if so, it is answered."""
    extension = get(frame, FRAME_EXTENSION)
    if extension == 0 or get(extension, 1) & INT != METADATA:
        return False
    put(get(extension, METADATA_AT), METADATA_VERSION, VERSION)
    return True


@exact
def shape(frame, number, axis):
    """Of the call's argument of this number."""
    return get(get(get(get(frame, FRAME_ARGS), number), BUFFER_DIMS), axis)


@exact
def entry(frame, number, i):
    """Element i of an int32 argument; the nearest there is, as XLA has it, where i is not among them."""
    many = shape(frame, number, 0)
    return carray(at(argument(frame, number), int32), (many,))[max(0, min(i, many - 1))]


@exact
def bytes_of(frame, number):
    """Of one of the argument's numbers."""
    dtype = get(get(get(frame, FRAME_ARGS), number), BUFFER_DTYPE) & INT
    return 1 if dtype == U8 else 4 if dtype == F32 else 8


# A kernel is called with X, y, shrink, norm, scale, start, size, i, x, clip, threshold, and three whole numbers: the
# loss, whether there is an intercept, whether X is dense.


@exact
def dtype_of(frame):
    return get(get(get(frame, FRAME_ARGS), 0), BUFFER_DTYPE) & INT


@exact
def of_agent(frame, number):
    """The element of this argument that belongs to the agent in question."""
    return entry(frame, number, carray(at(argument(frame, 7), int32), (1,))[0])


@exact
def size_of(frame):
    return of_agent(frame, 6)


@exact
def result_of(frame):
    """Where the result goes."""
    return get(get(get(frame, FRAME_RETS), 0), BUFFER_DATA)


@exact
def make_job(frame, parts, share, room):
    """A job in so many parts, each but the last of `share` rows, with room for so many words after its head."""
    start, q, choices = of_agent(frame, 5), shape(frame, 0, 1), argument(frame, 11)
    job = malloc(8 * (HEAD + room))
    put(job, NEXT, 0)
    put(job, DONE, 0)
    put(job, USERS, 1)  # this call, to the end
    put(job, COUNT, parts)
    put(job, SHARE, share)
    put(job, WIDTH, q)
    put(job, SIZE, size_of(frame))
    put(job, RECORDS, argument(frame, 0) + start * q * bytes_of(frame, 0))
    put(job, LABELS, argument(frame, 1) + 8 * start)
    put(job, SHRINK, argument(frame, 2) + 8 * start)
    put(job, NORM, argument(frame, 3) + 8 * start)
    put(job, DENSE, get(choices, 2))
    put(job, LOSS, get(choices, 0))
    put(job, THRESHOLD, argument(frame, 10))
    put(job, CLIP, argument(frame, 9))
    return job


@exact
def leave(job):
    """The last to leave a job frees it: a helper that wakes late still finds it there."""
    if fetch_add(job + 8 * USERS, -1) == 1:
        free(job)
    return 0


@exact
def records(job, kind):
    return carray(at(get(job, RECORDS), kind), (get(job, SIZE), get(job, WIDTH)))


@exact
def work(job, X, do_part):
    """Do parts until none is left to begin."""
    while True:
        part = fetch_add(job + 8 * NEXT, 1)
        if part >= get(job, COUNT):
            break
        do_part(job, X, part)
        fetch_add(job + 8 * DONE, 1)
    return leave(job)


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


# ---------------------------------------------------------------- compiled


@functools.cache
def compiled(function):
    try:
        return numba.cfunc(word(word), cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep machine code in
        return numba.cfunc(word(word), error_model="numpy")(function)
