"""The product's main job: everything known about one classifier, in one report."""

from secondguess.audits.gates import Gate
from secondguess.audits.result import AuditResult
from secondguess.audits.run import run_audit
from secondguess.audits.subject import train_subject

__all__ = ["AuditResult", "Gate", "run_audit", "train_subject"]
