"""Cross-entropy for hard, soft and two-class single-logit targets.

With logits z and soft targets q the loss of an example is −Σ_k q_k log softmax(z)_k; a hard label is the q
that has a one in its place. A model with one output is a two-class model whose logit is that of class 1, as
the ambiguity estimator's members are.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

__all__ = ["example_losses", "hits"]


def example_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss (n,) of every example, from logits (n, K) and targets (n,) or (n, K)."""
    if logits.shape[1] == 1:
        positive = targets.reshape(len(targets)).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits[:, 0], positive, reduction="none")
    return functional.cross_entropy(logits, targets, reduction="none")


def hits(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether the most likely class of every example is its label (or its most likely soft label), bool (n,)."""
    predicted = (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(dim=1)
    return predicted == (targets.argmax(dim=1) if targets.ndim == 2 else targets)
