"""Attacks on the real code with the real plan: they try to refute what a plan promises, and say what was tried."""

from nestegg.audit.audit import Audit, audit
from nestegg.audit.clock import Clock
from nestegg.audit.findings import FALSE_ALARMS, Finding, Judged
from nestegg.audit.tradeoff import Evidence
from nestegg.audit.writing import write_audit

__all__ = ["FALSE_ALARMS", "Audit", "Clock", "Evidence", "Finding", "Judged", "audit", "write_audit"]
