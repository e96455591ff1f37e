"""What the test kits of all contracts have in common: the runner, and the checks of names and parameters.

A kit holds the object under test and its test data. A check is a function of the kit that returns if it passes and
raises an `AssertionError` that says what was observed otherwise; the first line of its docstring says what is promised.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from secondguess.contracts.parameters import Parametrised
from secondguess.errors import UserError

__all__ = ["Kit", "check_name", "check_parameters", "refuses", "require", "run_checks"]

L = TypeVar("L", bound=Parametrised)
K = TypeVar("K", bound="Kit[Any]")


@dataclass
class Kit(ABC, Generic[L]):
    """The object under test; subclasses add the test data.

    Attributes:
        given: the object; it is never fitted itself, only its clones are.
    """

    given: L

    @cached_property
    def fitted(self) -> L:
        """A fitted clone shared by all checks that do not fit it again, since fitting may be slow."""
        return self.fresh()

    @abstractmethod
    def fresh(self) -> L:
        """A newly fitted clone."""


def run_checks(kit: K, checks: Sequence[Callable[[K], None]]) -> list[str]:
    """Run the checks in order.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    for check in checks:
        failed = f"{check.__name__} failed for {type(kit.given).__name__}"
        try:
            check(kit)
        except AssertionError as error:
            raise AssertionError(f"{failed}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{failed}: it raised {type(error).__name__}: {error}") from error
    return [check.__name__ for check in checks]


def check_name(kit: Kit[Any]) -> None:
    """The name can be used in gates, reports and file names."""
    name = getattr(type(kit.given), "name", None)
    require(
        isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None,
        f"the class attribute `name` must be lower case letters, digits and underscores, not {name!r}",
    )


def check_parameters(kit: Kit[Any]) -> None:
    """Parameters are stored untouched, and a clone has the same ones and no learnt state."""
    try:
        params = kit.given.params()
    except AttributeError as error:
        raise AssertionError(f"{error}: store every parameter of __init__ under its own name") from error
    copied = kit.fitted.clone()
    require(copied.params() == params, f"clone() has {copied.params()}, the original {params}: store them untouched")
    require(not copied.is_fitted, f"clone() must return an unfitted {kit.given.noun}")


def require(condition: bool, message: str) -> None:
    """What `assert` does, also under `python -O`."""
    if not condition:
        raise AssertionError(message)


def refuses(call: Callable[[], object], what: str) -> None:
    """Raise an `AssertionError` unless the call ends in a `UserError`."""
    try:
        call()
    except UserError:
        return
    raise AssertionError(f"{what} was accepted, but a UserError was expected")
