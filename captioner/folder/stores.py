"""Filesystems given as paths or URIs: that of this machine, or an object store."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from captioner.errors import DataError, RuntimeMissingError, how_to_install


def open_filesystem(uri: str) -> tuple[Any, str]:
    """The `pyarrow.fs.FileSystem` and the path in it for a path or URI: s3:// and gs:// through pyarrow,
    others through fsspec. Raises `DataError`."""
    try:
        from pyarrow import fs
    except ImportError:
        raise RuntimeMissingError(f"URIs need pyarrow: {how_to_install('ray')}") from None
    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(uri)  # noqa: PTH100 (links stay links)
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        if "Unrecognized filesystem" not in str(error):
            raise DataError(f"{shown(uri)}: {reason(error)}") from None
        filesystem, path = _open_fsspec(uri)
    return filesystem, path.rstrip("/")


def _open_fsspec(uri: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        from fsspec.core import url_to_fs

        opened, path = url_to_fs(uri)
    except (ImportError, OSError, ValueError) as error:
        raise DataError(f"{shown(uri)}: {reason(error)}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(opened)), path


def shown(uri: str) -> str:
    """A URI to print: without credentials and settings."""
    return re.sub(r"://[^/@]*@", "://", uri).partition("?")[0] if "://" in uri else uri


def reason(error: Exception) -> str:
    """The message of a filesystem error, in one line."""
    missing = errno.ENOENT if isinstance(error, FileNotFoundError) else None
    number = getattr(error, "errno", None) or missing
    lines = str(error).strip().splitlines()
    return os.strerror(number) if number else lines[0] if lines else type(error).__name__
