"""Where the studio looks: a folder that no path leaves, without the private parts of runs, and perhaps a ledger."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from nestegg.errors import InputError

PRIVATE = "private"
LARGEST = 2**28  # bytes of a file that is read: a run writes none that comes near it, but for its model


@dataclass(frozen=True)
class Place:
    """What the studio may show.

    Attributes:
        folder: below which files may be read.
        ledger: a URL or a file, opened for reading alone.
    """

    folder: Path
    ledger: str | None = None

    def inside(self, name: str) -> Path:
        """Return a path below the folder.

        Raises:
            InputError: it leads elsewhere, also by a link, or into the private part of a run.
        """
        root = self.folder.resolve()
        try:
            path = (root / name).resolve()
            path.exists()  # which a name that is too long for the system cannot be asked
        except (OSError, ValueError):
            raise InputError(f"{name[:60]!r} is no path.") from None
        # Some systems tell Private from private, and some do not.
        if not path.is_relative_to(root) or PRIVATE in map(str.casefold, path.relative_to(root).parts):
            raise InputError(f"{name!r} is not below the folder that the studio shows, or is private.")
        return path

    def file(self, name: str, *, largest: float = LARGEST) -> Path:
        """Return the path of a file below the folder, which need not be there.

        Args:
            name: below the folder.
            largest: size in bytes that is read.

        Raises:
            InputError: as `inside`; or it is no file, and so perhaps a pipe that never ends, or too large to be read.
        """
        path = self.inside(name)
        try:
            found = path.stat()
        except FileNotFoundError:
            return path
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is not a file.")
        if found.st_size > largest:
            raise InputError(f"{path} has {found.st_size:,} bytes; the studio reads at most {largest:,}.")
        return path
