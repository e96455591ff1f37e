"""From templates to one HTML file that needs nothing but a browser."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from secondguess._text import visible

__all__ = ["render"]

TEMPLATES = Path(__file__).parent / "templates"
_JOINTS = re.compile(r"([_/.])")
_FLAGS = re.compile(r"(--[a-z]+(?:-[a-z]+)*)")


def render(template: str, folders: list[Path], /, **values: Any) -> str:
    """Fill a template.

    Args:
        template: file name of the template, searched for in `folders` and then in the templates of this package.
        folders: where the caller keeps its templates.
        values: what the template may use. Everything is escaped unless it is `Markup`.
    """
    return _environment(*folders).get_template(template).render(**values)


@lru_cache(maxsize=16)  # and with it the compiled templates, which take longer to compile than to fill
def _environment(*folders: Path) -> Environment:
    loader = ChoiceLoader([FileSystemLoader(folder) for folder in [*folders, TEMPLATES]])
    environment = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters |= {
        "percent": percent,
        "decimal": decimal,
        "count": count,
        "short": short,
        "heat": heat,
        "name": breakable,
        "flags": unbroken_flags,
        "brief": brief,
    }
    environment.globals["style"] = Markup((TEMPLATES / "style.css").read_text("utf-8"))
    return environment


def _visible(value: Any) -> Any:
    """What a template prints, without characters that would turn the text around them."""
    return type(value)(visible(str(value))) if isinstance(value, str) else value


def percent(value: float, digits: int = 1) -> str:
    """0.9731 -> 97.3%."""
    return f"{100 * value:.{digits}f}%"


def decimal(value: float, digits: int = 3) -> str:
    """0.9731 -> .973, as tables of AUROC are printed; 1 stays 1.000."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if 0 < value < 1 and text.startswith("0") else text


def count(value: int) -> str:
    """12345 -> 12,345."""
    return f"{value:,}"


def short(digest: str | None) -> str:
    """The first digits of a fingerprint, enough to compare by eye."""
    return digest[:12] if digest else "none"


def breakable(text: str) -> Markup:
    """A name such as `relative_mahalanobis`, which may be broken behind an underscore, a slash or a dot."""
    return Markup("").join(escape(part) + Markup("<wbr>" if part in "_/." else "") for part in _JOINTS.split(str(text)))


def unbroken_flags(text: str) -> Markup:
    """A sentence whose options, such as `--full`, are not broken behind a hyphen."""
    parts = _FLAGS.split(str(text))
    return Markup("").join(
        Markup('<span class="flag">{}</span>').format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def brief(text: str, most: int = 28) -> str:
    """A name that fits below a picture: cut at a space where there is one, with an ellipsis."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    return (head.rpartition(" ")[0] or head).rstrip(" ,;") + "…"


def heat(value: float, low: float = 0.5, high: float = 1.0) -> str:
    """How far `value` lies between `low` and `high`, in whole percent, for a cell's background."""
    share = (value - low) / (high - low)
    return f"{100 * min(max(share, 0.0), 1.0):.0f}%"
