"""How a process opens files of another store (`Opening`), and where it has them (`Scratch`).

Local files are read and written in place. Others are fetched to scratch before they are read, and
written there before they are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.reach import Reach
from reconciler.errors import first_line
from reconciler.table.parquet_schema import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from pyiceberg.io import FileIO

_LOCAL = re.compile(r"(?:file:(?://(?=/))?)?(/.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9/._=+%@-]+")
"""A path without a character that SQL or a pattern of paths takes for more than itself."""
SCRATCH = "layout-scratch-"
"""Begins the name of a scratch directory."""
CHUNK = 8 << 20
"""Bytes copied at a time."""


@dataclass(frozen=True, slots=True)
class Vending:
    """Whom a process asks for new keys of a table's files."""

    catalog: CatalogConfig
    """The catalog."""
    table: tuple[str, ...]
    """The table's identifier."""

    def properties(self) -> Mapping[str, Any]:
        """Return those of the table's FileIO, with new keys. Raises ValueError if the catalog hands
        out none."""
        from reconciler.catalog.load import connect, load_table
        from reconciler.catalog.vended import handed_out

        return handed_out(load_table(connect(self.catalog), self.catalog, self.table).io)


@dataclass(frozen=True, slots=True)
class Opening:
    """How a process opens the files of a catalog."""

    properties: Mapping[str, str] = field(repr=False)
    """Properties of the FileIO."""
    reach: Reach | None
    """What the cluster allows, as in the process that made this."""
    vending: Vending | None = None
    """Who renews the keys among the properties; None if they are the catalog's own."""
    due: float | None = None
    """When new keys are to be asked for, in seconds since 1970; None if nothing says, or if what
    says it was past when they came: then the store decides."""
    _made: dict[str, FileIO] = field(default_factory=dict, repr=False, compare=False)
    """FileIOs of this process by scheme: each keeps its clients, and their connections."""

    def open(self, location: str) -> FileIO:
        scheme = location.partition(":")[0]
        if scheme not in self._made:
            self._made[scheme] = self._opened(location)
        return self._made[scheme]

    def _opened(self, location: str) -> FileIO:
        from reconciler.catalog.border import file_io
        from reconciler.catalog.network import on_behalf

        def make(properties: Mapping[str, Any]) -> FileIO:
            with on_behalf(self.reach):
                return file_io(properties, location)

        if self.vending is None:
            return make(self.properties)
        from reconciler.catalog.vended import Keys, VendedFileIO

        return VendedFileIO(Keys(self.properties, self.vending.properties), make)

    def is_due(self) -> bool:
        """Return whether the keys are in the last part of their life: work that begins gets new
        ones from the process that plans."""
        return self.due is not None and time.time() >= self.due

    def __reduce__(self) -> tuple[Any, ...]:
        return Opening, (self.properties, self.reach, self.vending, self.due)


def local_path(location: str) -> Path | None:
    """Return the path of a local file, character by character as Hadoop takes it; None for a file
    of another store."""
    found = _LOCAL.fullmatch(location)
    return None if found is None else Path(found[1])


def _has_lz4(footer: Any) -> bool:
    return any(
        footer.row_group(group).column(column).compression.startswith(("LZ4", "UNKNOWN"))
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    )


def _scratch_space() -> Path:
    """Return where scratch goes: Spark's own on an executor, else the temporary directory."""
    for given in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if given and os.access(given, os.W_OK):
            return Path(given)
    return Path(tempfile.gettempdir())


def prefix_without_leftovers(kind: str, within: Path) -> str:
    """Remove the directories of a kind that killed processes left; return the prefix of those of
    this process.

    kind: what names of the kind begin with; host and process follow. within: where they lie.
    """
    here = f"{kind}{_place()}-"
    for path in within.glob(f"{here}*"):
        process = path.name.removeprefix(here).partition("-")[0]
        if process.isdigit() and not _lives(int(process)):
            shutil.rmtree(path, ignore_errors=True)
    return f"{here}{os.getpid()}-"


def _place() -> str:
    """Return a short name for this host's namespace of process ids.

    An id means nothing outside its namespace: another container's live process may have no id here,
    or another one. The name is in paths of sockets, whose length is limited.
    """
    return hashlib.sha256(f"{socket.gethostname()} {_namespace()}".encode()).hexdigest()[:12]


