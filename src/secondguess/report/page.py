"""From templates to one HTML file that needs nothing but a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from secondguess._text import visible

__all__ = ["render"]

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, folders: list[Path], /, **values: Any) -> str:
    """Fill a template.

    Args:
        template: file name of the template, searched for in `folders` and then in the templates of this package.
        folders: where the caller keeps its templates.
        values: what the template may use. Everything is escaped unless it is `Markup`.
    """
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
    }
    environment.globals["style"] = Markup((TEMPLATES / "style.css").read_text("utf-8"))
    return environment.get_template(template).render(**values)


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


def heat(value: float, low: float = 0.5, high: float = 1.0) -> str:
    """How far `value` lies between `low` and `high`, in whole percent, for a cell's background."""
    share = (value - low) / (high - low)
    return f"{100 * min(max(share, 0.0), 1.0):.0f}%"
