"""Avro files for pyiceberg whose containers were checked before: their size, blocks and schema.

pyiceberg's decoder is native code. Random bytes can end the process, and a few compressed bytes
could fill its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reconciler.catalog import bounds
from reconciler.catalog.avro import parse_container

if TYPE_CHECKING:
    from pyiceberg.io import InputFile


@dataclass(frozen=True)
class CheckedInput:
    """One Avro file."""

    file: InputFile

    @property
    def location(self) -> str:
        return self.file.location

    def __len__(self) -> int:
        return len(self.file)

    def exists(self) -> bool:
        return bool(self.file.exists())

    def open(self, seekable: bool = True) -> Any:
        """Return the file's bytes as a stream. Raises CorruptContainer and TooLargeError."""
        subject = f'the Avro file "{self.location}"'
        with self.file.open(seekable) as stream:
            data = bounds.read(stream, subject)
        parse_container(data, subject)
        return BytesIO(data)
