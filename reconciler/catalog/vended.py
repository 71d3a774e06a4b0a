"""The files of a table whose keys the catalog hands out, and hands out again before they expire.

Keys are renewed in the last part of their life (`MARGIN_SECONDS`), and when the store refuses them:
a clock may be wrong, and keys may be revoked. Both hold for Arrow's clients alone: those of S3 and
Google Cloud Storage, and that of Azure if a person's own configuration names it. The names are
those of the REST catalog's specification (loadTable, loadCredentials) and of Iceberg's FileIOs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from reconciler.catalog.storage import storage_refusal

MARGIN_SECONDS = 300.0
"""Keys are renewed this long before they expire, as Iceberg's Java client does."""
MARGIN_SHARE = 0.5
"""The same for keys that live for a short time, as a share of the life that they have left when
they come."""
LEAST_SECONDS, FAILED_SECONDS = 1.0, 10.0
"""Between two requests for keys of one table by one process, and after one that did not help."""
NAMES = frozenset((
    "adls.sas-token", "gcs.oauth2.token", "gcs.oauth2.token-expires-at", "s3.access-key-id",
    "s3.secret-access-key", "s3.session-token", "s3.session-token-expires-at-ms",
))  # fmt: skip
"""Properties that a catalog vends: new keys replace all of them."""
PREFIXES = ("adls.sas-token.", "adls.sas-token-expires-at-ms.")
"""Begin the names of vended properties that end in a storage account."""
_EXPIRY = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")
_EXPIRIES = "adls.sas-token-expires-at-ms."

Given = Mapping[str, Any]
Result = TypeVar("Result")
log = logging.getLogger(__name__)


def is_vended(name: str) -> bool:
    """Return whether the property is one of the keys that a catalog hands out."""
    return name in NAMES or name.startswith(PREFIXES)


def only_keys(properties: Given) -> dict[str, Any]:
    """Return those of the properties that are keys."""
    return {name: text for name, text in properties.items() if is_vended(name)}


def expires_at(properties: Given) -> float | None:
    """Return when the first of the keys expires, in seconds since 1970; None if nothing says."""
    named = [
        text for name, text in properties.items() if name in _EXPIRY or name.startswith(_EXPIRIES)
    ]
    moments = []
    for text in named:
        with contextlib.suppress(TypeError, ValueError):
            moments.append(int(text) / 1000)
    return min(moments, default=None)


def due_at(properties: Given, now: float) -> float | None:
    """Return when keys that came at `now` are to be renewed; None if nothing says. In seconds since
    1970."""
    expiry = expires_at(properties)
    if expiry is None:
        return None
    return expiry - min(MARGIN_SECONDS, max(0.0, expiry - now) * MARGIN_SHARE)


@dataclass(eq=False)
class Keys:
    """The properties of a table's FileIO, as last handed out. Thread-safe."""

    properties: Given = field(repr=False)
    """All of them, keys among them."""
    ask: Callable[[], Given] = field(repr=False)
    """Asks the catalog for all of them anew, within a limited time."""
    number: int = 0
    """How often they were renewed."""
    due: float | None = None
    """When they are to be renewed, in seconds since 1970; None if nothing says."""
    _rests_until: float = float("-inf")
    """Monotonic time in seconds until which nothing is asked."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that asks."""

    def __post_init__(self) -> None:
        self.due = due_at(self.properties, time.time())

    def current(self) -> tuple[int, Given]:
        """Return the number and the properties, renewed if they are due. While the old ones are
        good nobody waits for the thread that asks, nor fails because the catalog does not
        answer."""
        if self._is_due() and self._lock.acquire(blocking=self._are_over()):
            try:
                if self._is_due() and self._may_ask():
                    self._renew()
            finally:
                self._lock.release()
        return self.number, self.properties

    def renewed(self, number: int) -> bool:
        """Return whether there are newer ones than those with the number, which were refused."""
        with self._lock:
            rest = self._rests_until - time.monotonic()
            if self.number == number and 0 < rest <= LEAST_SECONDS:
                time.sleep(rest)
            if self.number == number and self._may_ask():
                self._renew()
            return self.number > number

    def did_not_help(self) -> None:
        """Note that the store refused new keys, too: it may refuse whoever asks."""
        self._rests_until = time.monotonic() + FAILED_SECONDS

    def _is_due(self) -> bool:
        return self.due is not None and time.time() >= self.due

    def _are_over(self) -> bool:
        expiry = expires_at(self.properties)
        return expiry is not None and time.time() >= expiry

    def _may_ask(self) -> bool:
        return time.monotonic() >= self._rests_until

    def _renew(self) -> None:
        """Ask, and keep what came. What fails is noted without a word of the answer: it may hold
        keys."""
        try:
            given = self.ask()
        except Exception as error:  # of any catalog; the store refuses the old keys when they end
            log.warning("a catalog gave no new keys for files: %s", type(error).__name__)
            self._rests_until = time.monotonic() + FAILED_SECONDS
            return
        same = only_keys(given) == only_keys(self.properties)
        if not same:
            self.properties, self.due = given, due_at(given, time.time())
            self.number += 1
        helps = not same and not self._is_due()
        self._rests_until = time.monotonic() + (LEAST_SECONDS if helps else FAILED_SECONDS)


