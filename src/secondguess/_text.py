"""Text from outside, such as class and file names, in what a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["amount", "few", "listed", "visible"]

# Marks that turn the direction of the text around them, and control characters, which a terminal obeys.
TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
CONTROL = (*range(0x20), *range(0x7F, 0xA0))
ESCAPES = {
    code: chr(code).encode("unicode_escape").decode() for code in (*TURNING, *CONTROL) if chr(code) not in "\n\t"
}


def visible(text: str) -> str:
    r"""The text with characters that nobody sees, but that change what is seen, as escapes such as \u202e."""
    return text.translate(ESCAPES)


def listed(names: Iterable[str]) -> str:
    """Names as people write a list of them: "a, b and c"; underscores are spaces."""
    *first, last = (name.replace("_", " ") for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def few(names: Sequence[str], most: int = 8) -> str:
    """The first of many names: "a, b, c and 197 more"."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more:,} more"


def amount(size: int) -> str:
    """A number of bytes for people: 3221225472 -> 3.0 GiB, 1500 -> 1.5 KiB."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} bytes"
