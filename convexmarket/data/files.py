"""Open files that users provide. Only regular files are opened, and file sizes are limited."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from convexmarket.errors import ConvexMarketError, DataError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["open_parquet", "open_regular", "read_limited"]

#: Flag with which :func:`os.open` does not wait for a pipe, or 0 on systems without the flag.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file for reading, or raise an OSError for a pipe, a device or a folder."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is a pipe or a device, and not a file", str(path))
    return file


def read_limited(path: str | Path, most: int) -> bytes:
    """Read a file, or raise an OSError if the file has more than ``most`` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"holds more than {most} bytes, which is the limit", str(path))
    return content


@contextmanager
def open_parquet(path: str | Path) -> Iterator[ParquetFile]:
    """Open a Parquet file. Its tables must be read and converted inside the ``with`` block.

    Raises
    ------
    DataError
        If the file cannot be opened, or if the block raises an error. The message does not quote
        the content of the file.
    """
    from pyarrow.parquet import ParquetFile

    try:
        with open_regular(path) as file:
            yield ParquetFile(file)
    except ConvexMarketError:
        raise
    except Exception as error:  # pyarrow raises many types of errors, and they can quote cells
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: {error.strerror}; give a Parquet file") from None
        raise DataError(
            f"{path} cannot be read as Parquet ({type(error).__name__}); give an intact Parquet "
            "file"
        ) from None