def renewed(old: Given, keys: Given) -> dict[str, Any]:
    """Return the properties with new keys in the place of the old ones."""
    return {**{name: text for name, text in old.items() if not is_vended(name)}, **keys}


def is_refusal(error: BaseException) -> bool:
    """Return whether a store refused the keys, as far as the error of Arrow's client says."""
    return isinstance(error, PermissionError) or storage_refusal(error, "") is not None


class VendedFileIO(PyArrowFileIO):
    """Opens files with the keys of the moment: each renewal makes a new FileIO behind it.

    A stream that is open keeps its keys; whoever holds one for long opens it again (`again`).
    """

    def __init__(self, keys: Keys, make: Callable[[Given], FileIO]) -> None:
        """make: of a FileIO with these properties."""
        self.keys, self._make = keys, make
        self._made: tuple[int, FileIO] = (-1, PyArrowFileIO())
        super().__init__()
        self.fs_by_scheme = self._file_system

    @property
    def properties(self) -> Any:
        """Of the FileIO of the moment."""
        return self.keys.current()[1]

    @properties.setter
    def properties(self, given: Any) -> None:
        """Only the keys set them."""

    def _now(self) -> tuple[int, FileIO]:
        number, properties = self.keys.current()
        made = self._made
        if made[0] != number:
            made = self._made = number, self._make(properties)
        return made

    def _file_system(self, scheme: str, netloc: str | None = None) -> Any:
        opened = self._now()[1]
        assert isinstance(opened, PyArrowFileIO)  # vends() lets no other one in
        return opened.fs_by_scheme(scheme, netloc)

    def tried(self, work: Callable[[FileIO], Result]) -> Result:
        """Return what the work returns; if the store refuses the keys, once more with new ones."""
        number, io = self._now()
        try:
            return work(io)
        except OSError as error:
            if not is_refusal(error) or not self.keys.renewed(number):
                raise
        try:
            return work(self._now()[1])
        except OSError as error:
            if is_refusal(error):
                self.keys.did_not_help()
            raise

    def new_input(self, location: str) -> Any:
        return _Input(self, location)

    def new_output(self, location: str) -> Any:
        return _Output(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.tried(lambda io: io.delete(location))


class _Input(InputFile):
    def __init__(self, io: VendedFileIO, location: str) -> None:
        super().__init__(location)
        self._io = io

    def __len__(self) -> int:
        return self._io.tried(lambda io: len(io.new_input(self.location)))

    def exists(self) -> bool:
        return self._io.tried(lambda io: io.new_input(self.location).exists())

    def open(self, seekable: bool = True) -> InputStream:
        return self._io.tried(lambda io: io.new_input(self.location).open(seekable))


class _Output(OutputFile):
    def __init__(self, io: VendedFileIO, location: str) -> None:
        super().__init__(location)
        self._io = io

    def __len__(self) -> int:
        return self._io.tried(lambda io: len(io.new_output(self.location)))

    def exists(self) -> bool:
        return self._io.tried(lambda io: io.new_output(self.location).exists())

    def create(self, overwrite: bool = False) -> OutputStream:
        return self._io.tried(lambda io: io.new_output(self.location).create(overwrite))

    def to_input_file(self) -> InputFile:
        return _Input(self._io, self.location)


def handed_out(io: FileIO) -> Given:
    """Return the properties of a table's FileIO as they came with the table, keys among them.

    The keys are not renewed, even if they look expired: whoever renews keys asks for these. Raises
    ValueError if the catalog handed out none: the table's files would be opened with other keys.
    """
    if not isinstance(io, VendedFileIO):
        raise ValueError("the catalog handed out no keys")
    return io.keys.properties


def vends(io: FileIO, properties: Given) -> bool:
    """Return whether the FileIO works with keys that were handed out with these properties."""
    return isinstance(io, PyArrowFileIO) and any(is_vended(name) for name in properties)


def again(io: Any, work: Callable[[], Result]) -> Result:
    """Return what the work with streams of the FileIO returns; once more, from its beginning, if
    the store refuses the keys meanwhile."""
    if not isinstance(io, VendedFileIO):
        return work()
    return io.tried(lambda _: work())
