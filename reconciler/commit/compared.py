"""The live entries of a snapshot as pyiceberg reads them, to compare two snapshots.

Our own code writes the manifests that are compared, and copies entries without decoding them. So
another reader of Avro and of the manifests' schema says what they hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

WIDTH = 16
"""Bytes of the hash of an entry."""


def live_entries(io: FileIO, manifest_list: str) -> tuple[int, str]:
    """Return the number of live entries, and the sum of their hashes, which does not depend on
    their order. Every field counts, and the sequence numbers that a manifest's line gives."""
    from pyiceberg.manifest import read_manifest_list

    number = total = 0
    for manifest in read_manifest_list(io.new_input(manifest_list)):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            own = (
                entry.snapshot_id, entry.sequence_number, entry.file_sequence_number,
                manifest.partition_spec_id, *map(_plain, file._data),
            )  # fmt: skip
            total += int.from_bytes(hashlib.blake2b(repr(own).encode(), digest_size=WIDTH).digest())
            number += 1
    return number, str(total)


def _plain(value: Any) -> Any:
    """Return a value whose text says all of it, in one order."""
    held = getattr(value, "_data", None)
    if held is not None:  # a pyiceberg Record
        return tuple(map(_plain, held))
    if isinstance(value, Mapping):
        return sorted((key, _plain(one)) for key, one in value.items())
    if isinstance(value, Enum):  # what pyiceberg takes for a field that format 1 does not have
        return value.value
    return value
