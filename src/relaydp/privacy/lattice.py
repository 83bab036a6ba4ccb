"""Exact samples of a discrete Gaussian, in machine code, from given random bits.

    P[Z = z] proportional to exp(-z^2 / (2 s^2)),     z any integer: the scale is s = r 2^L steps of the lattice

with whole numbers r and L. Noise of one party alone has r = 1 and L = K; parties that add up noise of different scales
on one lattice have an r each (`secret.common_lattice`).

Karney's algorithm (2016, arXiv 1303.6257). Write z = +-(a s + j) with 0 <= j < s and x = j / s. Then
z^2 / (2 s^2) = a^2/2 + x (2a + x)/2, and each part needs only coins with probability e^-g of heads:

    (1)  a: count heads of e^(-1/2) up to the first tail; keep a with probability e^(-a (a - 1)/2), else begin again.
         a heads have probability e^(-a/2), so what is kept has e^(-a^2/2)
    (2)  j: a fair die of r sides and L bits; and a sign. Of the two zeros, +0 and -0, one is refused
    (3)  keep all with probability e^(-x)^a e^(-x^2/2), else begin again at (1)

A coin of e^-g, 0 <= g <= 1, is tossed by von Neumann's method (Canonne, Kamath and Steinke 2020, algorithm 1): with
events A_1, A_2, ... of probabilities g/1, g/2, ... let k be the first that fails. Then P[k > n] = g^n/n!, and

    (4)  P[k is odd] = sum_n (-g)^n / n! = e^-g

The g that occur are x^p/d, with (p, d) = (0, 2), (1, 1) or (2, 2), so that A_k is an event of independent draws: a fair
die of d k sides shows 0, and p uniform numbers all fall below x. As x is a multiple of 1/s, such a number need only be
a uniform one of 0, 1/s, ..., (s - 1)/s. It is compared with x digit by digit as far as it takes: first a die of r
sides, then bytes, and for r = 1 bytes alone. Nothing here is rounded, and there is no floating point.

The bits. All functions are given the words and a position in them, counted in bits, and return what they found and the
position after it. A sample begins at a word of its own, and is a function of the endless sequence of words from there
on. If the words end before the sample does, `fill` returns where that sample began: the caller appends fresh words to
those that are left, and the sample is drawn again from the same words, with the same decisions, and continues. So
samples are a function of one endless sequence of words, however it is split. To start such a sample again with other
words would favour samples that need few.

Not covered: scales beyond 2^50 and r beyond 2^22, which `secret` refuses; and a of 2^12 or more, where z would be
beyond +-2^62 at s = 2^50, and beyond an int64 from 2^13 on. Such an a takes 2^24 heads in a row in (1), which have a
probability of e^(-2^23).

Only `secret` imports this, when noise is first drawn, because importing Numba is slow. Without Numba it runs as plain
Python, about a hundred times slower.
"""

# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

try:
    from numba import njit
except ImportError:  # the same functions, in Python

    def njit(**options: Any) -> Any:
        return lambda function: function


@njit()
def take(words, at, count):
    """`count` fresh bits, 0 to 63, all from one word: if the rest of a word is too short, it is dropped."""
    at += 64 - (at & 63) if (at & 63) + count > 64 else 0
    if at + count > 64 * words.size:
        return 0, 64 * words.size + 1
    return (words[at >> 6] >> (at & 63)) & ((1 << count) - 1), at + count


@njit()
def is_over(words, at):
    """Whether more bits were asked for than there are. Then `take` returns zeros, which must not be used."""
    return at > 64 * words.size


@njit()
def die(words, at, sides):
    """A fair die: 0 to sides - 1, each as likely. Bits outside its sides are drawn again. One side takes no bits."""
    if sides == 1:
        return 0, at
    count = 1
    while (1 << count) < sides:
        count += 1
    shown, at = take(words, at, count)
    while shown >= sides:
        shown, at = take(words, at, count)
    return shown, at


@njit()
def one_in(words, at, sides):
    """True with probability 1/sides: whether a fair die shows 0."""
    shown, at = die(words, at, sides)
    return shown == 0, at


@njit()
def below(words, at, x, r, L):
    """True with probability x / (r 2^L), for 0 <= x < r 2^L: whether a uniform number below r 2^L is less than x.
    Usually the first digit decides."""
    if r > 1 and x > 0:
        drawn, at = die(words, at, r)
        mine = x >> L
        if drawn != mine:
            return drawn < mine, at
        x -= mine << L
    while x > 0:  # the remaining bits are uniform, and not below 0
        count = min(L, 8)
        L -= count
        drawn, at = take(words, at, count)
        mine = x >> L
        if drawn != mine:
            return drawn < mine, at
        x -= mine << L
    return False, at


@njit()
def coin(words, at, x, r, L, power, divisor):
    """True with probability exp(-(x / (r 2^L))^power / divisor), by (4). False after the last word."""
    k, holds = 0, True
    while holds:
        k += 1
        holds, at = one_in(words, at, divisor * k)
        for _ in range(power):
            if holds:
                holds, at = below(words, at, x, r, L)
        holds = holds and not is_over(words, at)
    return k % 2 == 1 and not is_over(words, at), at


@njit()
def whole_part(words, at):
    """a of (1), or -1 if it was not kept."""
    a, heads = -1, True
    while heads:
        a += 1
        heads, at = coin(words, at, 0, 1, 0, 0, 2)
    for _ in range(a * (a - 1)):
        heads, at = coin(words, at, 0, 1, 0, 0, 2)
        if not heads:
            return -1, at
    return a, at


@njit()
def attempt(words, at, r, L):
    """(1) to (3) once: whether a z was kept, and which.

    Each z is with probability (1 - e^(-1/2)) / (2 s) exp(-z^2 / (2 s^2)): one factor for all of them.
    """
    a, at = whole_part(words, at)
    if a < 0:
        return False, 0, at
    top, at = die(words, at, r)  # (2)
    low, at = take(words, at, L)
    j = (top << L) + low
    minus, at = take(words, at, 1)
    kept = a > 0 or j > 0 or minus == 0
    for _ in range(a):  # (3)
        if kept:
            kept, at = coin(words, at, j, r, L, 1, 1)
    if kept:
        kept, at = coin(words, at, j, r, L, 2, 2)
    z = a * (r << L) + j
    return kept, (-z if minus else z), at


@njit()
def sample(words, at, r, L):
    """One Z. It is meaningless if the words ended."""
    kept, z = False, 0
    while not kept and not is_over(words, at):
        kept, z, at = attempt(words, at, r, L)
    return z, at


def _fill(words, found, r, L):
    """Put samples of scale r 2^L into `found`; returns how many there were words for, and the word where the next one
    begins."""
    at = 0
    for n in range(found.size):
        if r == 1:  # named, so that the compiler leaves out the die: an eighth of the time
            z, after = sample(words, at, 1, L)
        else:
            z, after = sample(words, at, r, L)
        if is_over(words, after):
            return n, at >> 6
        found[n] = z
        at = (after + 63) >> 6 << 6  # a word that one sample has used is not used by another
    return found.size, at >> 6


try:
    fill = njit(cache=True, nogil=True)(_fill)
except RuntimeError:  # no folder to store machine code in
    fill = njit(nogil=True)(_fill)
