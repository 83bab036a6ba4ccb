"""Masks: that they cancel over all members and over no others, look like nothing, and are used once."""

import hashlib
import hmac
import itertools
import struct
import subprocess
import sys
from dataclasses import replace

import networkx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from relaydp.errors import PrivacyError
from relaydp.privacy.masks import (
    Contribution,
    Contributions,
    agree,
    chance_apart,
    degree_for,
    mask,
    mask_graph,
    new_key,
    public_bytes,
)

CONSORTIUM = bytes(range(32))
SEED = b"s" * 32
COUNT = 6


def fixed_keys(parties):
    """Keys that are the same in every run of the tests."""
    return [X25519PrivateKey.from_private_bytes(hashlib.sha256(bytes([n])).digest()) for n in range(parties)]


def rings(parties, graph=None, consortium=CONSORTIUM):
    """Each party's keys for masks."""
    keys = fixed_keys(parties)
    public = [public_bytes(key) for key in keys]
    return [agree(key, i, public, consortium, graph) for i, key in enumerate(keys)]


RINGS = rings(6)


def total(rings, members, claims=None, epoch=1, lap=2, attempt=0):
    """What the masks of all members add up to, each told of `claims[i]` or of the same."""
    return sum(
        (mask(rings[i], (claims or {}).get(i, members), epoch, lap, attempt, COUNT) for i in members),
        np.zeros(COUNT, np.uint64),
    )


# --- the sum


@pytest.mark.parametrize("members", [each for size in range(2, 7) for each in itertools.combinations(range(6), size)])
def test_masks_of_all_members_cancel_and_of_no_others(members):
    assert (total(RINGS, members) == 0).all()
    masks = [mask(RINGS[i], members, 1, 2, 0, COUNT) for i in members]
    for size in range(1, len(members)):
        for some in itertools.combinations(masks, size):
            assert (sum(some, np.zeros(COUNT, np.uint64)) != 0).all()


def test_the_order_in_which_members_are_listed_or_add_up_makes_no_difference():
    masks = [mask(RINGS[i], (3, 0, 5, 1), 1, 2, 0, COUNT) for i in (5, 1, 0, 3)]
    for order in itertools.permutations(range(4)):
        baton = np.zeros(COUNT, np.uint64)
        for at in order:
            baton += masks[at]
        assert (baton == 0).all()
    assert np.array_equal(masks[0], mask(RINGS[5], {0, 1, 3, 5}, 1, 2, 0, COUNT))


@pytest.mark.parametrize("claim", [(0, 1, 2), (0, 1, 2, 4), (0, 1, 2, 3, 4)])
def test_two_parties_with_other_members_in_mind_do_not_cancel(claim):
    """Parties 3 to 5 collude and take away the masks that they share. What is left cancels if all are told the same."""
    honest = [replace(RINGS[i], pairs={j: RINGS[i].pairs[j] for j in range(3) if j != i}) for i in range(3)]
    told = {i: (0, 1, 2, 3) for i in range(3)}
    assert (total(honest, (0, 1, 2), told) == 0).all()
    for i in range(3):
        assert (total(honest, (0, 1, 2), told | {i: claim}) != 0).all()


# --- its words


QUESTION = {"members": (0, 1, 2, 3), "epoch": 1, "lap": 2, "attempt": 0, "count": COUNT}


@pytest.mark.parametrize(
    "other",
    [
        *({"members": each} for each in [(0, 1, 2), (0, 1, 2, 4), (0, 1, 2, 3, 4)]),
        *({name: value} for name in ("epoch", "lap", "attempt") for value in (3, 2**63)),
        {"lap": 1, "epoch": 2},
        {"count": COUNT + 1},
    ],
)
def test_another_question_gives_other_words(other):
    one, two = mask(RINGS[0], **QUESTION), mask(RINGS[0], **(QUESTION | other))
    assert not np.intersect1d(one, two).size


def test_another_consortium_place_or_key_gives_another_mask():
    usual = mask(RINGS[0], **QUESTION)
    assert (mask(rings(6, consortium=bytes(32))[0], **QUESTION) != usual).all()
    keys = fixed_keys(6)
    public = [public_bytes(key) for key in keys]
    public[4], public[3] = public[3], public[4]
    swapped = agree(keys[0], 0, public, CONSORTIUM)
    assert swapped.pairs[4] != RINGS[0].pairs[3] and swapped.pairs[1] == RINGS[0].pairs[1]


