"""The state of a batch between runs: an SQLite file beside the output.

For each image it holds a stamp of the captioned content and the record as the model gave it. Outputs are
generated from these records and can be generated again. SQLite makes a run safe to kill: transactions are
atomic, and the exclusive lock on the file keeps other runs out until the process ends. The image list of the
current run is a temporary table, so that memory does not grow with the folder.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from captioner.errors import CaptionerError, OutputError
from captioner.files.held_folder import Folder
from captioner.folder.items import Done, Item, ListedImage
from captioner.folder.records import read_record
from captioner.folder.sources.source import Source
from captioner.folder.state_file import not_a_state, open_database, pack, unpack
from captioner.results import error_to_dict

FORMAT = 1
_CHUNK = 500
"""Rows fetched or inserted at a time."""

_LISTS = """
CREATE TEMP TABLE found (name BLOB UNIQUE, source INTEGER, rank BLOB, locator BLOB, stamp TEXT, problem TEXT);
CREATE TEMP TABLE listing (
    number INTEGER PRIMARY KEY, name BLOB, source INTEGER, locator BLOB, stamp TEXT, problem TEXT
);
"""
_GONE = """
CREATE TEMP TABLE gone AS SELECT rowid AS age, digest, published FROM results
WHERE published IS NOT NULL AND name NOT IN (SELECT name FROM listing)
"""
"""Images that are no longer there: of what was written for them, an image of the same content takes over
what is ours. It has been moved."""
_CURRENT = "r.asked = :asked AND r.stamp = l.stamp"
"""SQL condition: the result is current for the image as listed or read."""
_DONE = f"FROM listing l JOIN results r USING (name) WHERE {_CURRENT}"
_PENDING = (
    "FROM listing l LEFT JOIN results r USING (name)"
    f" WHERE l.number > :after AND (r.name IS NULL OR NOT ({_CURRENT}))"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished image and its position in the output."""

    number: int
    name: str
    line: str
    """The record as a line of JSON."""
    published: bytes | None
    """Digest of what was last written for the image, if the output keeps one file per image."""

    @property
    def record(self) -> dict[str, Any]:
        """Raises `OutputError` for a record that no batch wrote."""
        try:
            return read_record(self.line, self.name)
        except ValueError:
            raise OutputError(f"the state's record of {self.name} is damaged; move the state away") from None


