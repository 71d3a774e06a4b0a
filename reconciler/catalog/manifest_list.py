"""Reads manifest lists by pyiceberg's decoder, which is derived once for each Avro schema.

Lists are short, and those of one writer have one schema: to derive a decoder from the schema takes
several times as long as to decode the rows.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from pyiceberg.io import InputFile

    from reconciler.catalog.checked_avro import CheckedInput

SCHEMAS = 32
"""Schemas whose decoders are kept."""
READ = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
TYPES: dict[int, Any] = {-1: ManifestFile, 508: PartitionFieldSummary}
ENUMS: dict[int, Any] = {517: ManifestContent}
"""How pyiceberg reads a manifest list: the schema, and the classes of fields by their ids."""


def manifests_in(file: CheckedInput) -> list[ManifestFile]:
    """Return the manifests that a manifest list names."""
    with _ManifestList(cast("InputFile", file)) as rows:
        return list(rows)


class _ManifestList(AvroFile[ManifestFile]):
    """A manifest list that is read."""

    __slots__ = ()

    def __enter__(self) -> _ManifestList:
        with self.input_file.open() as file:
            self.decoder = new_decoder(file.read())
        self.header = self._read_header()
        self.schema, self.reader = _decoder_of(self.header.meta.get("avro.schema", ""))
        return self


@lru_cache(maxsize=SCHEMAS)
def _decoder_of(schema: str) -> tuple[Any, Any]:
    """Return the schema of a list, and what decodes its rows. schema: the Avro schema as JSON."""
    found = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    return found, resolve_reader(found, READ, TYPES, ENUMS)
