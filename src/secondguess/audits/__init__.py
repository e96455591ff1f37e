"""The audit: everything known about one classifier, in one report."""

from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.gates import Gate, GateOutcome
from secondguess.audits.result import AuditResult
from secondguess.audits.run import audit
from secondguess.audits.sections import Section
from secondguess.audits.subject import train_subject

__all__ = ["AuditResult", "Findings", "Gate", "GateOutcome", "NotApplicable", "Section", "audit", "train_subject"]
