"""The SQLite file of a state, opened with care: in a shared folder, somebody else
may have made it.

It must hold the tables of a state and nothing else (no views, no triggers), with values of the expected
types, none longer than `MAX_RECORD_BYTES`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from captioner.errors import OutputError
from captioner.files.destination import writing
from captioner.files.held_folder import Folder
from captioner.folder.records import MAX_RECORD_BYTES

_COMPRESS_FROM = 2048
"""Records of at least this many bytes are compressed; only attention maps make them so long."""
_TABLES = {
    "meta": "(key TEXT PRIMARY KEY, value TEXT)",
    "results": "( name BLOB PRIMARY KEY, stamp TEXT, digest BLOB, asked TEXT, failed INTEGER, record BLOB,"
    " published BLOB )",
    "targets": "(target BLOB PRIMARY KEY, name BLOB)",
}
_TYPES = {
    "meta": {"key": "text", "value": "text"},
    "results": {
        "name": "blob",
        "stamp": "text",
        "digest": "blob null",
        "asked": "text",
        "failed": "integer",
        "record": "blob",
        "published": "blob null",
    },
    "targets": {"target": "blob", "name": "blob"},
}


def open_database(path: Path | None, outputs: Iterable[Path] = ()) -> sqlite3.Connection:
    """Open or create the file, or a temporary one, locked and in WAL mode. It gets no more rights than
    those of `outputs` have that are there. Raises `OutputError` for a link and for a file that no batch
    wrote, `sqlite3.Error` for others that cannot be used."""
    number = None if path is None else _create(path, outputs)
    connection = sqlite3.connect(path or "", timeout=0, isolation_level=None)
    try:
        if path is not None and path.lstat().st_ino != number:
            raise OutputError(f"cannot write {path}: it has been replaced meanwhile")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD_BYTES)
        for pragma in ("trusted_schema = OFF", "locking_mode = EXCLUSIVE", "journal_mode = WAL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA synchronous = FULL")
        if not _is_state(connection):
            raise not_a_state(path)
        for name, columns in _TABLES.items():
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
        if not all(_has_types(connection, table) for table in _TABLES):
            raise not_a_state(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path, outputs: Iterable[Path]) -> int:
    """The number of the file, made if it is not there."""
    most = 0o666
    for output in outputs:
        with suppress(OSError):  # it is not there
            most &= output.stat().st_mode | 0o600
    with writing(path), Folder(path.parent) as folder:
        folder.check_replaceable(path.name)
        # SQLite would play a journal back and delete the file that it names. In WAL mode there is none.
        folder.remove(f"{path.name}-journal")
        with suppress(FileNotFoundError):  # unless a run was killed
            os.close(_open(folder, f"{path.name}-wal", os.O_RDWR, most))
        descriptor = _open(folder, path.name, os.O_RDWR | os.O_CREAT, most)
        try:
            return os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)


def _open(folder: Folder, name: str, flags: int, most: int) -> int:
    """A descriptor of the file, which gets no more rights than `most`."""
    descriptor = folder.open(name, flags, most)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & ~most and hasattr(os, "fchmod"):
        with suppress(OSError):  # the file is another user's
            os.fchmod(descriptor, mode & most)
    return descriptor


def _is_state(connection: sqlite3.Connection) -> bool:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema LIMIT 10"
    for kind, name, table, sql in connection.execute(query):
        if table not in _TABLES:
            return False
        made = f"CREATE TABLE {name} {_TABLES[table]}"
        is_table = kind == "table" and name == table and _words(sql) == _words(made)
        if not is_table and (kind, name, sql) != ("index", f"sqlite_autoindex_{table}_1", None):
            return False
    return True


def _words(sql: object) -> list[str]:
    return str(sql).replace("(", " ( ").replace(")", " ) ").split()


def _has_types(connection: sqlite3.Connection, table: str) -> bool:
    wrong = " OR ".join(
        f"typeof({column}) NOT IN ({', '.join(map(repr, types.split()))})"
        for column, types in _TYPES[table].items()
    )
    return connection.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone() is None


def not_a_state(path: Path | None) -> OutputError:
    return OutputError(f"{path} is not the state of a batch; move it away")


def pack(record: Mapping[str, Any]) -> bytes:
    data = json.dumps(record).encode("ascii")
    return zlib.compress(data, 1) if len(data) >= _COMPRESS_FROM else data


def unpack(data: bytes) -> str:
    """A record as a line of JSON. Raises `ValueError` for what is none, or is longer than a record can be."""
    if not data.startswith(b"{"):
        try:
            data = zlib.decompressobj().decompress(data, MAX_RECORD_BYTES)
        except zlib.error as error:
            raise ValueError("not compressed by zlib") from error
    line = data.decode("ascii")
    if not (line.startswith('{"image": ') and line.endswith("}") and line.isprintable()):
        raise ValueError("not a record")
    return line
