"""What a party allows: a plan, with all earlier ones over the same records, may cost at most the party's own limit.

The limit is an epsilon at a delta of the party's own. At a delta chosen by the file's author it would mean nothing: a
plan that costs epsilon 22 at delta 1e-5 costs epsilon 1 at delta 0.9.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

from relaydp.errors import PrivacyError
from relaydp.network.operations.paths import journal_folder
from relaydp.privacy.accountant import epsilon_exact
from relaydp.privacy.budget import DELTA_FLOOR


def check_limit(
    home: Path, identity: bytes, planned_rho: float, max_delta: float, max_epsilon: float, records: int = 1
) -> None:
    """Refuse a plan that, with all earlier ones over these records, costs more than this party allows.

    Everything is evaluated at the party's own `max_delta`, whatever the file says, which is below 1/records.
    """
    if not (math.isfinite(max_epsilon) and max_epsilon > 0):
        raise PrivacyError(
            f"max_epsilon={max_epsilon!r}; it must be a finite number above 0: the largest epsilon that this party "
            "allows."
        )
    if not DELTA_FLOOR <= max_delta < 1.0 / max(2, records):
        raise PrivacyError(
            f"max_delta={max_delta!r} for {records} records; it must be at least {DELTA_FLOOR:g} and less than "
            f"1/{max(2, records)}, because publishing one whole record, picked at random, already satisfies delta = "
            f"1/{max(2, records)}. Pass a smaller --max-delta."
        )
    earlier = {name: rho for name, rho in promised(home).items() if name != journal_folder(home, identity).name}
    total = math.fsum([planned_rho, *earlier.values()])
    epsilon = epsilon_exact(total, max_delta)
    if epsilon > max_epsilon * (1 + 1e-9):
        before = f", together with {len(earlier)} earlier consortia over these records" if earlier else ""
        raise PrivacyError(
            f"this plan would spend epsilon {epsilon:.6g} at delta {max_delta:g}{before}; this party allows "
            f"{max_epsilon:g}. Agree on a smaller budget, or raise --max-epsilon if its owners decide so."
        )


def promised(home: Path) -> dict[str, float]:
    """The rho that each consortium in this home may spend, whether it has started or ended."""
    found = {}
    for path in sorted(home.glob("*/journal.db")):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                (rho,) = db.execute("SELECT value FROM meta WHERE key='limit_rho'").fetchone()
            found[path.parent.name] = float(rho)
        except (sqlite3.Error, TypeError) as error:
            raise PrivacyError(
                f"{path} cannot be read ({error}), so the promises it has made about these records are unknown. Repair "
                "it, or move its folder away if it was never used."
            ) from error
    return found
