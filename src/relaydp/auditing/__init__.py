"""Audits: privacy claims put to the test by experiment."""

from relaydp.auditing.audit import AuditReport, Bound, audit
from relaydp.auditing.canary import CANARIES

__all__ = ["CANARIES", "AuditReport", "Bound", "audit"]
