"""Several p-values of one image in one number.

    bonferroni   min(1, m min p)                             a p-value under any dependence
    harmonic     min(1, a m / sum 1/p),  a = e ln m (2, if m = 2)     a p-value under any dependence
    cauchy       1/2 - arctan(mean tan((1/2 - p) pi)) / pi   close to one far in the tail, whatever the dependence

Sources: Vovk and Wang, Combining p-values via averaging (Biometrika 2020); Liu and Xie, Cauchy combination test (JASA
2020). The supervisors of a panel score the same image, so their p-values depend on each other; Fisher's rule, which
needs independence, is not included. A `Panel` does not rely on any of this: it calibrates the resulting number anew.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["RULES", "bonferroni", "cauchy", "harmonic"]

Floats = NDArray[np.float64]


def bonferroni(p_values: Floats) -> Floats:
    """The combined p-values (n,) of p-values (n, m).

    >>> bonferroni(np.array([[0.01, 0.5]])).tolist()
    [0.02]
    """
    p = _checked(p_values)
    return np.minimum(1.0, p.shape[1] * p.min(axis=1))


def harmonic(p_values: Floats) -> Floats:
    """The combined p-values (n,) of p-values (n, m).

    >>> harmonic(np.array([[0.02, 0.02]])).tolist()
    [0.04]
    """
    p = _checked(p_values)
    m = p.shape[1]
    factor = 1.0 if m == 1 else 2.0 if m == 2 else math.e * math.log(m)
    return np.asarray(np.minimum(1.0, factor * m / (1 / p).sum(axis=1)))


def cauchy(p_values: Floats) -> Floats:
    """The combined p-values (n,) of p-values (n, m); a p-value of 1 counts as slightly less.

    >>> cauchy(np.array([[0.03, 0.03]])).round(6).tolist()
    [0.03]
    """
    p = np.minimum(_checked(p_values), 1 - 1e-15)
    return np.asarray(0.5 - np.arctan(np.tan((0.5 - p) * np.pi).mean(axis=1)) / np.pi)


def _checked(p_values: Floats) -> Floats:
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 2 or 0 in p.shape or not (p.min() > 0 and p.max() <= 1):
        raise UserError(f"p-values of shape {p.shape} were given; give numbers above 0 and up to 1, (images, tests).")
    return p


RULES = {"bonferroni": bonferroni, "harmonic": harmonic, "cauchy": cauchy}
