"""Whom a promise is against, and the shares of the noise that follow from it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaydp.errors import InputError, PrivacyError
from relaydp.privacy import Ledger, verify
from relaydp.privacy.trust import CURATOR, MASKED, NOBODY, RATIO, Trust, hidden, shares, trust_from, trust_of

demands = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6).map(np.array)


def worst(added: np.ndarray, victim: int, honest: int) -> float:
    """The noise that is left with any `honest` parties, the victim among them, whoever the others are."""
    others = [i for i in range(len(added)) if i != victim]
    return min(
        float(np.sqrt(added[victim] ** 2 + sum(added[i] ** 2 for i in rest)))
        for rest in combinations(others, honest - 1)
    )


@given(demands, st.data())
def test_whoever_colludes_every_party_has_the_noise_that_it_needs(demanded, data):
    honest = data.draw(st.integers(1, len(demanded)))
    added = shares(demanded, honest)
    for victim, needed in enumerate(demanded):
        assert worst(added, victim, honest) >= needed
        assert hidden(added, honest)[victim] == pytest.approx(worst(added, victim, honest), rel=1e-12)


@given(demands, st.data())
def test_no_form_of_the_shares_adds_less(demanded, data):
    """Against a dense search for `a`, and against everybody adding all that it needs itself."""
    honest = data.draw(st.integers(2, len(demanded)))
    squares, total = demanded**2, float((shares(demanded, honest) ** 2).sum())
    a = np.linspace(squares.max() / RATIO**2, squares.max(), 2000)[:, None]
    others = np.maximum(a, squares - (honest - 1) * a).sum(axis=1).min()
    assert total <= others * (1 + 1e-9)
    assert total <= squares.sum() * (1 + 1e-9) + len(squares) * squares.max() / RATIO**2


@given(demands)
def test_more_trust_never_takes_more_noise(demanded):
    totals = [float((shares(demanded, honest) ** 2).sum()) for honest in range(1, len(demanded) + 1)]
    floor = len(demanded) * float(demanded.max() / RATIO) ** 2  # what the least share costs where parties differ much
    assert all(more <= less * (1 + 1e-9) + floor for less, more in zip(totals, totals[1:], strict=False))


def test_the_shares_of_equal_parties_are_the_table_of_the_page():
    """Noise of the mean, in units of a curator's, for eight parties."""
    for collusion, told in {7: 2.83, 6: 2.00, 4: 1.41, 2: 1.15, 1: 1.07}.items():
        added = shares(np.ones(8), 8 - collusion)
        assert np.sqrt((added**2).sum()) == pytest.approx(told, abs=0.006)


def test_who_trusts_nobody_adds_what_it_needs():
    demanded = np.array([0.3, 1.0, 2.5])
    assert (shares(demanded, 1) == demanded).all()
    assert (hidden(demanded, 1) == demanded).all()


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ((None, 0, None), PrivacyError, "curious party"),
        ((None, 8, None), PrivacyError, "needed less than 8"),
        ((None, 3, 3), PrivacyError, "needed less than 3"),
        ((None, 1, 9), InputError, "needed 8 or less"),
        ((None, None, 5), InputError, "without collusion"),
        (("curator", 1, None), InputError, "one of the two"),
        (("somebody", None, None), InputError, "curator, nobody"),
        ((None, True, None), InputError, "whole number"),
        ((None, 1.0, None), InputError, "whole number"),
        ((None, 1, "8"), InputError, "whole number"),
    ],
)
def test_what_no_promise_can_be_made_of_is_refused(asked, error, words):
    with pytest.raises(error, match=words):
        trust_of(*asked, parties=8)


