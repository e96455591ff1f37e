"""The optional parts of the package, and whether they are installed: from the metadata alone, nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

__all__ = ["PURPOSES", "Extra", "extras", "unmet"]

PACKAGE = "secondguess"
# The extras for users; those for developers (dev, docs) are not listed.
PURPOSES = {
    "onnx": "ONNX models",
    "attacks": "adversarial stress images",
    "explain": "explanations of mistakes",
    "app": "the labelling page, the guard's service and its watch page",
    "hub": "Parquet files and Hugging Face data sets",
    "models": "ConvNeXt and ViT of transformers",
    "flow": "ambiguous photographs",
    "ood": "supervisors of pytorch-ood",
    "lightning": "a guard beside a trainer of Lightning",
    "mlflow": "results in MLflow",
    "wandb": "results in Weights & Biases",
    "fiftyone": "verdicts and scores in FiftyOne",
    "remote": "images at URLs such as s3://",
    "postgres": "records of the service in PostgreSQL",
    "kafka": "images from a Kafka topic",
    "distributed": "work on a Dask cluster",
    "ray": "work on a Ray cluster",
    "faiss": "search neighbours approximately",
    "inception": "how real generated images look, by an Inception network",
}


@dataclass(frozen=True)
class Extra:
    """An optional part.

    Attributes:
        name: as in `pip install "secondguess[name]"`.
        purpose: what it is for.
        unmet: what it requires and is not installed, or too old.
    """

    name: str
    purpose: str
    unmet: tuple[str, ...]

    @property
    def installed(self) -> bool:
        """Whether everything that it requires is there."""
        return not self.unmet


def extras() -> list[Extra]:
    """All optional parts for users."""
    return [Extra(name, purpose, unmet(name)) for name, purpose in PURPOSES.items()]


@cache
def unmet(extra: str = "") -> tuple[str, ...]:
    """What an extra (without one: the core) requires and is not installed, or too old."""
    from packaging.requirements import Requirement  # matplotlib brings it

    missing = []
    for text in _requirements():
        required = Requirement(text)
        applies = required.marker is None or required.marker.evaluate({"extra": extra})
        if not applies or (extra and required.marker is None):
            continue
        try:
            found = metadata.version(required.name)
        except metadata.PackageNotFoundError:
            missing.append(required.name)
            continue
        if not required.specifier.contains(found, prereleases=True):
            missing.append(f"{required.name}{required.specifier} (here {found})")
    return tuple(missing)


@cache
def _requirements() -> tuple[str, ...]:
    try:
        return tuple(metadata.requires(PACKAGE) or ())
    except metadata.PackageNotFoundError:  # a checkout that was never installed
        return ()