def test_keys_and_words_are_those_of_the_formulas():
    """(1) to (4) again, with the HKDF of RFC 5869 by hand."""
    keys = fixed_keys(6)
    public = [public_bytes(key) for key in keys]
    expected = np.zeros(COUNT, np.uint64)
    members = hashlib.sha256(struct.pack(">4I", 0, 2, 3, 5)).digest()
    for j in (0, 3, 5):
        low, high = min(2, j), max(2, j)
        shared = keys[2].exchange(X25519PublicKey.from_public_bytes(public[j]))
        secret = hmac.new(CONSORTIUM, shared, hashlib.sha256).digest()
        label = b"relaydp masks, key of two, version 1" + struct.pack(">II", low, high) + public[low] + public[high]
        pair = hmac.new(secret, label + b"\x01", hashlib.sha256).digest()
        assert RINGS[2].pairs[j] == RINGS[j].pairs[2] == pair
        question = struct.pack(">QQQQ", 7, 8, 9, COUNT) + members
        own = hmac.new(pair, b"relaydp masks, lap, version 1" + question, hashlib.sha256).digest()
        stream = Cipher(algorithms.ChaCha20(own, bytes(16)), None).encryptor().update(bytes(8 * COUNT))
        words = np.array(struct.unpack(f"<{COUNT}Q", stream), np.uint64)
        expected = expected + words if j > 2 else expected - words
    assert np.array_equal(mask(RINGS[2], (5, 0, 2, 3), 7, 8, 9, COUNT), expected)


