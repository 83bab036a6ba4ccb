"""Where an agent keeps things.

    HOME/key.pem, certificate.pem       who this party is (`relaydp agent keygen`)
    HOME/<identity>/journal.db          what it has taken in, released and spent in one consortium
    HOME/<identity>/result/             the model, ledger and certificate, once there is an end
    HOME/<identity>.mark                how many commits the journal has: outside its folder, to notice old copies

One home is one set of records: what earlier consortia have promised about them counts against `max_epsilon`.
"""

from __future__ import annotations

from pathlib import Path

RESULT = "result"
RUNNING = "running.json"  # where a running agent says how to reach its status


def journal_folder(home: Path, identity: bytes) -> Path:
    return home / identity.hex()[:16]
