"""Archives are measured before they are unpacked: a small file may unpack to more than the memory holds."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.contracts.sealed import Damaged
from secondguess.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_archive", "check_unpacked", "load_npz"]

HARMLESS = 256 << 20  # bytes that may be unpacked from a file of any size
MOST_RATIO = 50  # images, labels and weights are not compressed that well
MOST_ENTRIES = 100_000


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise a `UserError` for a zip archive that unpacks to suspiciously much, or into too many files."""
    infos = archive.infolist()
    if len(infos) > MOST_ENTRIES:
        raise UserError(f"{path} was not unpacked: it has {len(infos):,} entries, more than {MOST_ENTRIES:,}.")
    check_unpacked(path, sum(info.file_size for info in infos))


def check_unpacked(path: Path, size: int) -> None:
    """Raise a `UserError` if `size` bytes are suspiciously much for what is in the file at `path`."""
    packed = path.stat().st_size
    if size > max(HARMLESS, MOST_RATIO * packed):
        raise UserError(
            f"{path} was not unpacked: its {packed:,} bytes would become {size:,}, and at most {MOST_RATIO} times as "
            "much is expected of a sound file; write it again without compression if it is."
        )


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz` file, each checked against the checksum in the file; nothing is unpickled.

    Raises:
        Damaged: it is no sound archive of plain arrays.
    """
    import numpy as np

    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
            if (broken := archive.testzip()) is not None:
                raise Damaged(f"{broken} in {path.name} does not hold what was written")
        # NumPy leaves a file that it cannot read open, unless it was given an open one.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise Damaged(f"{path.name} is not a complete archive of arrays ({error})") from error
