"""The foreign function of `prefetch`, in machine code. `problem.kernels.native` has what it is made with."""

# pyright: reportCallIssue=false
# (an intrinsic is called without the typing context that it is defined with)

from llvmlite import ir
from numba import carray, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

from relaydp.problem.kernels.native import (
    BUFFER_RANK,
    FRAME_ARGS,
    FRAME_COUNT,
    argument,
    at,
    bytes_of,
    compiled,
    entry,
    exact,
    get,
    int32,
    is_question,
    result_of,
    shape,
    word,
)

DIGEST = "7daae82ad675"  # of problem/kernels/native.py
LINE = 64  # bytes that come together
MOST = 32  # lines of one row: what comes after them, a processor guesses by itself
ROUTE, START, RECORDS, ROWS = 2, 3, 5, 9  # arguments


@intrinsic
def bring(typingctx, address):
    """Ask for the line with this address; nothing happens where there is none."""

    def build(context, builder, signature, args):
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(function, [builder.inttoptr(args[0], pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(word), build


@exact
def bring_all(address, length):
    first, last = address // LINE, (address + length - 1) // LINE
    for line in range(first, min(last, first + MOST - 1) + 1):
        bring(line * LINE)


@exact
def bring_rows(frame, i):
    """All that agent i has."""
    for number in range(ROWS, get(frame, FRAME_COUNT)):
        row = 8 * (shape(frame, number, 1) if get(get(get(frame, FRAME_ARGS), number), BUFFER_RANK) == 2 else 1)
        bring_all(argument(frame, number) + i * row, row)
    start, size = entry(frame, START, i), entry(frame, START + 1, i)
    row = shape(frame, RECORDS, 1) * bytes_of(frame, RECORDS)
    bring_all(argument(frame, RECORDS) + start * row, size * row)
    for number in range(RECORDS + 1, ROWS):
        bring_all(argument(frame, number) + 8 * start, 8 * size)


def handle(frame):
    """XLA calls this with a group's holders, the place of the first on the route, the route, start, size, X, y, shrink,
    norm, and any arrays with a row of float64 for each agent. The holders are returned; the next group's rows are asked
    for, and where the records of those after it start, which has to be known by then."""
    if is_question(frame):
        return 0
    group = shape(frame, 0, 0)
    holders, copy = carray(at(argument(frame, 0), int32), (group,)), carray(at(result_of(frame), int32), (group,))
    here = carray(at(argument(frame, 1), int32), (1,))[0]
    for k in range(group):
        copy[k] = holders[k]
        later = entry(frame, ROUTE, here + 2 * group + k)
        bring(argument(frame, START) + 4 * later)
        bring(argument(frame, START + 1) + 4 * later)
    for k in range(group):
        bring_rows(frame, entry(frame, ROUTE, here + group + k))
    return 0


def handler():
    """The address of `handle`."""
    return compiled(handle).address
