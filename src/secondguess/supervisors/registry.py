"""Supervisors by name: built-in ones by decorator, others by an entry point in the group `secondguess.supervisors`.

They appear in the audit, in `secondguess supervisors` and in gates, under their `name`. A class may name the `family`
to which it belongs, under whose heading it is then listed, and that it is `expensive`, such as one that trains twenty
models: it is then left out of `"standard"`, which is what an audit takes by default. Detectors of pytorch-ood are found
by name as well, `pytorch_ood:EnergyBased`; see `pytorch_ood`.
"""

from __future__ import annotations

from secondguess.contracts.registry import Registry
from secondguess.supervisors.base import Supervisor

__all__ = ["REGISTRY", "family", "get", "make", "make_all", "names", "register"]

OURS = (  # the modules of this room that hold supervisors
    "softmax",
    "dropout",
    "ensemble",
    "dissector",
    "surprise.dsa",
    "surprise.lsa",
    "surprise.mdsa",
    "surprise.mixtures",
    "autoencoder",
    "appearance",
    "logits",
    "posterior",
    "knn",
    "vim",
    "relative_mahalanobis",
    "normalised_mahalanobis",
    "activation_shaping",
    "fdbd",
    "nnguide",
    "she",
)

REGISTRY: Registry[type[Supervisor], Supervisor] = Registry(
    Supervisor.noun,
    base=Supervisor,
    public="secondguess.Supervisor",
    package="secondguess.supervisors",
    group="secondguess.supervisors",
    modules=OURS,
    bare=True,  # "all" makes every supervisor without arguments
    unlisted={"pytorch_ood": "pytorch_ood:FromPytorchOOD"},  # pytorch_ood:EnergyBased
)
register, names, get = REGISTRY.register, REGISTRY.names, REGISTRY.get
make, make_all = REGISTRY.make, REGISTRY.make_all


def family(kind: type[Supervisor]) -> str:
    """The heading under which a supervisor is listed: its own `family`, or the module of this room that it is from."""
    if kind.family:
        return kind.family
    ours, _, rest = kind.__module__.partition("secondguess.supervisors.")
    return rest.partition(".")[0] if rest and not ours else "other"