def test_what_is_asked_for_and_what_it_means():
    assert trust_of(None, None, None, 8) == trust_of("nobody", None, None, 8) == trust_of(None, 7, None, 8)
    assert trust_of(None, 4, 5, 8).kind == NOBODY  # one honest party may be left: its own noise must do
    assert trust_of(None, 2, 6, 8) == Trust(MASKED, 8, 2, 6)
    assert trust_of("curator", None, None, 8) == Trust(CURATOR, 8, 0, 8)
    assert trust_of(None, None, None, 1).against == trust_of("curator", None, None, 1).against


@given(st.sampled_from([trust_of(None, None, None, 5), trust_of("curator", None, None, 5), trust_of(None, 2, 4, 5)]))
def test_trust_survives_json(trust):
    assert trust_from(trust.to_json()) == trust


@pytest.mark.parametrize(
    "change", [{"kind": "x"}, {"collusion": 0}, {"collusion": 4}, {"quorum": 6}, {"parties": 3.0}, {"quorum": True}]
)
def test_trust_that_nobody_wrote_is_refused(change):
    with pytest.raises(ValueError, match="trust"):
        trust_from(trust_of(None, 2, 4, 5).to_json() | change)


# -- in the ledger


def summed(share=0.5, scale=None, laps=2):
    """Three agents, one of which may collude, with shares of their noise."""
    ledger = Ledger(3, np.inf, trust=trust_of(None, 1, None, 3))
    left = float(hidden(np.full(3, 0.5), 2)[0])
    for lap in range(laps):
        for agent in range(3):
            ledger.charge(agent, 3 * lap + agent, 0.01, left if scale is None else scale, share=share)
    return ledger


def test_a_ledger_tells_each_share_and_whom_it_is_against():
    saved = summed().to_json()
    assert saved["trust"] == {"kind": "masked", "parties": 3, "collusion": 1, "quorum": 3}
    assert saved["releases"]["share"] == [0.5] * 6
    assert Ledger.from_json(saved) == summed()
    assert verify(saved, 1e-5).holds


def test_noise_that_is_not_left_of_a_lap_cannot_be_charged_for():
    saved = summed(scale=0.75).to_json()  # 0.707 is left
    with pytest.raises(PrivacyError, match="noise that is not there"):
        Ledger.from_json(saved)
    assert "0.707" in verify(saved, 1e-5).reasons[0]


def test_a_lap_that_was_never_completed_was_never_opened():
    ledger = summed(laps=1)
    ledger.charge(0, 3, 0.01, 5.0, share=0.5)
    assert verify(ledger.to_json(), 1e-5).holds


def test_a_lap_of_a_quorum_was_opened_too():
    """Of four agents three are enough for a lap, and one of them may collude."""
    ledger = Ledger(4, np.inf, trust=trust_of(None, 1, 3, 4))
    for agent in (1, 2, 3):
        ledger.charge(agent, agent, 0.01, 5.0, share=0.5)  # 0.707 is left
    assert "agent 1's release 1" in verify(ledger.to_json(), 1e-5).reasons[0]
    with pytest.raises(PrivacyError, match="noise that is not there"):
        Ledger.from_json(ledger.to_json())


def test_an_edited_trust_is_noticed():
    saved = summed().to_json()
    saved["trust"]["collusion"] = 2
    assert not verify(saved, 1e-5).holds
    del saved["trust"]
    with pytest.raises(PrivacyError, match="not a saved ledger"):
        verify(saved, 1e-5)


def test_shares_belong_to_ledgers_with_trust_and_all_rows_of_these_have_one():
    with pytest.raises(PrivacyError, match="share="):
        Ledger(3, np.inf).charge(0, 0, 0.01, 1.0, share=0.5)
    with pytest.raises(PrivacyError, match="share="):
        summed().charge(0, 9, 0.01, 1.0)
    with pytest.raises(PrivacyError, match="gaussian"):
        summed().charge(0, 9, 0.01, 1.0, kind="pure", epsilon=0.1, share=0.5)
    with pytest.raises(PrivacyError, match="3 parties for 2 agents"):
        Ledger(2, np.inf, trust=trust_of(None, 1, None, 3))
