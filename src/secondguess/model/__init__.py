"""The system under test: a classifier, what runs it, what can be observed of it, and where that is kept."""

from secondguess.model.classifier import Classifier
from secondguess.model.observation import PENULTIMATE, Needs, Observation, Trace
from secondguess.model.session import Session

__all__ = ["PENULTIMATE", "Classifier", "Needs", "Observation", "Session", "Trace"]
