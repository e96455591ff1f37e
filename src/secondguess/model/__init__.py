"""The system under test: a classifier, what runs it, what can be observed of it, and where that is kept."""

from secondguess.model.check import ModelCheck, check_model
from secondguess.model.classifier import Classifier
from secondguess.model.convert import Conversion, convert_checkpoint
from secondguess.model.describe import describe_model
from secondguess.model.description import Description
from secondguess.model.libraries import of_weights
from secondguess.model.needs import PENULTIMATE, Needs, Trace
from secondguess.model.observation import Observation
from secondguess.model.session import Session

__all__ = [
    "PENULTIMATE",
    "Classifier",
    "Conversion",
    "Description",
    "ModelCheck",
    "Needs",
    "Observation",
    "Session",
    "Trace",
    "check_model",
    "convert_checkpoint",
    "describe_model",
    "of_weights",
]