def test_a_masked_vector_looks_like_nothing():
    """A constant vector, over many laps: bytes at each place, bits, and successive words."""
    vector = np.full(20, 12345).view(np.uint64)
    sent = np.array([vector + mask(RINGS[1], (0, 1, 2), 1, lap, 0, 20) for lap in range(1000)])
    parts = sent.view(np.uint8).reshape(-1, 8)
    for place in range(8):
        assert stats.chisquare(np.bincount(parts[:, place], minlength=256)).pvalue > 1e-4
    ones = np.unpackbits(parts, axis=1).mean(0)
    assert np.abs(ones - 0.5).max() < 5 / (2 * np.sqrt(sent.size))
    uniform = (sent >> np.uint64(11)) / 2.0**53
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4
    for first, second in ((uniform[1:], uniform[:-1]), (uniform[:, 1:], uniform[:, :-1])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5 / np.sqrt(first.size)
    assert len(np.unique(sent)) == sent.size


# --- what is refused


def test_no_words_are_no_words():
    assert mask(RINGS[0], (0, 1), 0, 0, 0, 0).shape == (0,)


@pytest.mark.parametrize(
    ("members", "match"),
    [
        *(((0, 1, 6), "consortium"), ((-1, 0, 1), "consortium"), ((0, 1, 1), "consortium"), ((), "consortium")),
        *(((0, 1.0), "consortium"), ((0, True), "consortium"), (("0", "1"), "consortium")),
        *(((1, 2, 3), "do not include party 0"), ((0,), "bare")),
    ],
)
def test_members_are_parties_and_this_one_is_among_them(members, match):
    with pytest.raises(PrivacyError, match=match):
        mask(RINGS[0], members, 1, 2, 0, COUNT)


@pytest.mark.parametrize("wrong", [-1, 2**64, 1.0, True, None])
def test_numbers_are_whole(wrong):
    for name in ("epoch", "lap", "attempt"):
        with pytest.raises(PrivacyError, match="three whole numbers"):
            mask(RINGS[0], **(QUESTION | {name: wrong}))
    with pytest.raises(PrivacyError, match="count="):
        mask(RINGS[0], **(QUESTION | {"count": wrong}))


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_that_gives_zeros_is_refused(point):
    keys = fixed_keys(3)
    public = [public_bytes(key) for key in keys]
    with pytest.raises(PrivacyError, match="party 2 gives a secret that everybody knows"):
        agree(keys[0], 0, [*public[:2], point], CONSORTIUM)


def test_a_list_of_keys_has_ones_own_at_its_place_and_nobody_twice():
    keys = fixed_keys(3)
    public = [public_bytes(key) for key in keys]
    for me in (1, 3, -3):
        with pytest.raises(PrivacyError, match="another public key"):
            agree(keys[0], me, public, CONSORTIUM)
    for wrong, twice in ([public[0], public[1], public[0]], "0 and 2"), ([*public[:2], public[1]], "1 and 2"):
        with pytest.raises(PrivacyError, match=f"parties {twice} have the same"):
            agree(keys[0], 0, wrong, CONSORTIUM)
    for wrong in ([public[0], public[1][:-1]], [public[0]], [public[0], None]):
        with pytest.raises(PrivacyError, match="32 bytes each"):
            agree(keys[0], 0, wrong, CONSORTIUM)
    for wrong in (b"", bytes(31), "0" * 32):
        with pytest.raises(PrivacyError, match="consortium="):
            agree(keys[0], 0, public, wrong)


@pytest.mark.parametrize("graph", [[], [(1,), ()], [(1,), (0,), ()], [(0, 1), (0,)], [(1, 2), (0,)], [(-1,), (0,)]])
def test_a_graph_says_the_same_to_both_neighbours(graph):
    keys = fixed_keys(2)
    with pytest.raises(PrivacyError, match="graph of masks"):
        agree(keys[0], 0, [public_bytes(key) for key in keys], CONSORTIUM, graph)


def test_keys_are_new_and_are_not_shown():
    assert public_bytes(new_key()) != public_bytes(new_key())
    assert RINGS[0].pairs[1].hex() not in repr(RINGS[0]) and "pairs" not in repr(RINGS[0])


def test_without_the_package_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from relaydp.errors import InputError; from relaydp.privacy import masks\n"
        "try: masks.new_key()\nexcept InputError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "relaydp[network]" in ended.stdout, ended.stderr


# --- one contribution


class Disk:
    """What a party's disk keeps, and how often it was asked to."""

    def __init__(self):
        self.kept = []

    def __call__(self, contribution):
        self.kept.append(contribution)


VECTOR = np.array([5, -3, 2**62, 0, -(2**62), 1])


def vector():
    """A contribution, and one that may be asked for once."""
    left = iter([VECTOR])
    return lambda: next(left)


def never():
    raise AssertionError("the records were read again")


def test_contributions_of_all_members_add_up_to_the_vectors():
    rng = np.random.default_rng(0)
    vectors = rng.integers(-(2**40), 2**40, (6, COUNT))
    parties = [Contributions(each, 4, Disk()) for each in RINGS]
    for lap, members in enumerate([(0, 1, 2, 3, 4, 5), (0, 2, 3, 5), (1, 2, 3, 4, 5)]):
        baton = np.zeros(COUNT, np.uint64)
        for i in rng.permutation(members):
            baton += parties[i].contribute((0, lap, 0), members, b"x", lambda i=i: vectors[i])
        assert np.array_equal(baton.view(np.int64), vectors[list(members)].sum(0))


def test_the_same_question_gets_the_same_words_and_another_none():
    """Records are read, noise is drawn and keys are used once; other questions under the number are refused."""
    disk = Disk()
    party = Contributions(RINGS[0], 3, disk)
    first = party.contribute((1, 4, 1), (0, 1, 2), b"model", vector())
    assert np.array_equal(first, VECTOR.view(np.uint64) + mask(RINGS[0], (0, 1, 2), 1, 4, 1, COUNT))
    for members in ((0, 1, 2), (2, 0, 1)):
        assert party.contribute((1, 4, 1), members, b"model", never).tobytes() == first.tobytes()
    for members, x in (((0, 1, 2), b"other"), ((0, 1, 3), b"model"), ((0, 1, 2, 3), b"model"), ((0, 1, 2), b"")):
        with pytest.raises(PrivacyError, match="another model or other members"):
            party.contribute((1, 4, 1), members, x, never)
    for number in ((1, 4, 0), (1, 3, 9), (0, 9, 9)):
        with pytest.raises(PrivacyError, match="earlier numbers are over"):
            party.contribute(number, (0, 1, 2), b"model", never)
    for number in ((1, 4, 2), (1, 5, 0), (2, 0, 0)):
        assert not np.intersect1d(party.contribute(number, (0, 1, 2), b"model", vector()), first).size
    assert [each.number for each in disk.kept] == [(1, 4, 1)] * 3 + [(1, 4, 2), (1, 5, 0), (2, 0, 0)]


def test_a_party_that_starts_again_remembers():
    disk = Disk()
    first = Contributions(RINGS[0], 3, disk).contribute((1, 4, 1), (0, 1, 2), b"model", vector())
    again = Contributions(RINGS[0], 3, disk, disk.kept[-1])
    assert again.contribute((1, 4, 1), (0, 1, 2), b"model", never).tobytes() == first.tobytes()
    with pytest.raises(PrivacyError, match="another model"):
        again.contribute((1, 4, 1), (0, 1, 2), b"other", never)


def test_nothing_leaves_before_it_is_stored():
    """A full disk: no words. The number is used up for other questions all the same, as it may have been stored."""
    disk = Disk()

    def full(contribution):
        raise OSError("no space left")

    party = Contributions(RINGS[0], 3, full)
    with pytest.raises(OSError, match="no space"):
        party.contribute((0, 0, 0), (0, 1, 2), b"model", vector())
    with pytest.raises(PrivacyError, match="another model"):
        party.contribute((0, 0, 0), (0, 1, 2), b"other", never)
    party._keep = disk
    words = party.contribute((0, 0, 0), (0, 1, 2), b"model", never)
    assert isinstance(disk.kept[0], Contribution) and disk.kept[0].words is words and not words.flags.writeable


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ((0, 1), "agreed on 3 or more"),
        ((1, 2, 3), "do not include"),
        ((0, 1, 9), "consortium"),
        ((0, 0, 1), "different"),
    ],
)
def test_what_no_party_contributes_to(members, match):
    disk = Disk()
    party = Contributions(RINGS[0], 3, disk)
    with pytest.raises(PrivacyError, match=match):
        party.contribute((0, 0, 0), members, b"model", never)
    assert not disk.kept


