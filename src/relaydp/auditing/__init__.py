"""Audits: tests of privacy claims by experiment.

audit      how well can two neighbouring data sets be distinguished?  -> a lower bound on epsilon
campaign   what can an eavesdropper compute from a run's messages?    -> records, compared with the true ones
"""

from relaydp.auditing.auditor import audit
from relaydp.auditing.campaigns import (
    Campaign,
    CampaignRow,
    SavedAttack,
    Target,
    campaign,
    few,
    fresh_runs,
    load_attack,
    saved_run,
)
from relaydp.auditing.canary import CANARIES
from relaydp.auditing.report import AuditReport
from relaydp.auditing.scores import Bound

__all__ = [
    "CANARIES",
    "AuditReport",
    "Bound",
    "Campaign",
    "CampaignRow",
    "SavedAttack",
    "Target",
    "audit",
    "campaign",
    "few",
    "fresh_runs",
    "load_attack",
    "saved_run",
]
