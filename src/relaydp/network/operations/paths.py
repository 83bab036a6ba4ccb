"""The files of an agent.

    HOME/key.pem, certificate.pem       who this party is (`relaydp agent keygen`)
    HOME/<identity>/journal.db          what it has received, released and spent in one consortium
    HOME/<identity>/result/             the model, ledger and certificate, after the end
    HOME/<identity>.mark                how many commits the journal has: outside its folder, to detect old copies

One home is one set of records: the budgets of earlier consortia over them count against `max_epsilon`.
"""

from __future__ import annotations

from pathlib import Path

RESULT = "result"
RUNNING = "running.json"  # where a running agent says how to reach its status


def journal_folder(home: Path, identity: bytes) -> Path:
    return home / identity.hex()[:16]