@pytest.mark.parametrize("number", [(0, 0), (0, 0, -1), (0, 0, 0, 0), (0, 0, 1.0), (0, 2**64, 0)])
def test_a_number_is_three_whole_numbers(number):
    with pytest.raises(PrivacyError, match="three whole numbers"):
        Contributions(RINGS[0], 3, Disk()).contribute(number, (0, 1, 2), b"model", never)


@pytest.mark.parametrize("wrong", [VECTOR.astype(float), VECTOR.astype(np.int32), VECTOR.reshape(2, 3), [1, 2], None])
def test_a_vector_is_a_row_of_lattice_points(wrong):
    disk = Disk()
    with pytest.raises(PrivacyError, match="int64 with one axis"):
        Contributions(RINGS[0], 3, disk).contribute((0, 0, 0), (0, 1, 2), b"model", lambda: wrong)
    assert not disk.kept


@pytest.mark.parametrize("quorum", [1, 0, 7, 2.0, True, None])
def test_a_quorum_is_a_number_of_parties(quorum):
    with pytest.raises(PrivacyError, match="quorum="):
        Contributions(RINGS[0], quorum, Disk())


# --- many parties


def as_network(graph):
    return networkx.Graph([(i, j) for i, near in enumerate(graph) for j in near])


@pytest.mark.parametrize(("parties", "degree"), [(5, 4), (6, 2), (24, 6), (50, 14), (3, 2), (2, 1)])
def test_a_graph_is_regular_and_as_connected_as_it_can_be(parties, degree):
    graph = mask_graph(parties, degree, SEED)
    assert all(len(set(near)) == degree and i not in near for i, near in enumerate(graph))
    assert all(i in graph[j] for i, near in enumerate(graph) for j in near)
    assert networkx.node_connectivity(as_network(graph)) == degree  # Harary: no graph of this degree has more
    assert graph == mask_graph(parties, degree, SEED)
    assert degree >= parties - 2 or graph != mask_graph(parties, degree, b"t" * 32)


def seeds(count):
    return [hashlib.sha256(struct.pack(">I", n)).digest() for n in range(count)]


def test_every_order_of_the_parties_is_as_likely():
    """Of four parties with two neighbours each, one is no neighbour of party 0: each other, a third of the time."""
    apart = [({1, 2, 3} - set(mask_graph(4, 2, seed)[0])).pop() for seed in seeds(3000)]
    assert stats.chisquare(np.bincount(apart, minlength=4)[1:]).pvalue > 1e-4


