"""Classes as people name them: by name, or by number where no class has that name."""

from __future__ import annotations

from collections.abc import Sequence

from secondguess.errors import UserError
from secondguess.images import ImageSet

__all__ = ["class_numbers"]


def class_numbers(classes: str | Sequence[str | int], images: ImageSet) -> tuple[int, ...]:
    """The numbers of classes of some images.

    Args:
        classes: names or numbers, or a text with commas between them, such as `"9,8"`.
        images: whose classes are meant.
    """
    parts = [part.strip() for part in classes.split(",") if part.strip()] if isinstance(classes, str) else classes
    places = {name: index for index, name in enumerate(images.class_names)}
    found = []
    for part in map(str, parts):
        place = places.get(part, int(part) if part.isdecimal() else -1)
        if not 0 <= place < images.num_classes:
            raise UserError(f"There is no class {part!r}; the classes are: {', '.join(images.class_names[:20])}.")
        found.append(place)
    return tuple(found)
