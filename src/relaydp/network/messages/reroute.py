"""What to do if a neighbour is lost with the baton: an order that every other party signs.

The baton went to a party that is gone. Sending it elsewhere could make two batons if the first comes back, and it shows
a release to a second party. So it is an operator's decision, not the agent's, and all parties have to agree:

    order     consortium, epoch (the current one + 1), the lost party, the stuck message (seq and hash), who sends it
    signed    by every party but the lost one, each with the key of its certificate
    applied   at every party, its agent stopped: from then on messages of the old epoch are refused (and with them a
              second baton, wherever it is), the walk avoids the lost party, and the sender sends the same bytes to
              another neighbour and is charged for them again

The sender's budget is fixed, so the cost of the second release is taken from its last activations.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium import identity as tls
from relaydp.network.messages.journal import REROUTE, Journal, ReleaseCharge
from relaydp.network.messages.wire import BATON


@dataclass(frozen=True)
class Order:
    consortium: str  # identity, hex
    epoch: int
    lost: str
    sender: str
    seq: int
    hash: str
    signatures: dict[str, str] = field(default_factory=dict)  # party -> hex

    def text(self) -> bytes:
        """What is signed: everything but the signatures."""
        content = {name: value for name, value in asdict(self).items() if name != "signatures"}
        return b"relaydp reroute " + json.dumps(content, sort_keys=True).encode()


def new_order(consortium: Any, journal: Journal) -> Order:
    """Made from its journal by the party whose baton is stuck."""
    stuck = [(who, message) for who, message in journal.undelivered() if message.kind == BATON]
    if not stuck:
        raise InputError("no baton of this party waits for an acknowledgement, so there is nothing to reroute.")
    lost, message = stuck[-1]
    return Order(
        consortium=consortium.identity.hex(),
        epoch=journal.epoch + 1,
        lost=lost,
        sender=str(journal.get("party")),
        seq=message.seq,
        hash=message.hash().hex(),
    )


def sign_order(order: Order, identity: tls.Identity, consortium: Any, journal: Journal) -> Order:
    """Add this party's signature; refuse if its own journal shows that the baton is not lost."""
    names = [party.name for party in consortium.parties]
    if order.consortium != consortium.identity.hex() or order.lost not in names or order.sender not in names:
        raise InputError("this order is for another consortium, or names a party that this one does not have.")
    if order.epoch != journal.epoch + 1:
        raise InputError(
            f"this order begins epoch {order.epoch}; it must begin {journal.epoch + 1}, one more than this journal's."
        )
    if identity.name == order.lost:
        raise PrivacyError(f"the order calls {order.lost} lost, and this is its agent. Start it instead.")
    if journal.highest > order.seq or journal.waiting(BATON) is not None:
        raise PrivacyError(
            f"this party has seen the baton at seq {journal.highest}, and the order calls it lost at {order.seq}: it "
            "is not lost. Signing would make two batons; nothing was signed."
        )
    signature = tls.sign(identity, order.text()).hex()
    return replace(order, signatures={**order.signatures, identity.name: signature})


def apply_order(order: Order, consortium: Any, journal: Journal) -> str | None:
    """Begin the new epoch in this party's journal (its agent stopped). Returns the neighbour that gets the baton, if
    this party sends it."""
    if order.consortium != consortium.identity.hex() or order.epoch != journal.epoch + 1:
        raise InputError(f"this order is for epoch {order.epoch} of {order.consortium[:16]}; it does not fit here.")
    for party in consortium.parties:
        given = bytes.fromhex(order.signatures.get(party.name, ""))
        if party.name != order.lost and not tls.check_signature(party.certificate, order.text(), given):
            raise PrivacyError(
                f"the signature of {party.name} is missing or wrong; all parties but {order.lost} must sign."
            )
    party = str(journal.get("party"))
    if party == order.lost:
        raise PrivacyError("this party was declared lost; it can take no further part in this consortium.")
    lost = " ".join([*str(journal.get("lost", "")).split(), order.lost])
    facts: dict[str, Any] = {"epoch": order.epoch, "lost": lost}
    if party != order.sender:
        journal.commit(facts=facts)
        return None
    receiver = _another(consortium, party, lost.split())
    stuck = next((m for _, m in journal.undelivered() if m.kind == BATON and m.hash().hex() == order.hash), None)
    if stuck is None:
        raise InputError("the message that the order names is not in this journal, or has been acknowledged since.")
    again = replace(stuck, epoch=order.epoch)
    journal.commit(
        charges=_second_showing(journal, stuck.seq),
        send=[(receiver, again)],
        cancel=(order.lost, stuck),
        facts=facts,
    )
    return receiver


def _second_showing(journal: Journal, seq: int) -> tuple[ReleaseCharge, ...]:
    """The cost of releasing the newest vector again; empty if the stuck baton was only relayed."""
    rows = journal.ledger()
    if not rows or rows[-1].seq != seq - 1:
        return ()
    charge = ReleaseCharge(seq, rows[-1].sensitivity, rows[-1].scale, REROUTE)
    if not journal.affords(charge):
        raise PrivacyError(
            f"showing the release again costs rho {charge.rho:.4g}, and only {journal.limit_rho - journal.spent:.4g} "
            f"of {journal.limit_rho:.4g} is left. This party cannot reroute; agree on a new consortium."
        )
    return (charge,)


def _another(consortium: Any, party: str, lost: list[str]) -> str:
    names = [each.name for each in consortium.parties]
    around = [names[j] for j in consortium.graph.neighbours(names.index(party)).tolist()]
    left = [name for name in around if name not in lost]
    if not left:
        raise InputError(f"{party} has no neighbour but {', '.join(lost)}; there is no other way for the baton.")
    return left[0]


def read_order(path: Path) -> Order:
    try:
        return Order(**json.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is not a rerouting order ({error}); make one with `relaydp agent reroute`."
        ) from error


def write_order(path: Path, order: Order) -> None:
    path.write_text(json.dumps(asdict(order), indent=2) + "\n")