def test_masks_along_a_graph_cancel_and_cross_no_other_pair():
    graph = mask_graph(12, 4, SEED)
    each = rings(12, graph)
    assert all(sorted(ring.pairs) == sorted(graph[i]) for i, ring in enumerate(each))
    everybody = tuple(range(12))
    without = tuple(i for i in everybody if i not in (3, 7))
    for members in (everybody, without):
        assert (total(each, members) == 0).all()
    near = graph[0]
    bare = tuple(i for i in everybody if i not in near)  # a coalition that calls all of somebody's neighbours lost
    with pytest.raises(PrivacyError, match="bare"):
        mask(each[0], bare, 1, 2, 0, COUNT)


def is_apart(graph, colluders, lost):
    """Whether the honest parties can be separated by taking away as many of them."""
    honest = as_network(graph)
    honest.remove_nodes_from(colluders)
    return networkx.node_connectivity(honest) <= lost


@pytest.mark.parametrize(
    ("parties", "degree", "colluders", "lost"),
    [(12, 2, 3, 0), (12, 4, 6, 0), (16, 4, 7, 0), (14, 4, 4, 1), (16, 4, 3, 2), (20, 6, 8, 1)],
)
def test_the_chance_of_falling_apart_is_at_most_what_is_proven(parties, degree, colluders, lost):
    """By simulation; networkx finds the worst parties to lose. The bound counts pairs of runs, and is not far off."""
    tries, who = 400, range(colluders)
    apart = sum(is_apart(mask_graph(parties, degree, seed), who, lost) for seed in seeds(tries))
    bound = chance_apart(parties, degree, colluders, lost)
    assert stats.binom.sf(apart - 1, tries, min(1.0, bound)) > 1e-4  # no more than the bound allows
    assert bound == 1 or stats.binom.cdf(apart, tries, bound / 4) > 1e-4  # nor so few that it says nothing


def test_the_bound_is_the_sum_it_is_said_to_be():
    for n, k, t, d in [(12, 4, 6, 0), (40, 8, 12, 2), (300, 40, 60, 12)]:
        expected = n * (n - k + 1) / 2 * stats.hypergeom.sf(k - d - 1, n, t, k)
        assert chance_apart(n, k, t, d) == pytest.approx(min(1.0, expected), rel=1e-9)
    assert chance_apart(40, 16, 12, 3) == 0.0  # more neighbours than colluders and lost parties


@pytest.mark.parametrize(
    ("parties", "colluders", "lost", "probability"),
    [(100, 33, 10, 1e-9), (1000, 100, 50, 1e-12), (1000, 500, 0, 1e-9), (5000, 500, 100, 1e-15), (200, 0, 0, 0.0)],
)
def test_a_degree_is_the_least_that_will_do(parties, colluders, lost, probability):
    degree, chance = degree_for(parties, colluders, lost, probability)
    assert chance == chance_apart(parties, degree, colluders, lost) <= probability
    assert degree == 2 or chance_apart(parties, degree - 2, colluders, lost) > probability
    assert degree <= colluders + lost + 2  # with so many nothing is left to chance


def test_below_a_hundred_parties_it_is_all_pairs():
    assert degree_for(99, 50, 10, 0.5) == (98, 0.0) and degree_for(100, 50, 10, 0.5).degree < 99


@pytest.mark.parametrize("counts", [(10, 9, 0), (10, 5, 4), (10, -1, 0), (10, 1, -1), (10.0, 1, 1), (1, 0, 0)])
def test_two_honest_parties_are_left(counts):
    with pytest.raises(PrivacyError, match="two honest parties"):
        degree_for(*counts, 1e-9)


@pytest.mark.parametrize("probability", [-1e-9, 1.0, 2.0, float("nan")])
def test_a_chance_is_a_chance(probability):
    with pytest.raises(PrivacyError, match="probability="):
        degree_for(200, 10, 10, probability)


@pytest.mark.parametrize(("parties", "degree"), [(10, 3), (10, 0), (10, 10), (10, -2), (10, 4.0), (1, 0), (True, 2)])
def test_a_degree_is_even_or_all(parties, degree):
    with pytest.raises(PrivacyError, match="degree="):
        mask_graph(parties, degree, SEED)


@pytest.mark.parametrize("seed", [b"", bytes(31), "s" * 32, None, 3])
def test_a_seed_is_32_bytes(seed):
    with pytest.raises(PrivacyError, match="seed="):
        mask_graph(10, 4, seed)


def test_a_changed_number_of_parties_changes_what_members_may_be():
    with pytest.raises(PrivacyError, match="0 to 3"):
        mask(replace(RINGS[0], parties=4), (0, 5), 1, 2, 0, COUNT)