class State:
    """The state of one output. Use as a context, from one thread only.

    Every method raises `OutputError` if the file cannot be read or written.
    """

    def __init__(
        self, path: Path | None, asked: str, *, overwrite: bool = False, outputs: Iterable[Path] = ()
    ) -> None:
        """`asked` tells the model and the options as one text: results made with others are not current.
        With `overwrite` all results are discarded, once: an unfinished run that was started with it is
        resumed. Without a path the state is temporary; its file gets no more rights than those of
        `outputs` have that are there."""
        self.path, self.overwrite, self._asked = path, overwrite, asked
        self._label = ""
        with self._guard():
            self._connection = open_database(path, outputs)
        self._query = self._connection.execute
        try:
            with self._guard():
                self._open(overwrite)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, overwrite: bool) -> None:
        self._connection.executescript(_LISTS)
        self._query("BEGIN IMMEDIATE")
        if self.get("format") not in (None, str(FORMAT)):
            raise OutputError(f"{self.path} is of another version of captioner; --overwrite needs it removed")
        self.set("format", str(FORMAT))
        if overwrite and self.get("overwriting") is None:
            self._query("UPDATE results SET asked = ''")
        self.set("overwriting", "yes" if overwrite else None)
        self._query("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if kind is not None and self.path is not None:
            self._remove_unused(self.path)
        self._connection.close()

    def _remove_unused(self, path: Path) -> None:
        """Remove the file of a run that failed before it did anything, while no other run can open it."""
        used = "SELECT 1 FROM results UNION SELECT 1 FROM meta WHERE key NOT IN ('format', 'overwriting')"
        with suppress(OSError, sqlite3.Error), Folder(path.parent) as folder:
            if self._query(used).fetchone() is None:
                self._query("PRAGMA journal_mode = DELETE")  # removes the -wal file
                folder.remove(path.name)

    def share(self, label: str) -> State:
        """This state as one of several outputs uses it, with settings and published digests of its own."""
        own = copy.copy(self)
        own._label = label
        return own

    def get(self, key: str) -> str | None:
        """A value that an earlier run or this one has set; None if there is none."""
        key = f"{self._label}:{key}" if self._label else key
        with self._guard():
            row = self._query("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return None if row is None else row[0]

    def set(self, key: str, value: str | None) -> None:
        """Set a value; None removes it."""
        key = f"{self._label}:{key}" if self._label else key
        with self._guard():
            if value is None:
                self._query("DELETE FROM meta WHERE key = ?", (key,))
            else:
                self._query("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def find_images(self, sources: Sequence[Source]) -> int:
        """Record every image of the sources, each name once; returns the count."""
        with self._guard():
            self._query("BEGIN")
            for number, source in enumerate(sources):
                rows = (self._found_row(number, source, rank, f) for rank, f in enumerate(source.find()))
                # A later member of an archive replaces an earlier one; a list may name a file twice.
                is_list = source.keeps_order and not source.sequential
                self._insert(rows, "IGNORE" if is_list else "REPLACE")
            self._query(
                "INSERT INTO listing SELECT row_number() OVER (ORDER BY source, rank) - 1,"
                " name, source, locator, stamp, problem FROM found"
            )
            self._query("DROP TABLE found")
            self._query(_GONE)
            self._query("CREATE INDEX gone_digest ON gone (digest)")
            self._query("COMMIT")
            return int(self._query("SELECT count(*) FROM listing").fetchone()[0])

    def count_of(self, source: int) -> int:
        """The images of one of the sources."""
        with self._guard():
            query = "SELECT count(*) FROM listing WHERE source = ?"
            return int(self._query(query, (source,)).fetchone()[0])

    def _found_row(self, number: int, source: Source, rank: int, found: ListedImage) -> tuple[Any, ...]:
        name = os.fsencode(found.name)
        order = b"%016d" % rank if source.keeps_order else name
        return name, number, order, found.locator, found.stamp, found.problem

    def _insert(self, rows: Iterable[tuple[Any, ...]], conflict: str) -> None:
        query = f"INSERT OR {conflict} INTO found VALUES (?, ?, ?, ?, ?, ?)"
        while chunk := tuple(itertools.islice(rows, _CHUNK)):
            self._connection.executemany(query, chunk)

    def names(self, *, readable: bool = False) -> Iterator[str]:
        """The images of this run, in order; with `readable`, without those that the listing found to be
        unreadable, such as a folder without permission. The state may be changed meanwhile."""
        condition = " AND l.problem = ''" if readable else ""
        query = f"SELECT l.number, l.name FROM listing l WHERE l.number > :after{condition}"
        for _, name in self._rows(query):
            yield os.fsdecode(name)

    def forget_failures(self) -> None:
        """Caption these images again. What was written for them is still known to be ours."""
        with self._guard():
            self._query("UPDATE results SET asked = '' WHERE failed")

    def count_pending(self) -> int:
        """The number of `pending` images."""
        with self._guard():
            query = f"SELECT count(*) {_PENDING}"
            return int(self._query(query, {"asked": self._asked, "after": -1}).fetchone()[0])

    def done(self, *, failed: bool = False) -> Iterator[Entry]:
        """The finished images in order, whether or not earlier ones are finished; with `failed`, only those
        that failed. The state may be changed meanwhile."""
        yield from self._entries(" AND r.failed" if failed else "", -1)

    def pending(self) -> Iterator[Item]:
        """The images to be captioned, in order. The state may be changed meanwhile."""
        query = (
            "SELECT l.number, l.source, l.name, l.locator, l.stamp, l.problem,"
            f" CASE WHEN r.asked = :asked AND NOT r.failed THEN r.digest END {_PENDING}"
        )
        for number, source, name, locator, stamp, problem, digest in self._rows(query):
            yield Item(number, source, ListedImage(os.fsdecode(name), locator, stamp, problem), digest)

    def save(self, batch: Sequence[Done], *, words: bool, alternatives: bool) -> None:
        """Save the results of some images in one transaction."""
        with self._guard():
            self._query("BEGIN")
            for done in batch:
                self._save_one(done, words, alternatives)
            self._query("COMMIT")

    def _save_one(self, done: Done, words: bool, alternatives: bool) -> None:
        loaded, outcome = done.loaded, done.outcome
        image = loaded.item.image
        name = os.fsencode(image.name)
        # The image as it was read is what counts from here on, also for this run.
        self._query("UPDATE listing SET stamp = ? WHERE number = ?", (loaded.stamp, loaded.item.number))
        if outcome is None:
            self._query("UPDATE results SET stamp = ? WHERE name = ?", (loaded.stamp, name))
            return
        failed = isinstance(outcome, CaptionerError)
        if isinstance(outcome, CaptionerError):
            record = error_to_dict(image.name, outcome)
        else:
            record = outcome.to_dict(image.name, words=words, alternatives=alternatives)
        self._query(
            "INSERT INTO results VALUES (?1, ?2, ?3, ?4, ?5, ?6,"
            " (SELECT published FROM gone WHERE digest = ?3 ORDER BY age DESC LIMIT 1))"
            " ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp, digest = excluded.digest,"
            " asked = excluded.asked, failed = excluded.failed, record = excluded.record",
            (name, loaded.stamp, loaded.digest, self._asked, failed, pack(record)),
        )

    def ready(self, after: int) -> Iterator[Entry]:
        """The finished images in order, from `after` + 1 up to the first unfinished one."""
        for expected, entry in enumerate(self._entries("", after), after + 1):
            if entry.number != expected:
                return
            yield entry

    def _entries(self, only: str, after: int) -> Iterator[Entry]:
        """Finished images behind the one numbered `after` that fulfil the SQL condition `only`."""
        query = f"SELECT l.number, l.name, r.record, r.published {_DONE}{only} AND l.number > :after"
        for number, name, record, published in self._rows(query, after):
            try:
                yield Entry(number, os.fsdecode(name), unpack(record), self._own(published))
            except ValueError:
                raise not_a_state(self.path) from None

    def _rows(self, query: str, after: int = -1) -> Iterator[tuple[Any, ...]]:
        """The rows, in order, of a query whose first column is `l.number` and that starts behind `:after`; in
        chunks, so that the state may be changed meanwhile."""
        while True:
            with self._guard():
                rows = self._query(
                    f"{query} ORDER BY l.number LIMIT {_CHUNK}",
                    {"asked": self._asked, "after": after},
                ).fetchall()
            yield from rows
            if len(rows) < _CHUNK:
                return
            after = rows[-1][0]

    def mark_published(self, name: str, digest: bytes | None) -> None:
        """Keep the digest of what was written for an image; None for nothing."""
        with self._guard():
            key = os.fsencode(name)
            before = self._query("SELECT published FROM results WHERE name = ?", (key,)).fetchone()
            digest = self._with_own(before[0] if before else None, digest)
            self._query("UPDATE results SET published = ? WHERE name = ?", (digest, key))

    def _own(self, published: bytes | None) -> bytes | None:
        """The digest of this output, of one or of those of several outputs."""
        if not self._label or published is None:
            return published
        digest = _read_shared(published).get(self._label)
        return None if digest is None else bytes.fromhex(digest)

    def _with_own(self, published: bytes | None, digest: bytes | None) -> bytes | None:
        """`published` with the digest of this output, None for none."""
        if not self._label:
            return digest
        shared = {**_read_shared(published or b"{}"), self._label: digest.hex() if digest else ""}
        return json.dumps({name: one for name, one in shared.items() if one}).encode()

    def claim_target(self, target: str, name: str) -> str:
        """The image that owns a file: the first that claimed it."""
        with self._guard():
            key = os.fsencode(target)
            self._query("INSERT OR IGNORE INTO targets VALUES (?, ?)", (key, os.fsencode(name)))
            [owner] = self._query("SELECT name FROM targets WHERE target = ?", (key,)).fetchone()
            return os.fsdecode(owner)

    def owner_of(self, target: str) -> str | None:
        """The image that a file belongs to, if it has been claimed."""
        with self._guard():
            query = "SELECT name FROM targets WHERE target = ?"
            row = self._query(query, (os.fsencode(target),)).fetchone()
            return None if row is None else os.fsdecode(row[0])

    def are_same(self, name: str, other: str) -> bool:
        """Whether the images of these names have the same content."""
        with self._guard():
            query = "SELECT 1 FROM results a JOIN results b USING (digest) WHERE a.name = ? AND b.name = ?"
            return self._query(query, (os.fsencode(name), os.fsencode(other))).fetchone() is not None

    def inherit_target(self, target: str, name: str) -> bytes | None:
        """Transfer a file whose image is gone to another image; returns the digest of its content."""
        with self._guard():
            key, heir = os.fsencode(target), os.fsencode(name)
            query = "SELECT r.published FROM targets t JOIN results r USING (name) WHERE t.target = ?"
            [digest] = self._query(query, (key,)).fetchone() or (None,)
            published = self._own(digest)
            self._query("BEGIN")
            self.mark_published(name, published)
            self._query("UPDATE targets SET name = ? WHERE target = ?", (heir, key))
            self._query("COMMIT")
            return published

    def restamp(self, entry: Entry, stamp: str, digest: bytes) -> None:
        """Record that the output itself changed the image."""
        with self._guard():
            self._query("UPDATE listing SET stamp = ? WHERE number = ?", (stamp, entry.number))
            key = os.fsencode(entry.name)
            self._query("UPDATE results SET stamp = ?, digest = ? WHERE name = ?", (stamp, digest, key))

    def fail(self, entry: Entry, error: CaptionerError) -> None:
        """Record that the caption could not be written. The record keeps the caption, for another try."""
        self._update(entry, {**entry.record, **error_to_dict(entry.name, error)}, failed=True)

    def recover(self, entry: Entry) -> None:
        """Record that the caption could be written after all."""
        self._update(entry, {k: v for k, v in entry.record.items() if k != "error"}, failed=False)

    def _update(self, entry: Entry, record: dict[str, Any], *, failed: bool) -> None:
        with self._guard():
            self._query(
                "UPDATE results SET failed = ?, record = ? WHERE name = ?",
                (failed, pack(record), os.fsencode(entry.name)),
            )

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn SQLite errors into `OutputError`s, and roll back what failed."""
        try:
            yield
        except sqlite3.Error as error:
            self._undo()
            raise OutputError(self._explain(error)) from error
        except BaseException:
            self._undo()
            raise

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """A power failure may undo what is recorded meanwhile, so that nothing waits for the disk. Any other
        change is on the disk when its method returns."""
        with self._guard():
            self._query("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    def _undo(self) -> None:
        if hasattr(self, "_connection") and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _explain(self, error: sqlite3.Error) -> str:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_BUSY":
            return f"another run is writing this output ({self.path} is in use)"
        if name in ("SQLITE_NOTADB", "SQLITE_TOOBIG"):
            return str(not_a_state(self.path))
        if name.startswith("SQLITE_CORRUPT"):
            return f"{self.path} is damaged; move it away"
        if name == "SQLITE_FULL":
            return f"cannot write {self.path}: no space left on the device"
        return f"cannot write {self.path}: {error}"


def _read_shared(published: bytes) -> dict[str, str]:
    """The digests of several outputs; those that are none are left out."""
    try:
        shared = json.loads(published)
        return {name: one for name, one in shared.items() if bytes.fromhex(one)}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
