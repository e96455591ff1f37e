"""The product's main job: everything known about one classifier, in one report."""

from secondguess.audit.gates import Gate
from secondguess.audit.result import AuditResult
from secondguess.audit.run import run_audit
from secondguess.audit.subject import train_subject

__all__ = ["AuditResult", "Gate", "run_audit", "train_subject"]