def _namespace() -> int:
    """Return the inode of this process's namespace of process ids; 0 on a system without them."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _copy(source: Any, copy: Any, offset: int, length: int) -> None:
    """Copy these bytes of a file to the same place of its copy."""
    source.seek(offset)
    copy.seek(offset)
    while length:
        some = source.read(min(length, CHUNK))
        if not some:
            raise OSError("it has fewer bytes than its manifest entry says")
        copy.write(some)
        length -= len(some)
    copy.flush()


class Scratch:
    """Gives each file a plain path (`_PLAIN`), for as long as it is entered: its own if it is local
    and has one, else one in a directory of this process."""

    def __init__(self, opening: Opening | None, *, keeps: bool = False) -> None:
        """keeps: files stay although one reader forgets them: another one reads them too."""
        self._opening, self._keeps = opening, keeps
        self._known: dict[str, Path] = {}
        self._converted: dict[str, Path] = {}
        self._numbers = itertools.count()

    def __enter__(self) -> Scratch:
        within = _scratch_space()
        prefix = prefix_without_leftovers(SCRATCH, within)
        self.directory = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, location: str) -> Path:
        """Return a local path of the file. Raises FileNotFoundError, which names the location."""
        known = self._known.get(location)
        if known is None:
            known = self._known[location] = self._placed(location)
        return known

    def _placed(self, location: str) -> Path:
        target, own = local_path(location), self.directory / f"{next(self._numbers)}.bin"
        if target is None:
            self._fetch(location, own)
        elif not target.exists():
            raise FileNotFoundError(2, "No such file or directory", location)
        elif _PLAIN.fullmatch(str(target)):
            return target
        else:
            own.symlink_to(target)
        return own

    def converted(self, location: str, convert: Callable[[Path], None]) -> Path:
        """Return what `convert` makes of the file at the path that it is given; it does so once."""
        if location not in self._converted:
            made = self.fresh()
            convert(made)
            self._converted[location] = made
        return self._converted[location]

    def forget(self, location: str) -> None:
        """Free what a file takes in scratch."""
        known = None if self._keeps else self._known.pop(location, None)
        if known is not None and known.parent == self.directory:
            known.unlink(missing_ok=True)

    def adopt(self, location: str, file: Path) -> None:
        """Read the file from here, although it belongs elsewhere."""
        self._known[location] = file

    def fresh(self) -> Path:
        """Return a path at which nothing is yet."""
        return self.directory / f"{next(self._numbers)}.new"

    def store(self, file: Path, location: str) -> None:
        """Put a complete file where it belongs; nothing to do for one that is written there.

        Raises OSError unless the storage then has as many bytes. Nothing is left if this fails: a
        stream that is left by an error completes what it has so far.
        """
        if local_path(location) is not None:
            return
        from reconciler.catalog.network import on_behalf
        from reconciler.catalog.vended import again

        assert self._opening is not None
        with on_behalf(self._opening.reach):
            io, size = self._opening.open(location), file.stat().st_size

            def copy() -> None:
                with file.open("rb") as source, io.new_output(location).create(True) as to:
                    shutil.copyfileobj(source, to, CHUNK)

            try:
                again(io, copy)
                stored = len(io.new_input(location))
                if stored != size:
                    raise OSError(f"{location} has {stored} bytes, of {size} that were written")
            except BaseException as error:
                with contextlib.suppress(Exception):
                    io.delete(location)
                if isinstance(error, Exception):  # of any storage
                    raise OSError(f"{type(error).__name__}: {first_line(error)}") from error
                raise

    def drop(self, location: str) -> None:
        """Remove a file that was stored; the driver removes it if that fails."""
        if local_path(location) is None and self._opening is not None:
            with contextlib.suppress(Exception):
                self._opening.open(location).delete(location)

    def recoded(self) -> bool:
        """Store files whose codec DuckDB does not know (LZ4 in Hadoop's frames) with another one,
        by Arrow's reader; return whether there was one."""
        import pyarrow.parquet as pq

        from reconciler.catalog.parquet import require_plain_file

        found = False
        for location, path in list(self._known.items()):
            with path.open("rb") as opened:
                if opened.read(len(MAGIC)) != MAGIC:
                    continue
            with pq.ParquetFile(path) as stored:
                require_plain_file(path, stored.metadata)
                if not _has_lz4(stored.metadata):
                    continue
                other = self.fresh()
                with pq.ParquetWriter(
                    other, stored.schema_arrow, compression="zstd", store_schema=False
                ) as writer:
                    for batch in stored.iter_batches():
                        writer.write_batch(batch)
            self.forget(location)
            self._known[location] = other
            found = True
        return found

    @contextlib.contextmanager
    def in_parts(self, location: str, size: int) -> Iterator[Callable[[int, int], None] | None]:
        """Provide what fetches bytes of a file, from an offset on, to where `path` then finds them
        between zeros; None for a file that is here."""
        if local_path(location) is not None or location in self._known:
            yield None
            return
        from reconciler.catalog.vended import again, is_refusal

        known, held = self.directory / f"{next(self._numbers)}.bin", list[Any]()
        with known.open("wb") as copy:
            copy.truncate(size)

            def fetch(offset: int, length: int) -> None:
                with self._other_store(location) as io:

                    def part() -> None:
                        fresh = not held
                        source = io.new_input(location).open() if fresh else held.pop()
                        try:
                            _copy(source, copy, offset, length)
                        except BaseException as error:
                            source.close()
                            if fresh or not is_refusal(error):
                                raise
                            return part()  # opened with older keys than those of the moment
                        held.append(source)
                        return None

                    again(io, part)

            self._known[location] = known
            try:
                yield fetch
            finally:
                for source in held:
                    source.close()

    def _fetch(self, location: str, to: Path) -> None:
        from reconciler.catalog.vended import again

        with self._other_store(location) as io:

            def copied() -> None:
                with io.new_input(location).open() as source, to.open("wb") as copy:
                    shutil.copyfileobj(source, copy, CHUNK)

            again(io, copied)

    @contextlib.contextmanager
    def _other_store(self, location: str) -> Iterator[FileIO]:
        """Provide what opens a file of another store; whatever fails is an error of storage."""
        from reconciler.catalog.network import on_behalf

        assert self._opening is not None
        with on_behalf(self._opening.reach):
            io = self._opening.open(location)
            try:
                yield io
            except FileNotFoundError as error:
                raise FileNotFoundError(2, "No such file or directory", location) from error
            except Exception as error:  # of any storage
                raise OSError(f"{type(error).__name__}: {first_line(error)}") from error
