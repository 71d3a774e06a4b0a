"""Lets pyiceberg 0.12 read metadata whose statistics files hold what it does not know.

Puffin files may hold blobs of any type (Iceberg's Puffin specification, "Blob types"); Presto, for
one, writes sums of sizes. pyiceberg takes two types for all there are, and refuses a table's whole
metadata for a third.
"""

from __future__ import annotations

import functools
from typing import Any

NAMED = b'"blob-metadata"'
"""In the text of metadata that has statistics files."""


@functools.cache
def accept_any(*answers: type[Any]) -> None:
    """Let `type` of a blob be any text, in all of pyiceberg's classes for table metadata. answers:
    classes that were made from these."""
    from pyiceberg.table import metadata, statistics

    statistics.BlobMetadata.model_fields["type"].annotation = str
    made: tuple[Any, ...] = (
        statistics.BlobMetadata, statistics.StatisticsFile, metadata.TableMetadataV1,
        metadata.TableMetadataV2, metadata.TableMetadataV3, metadata.TableMetadataWrapper,
        *answers,
    )  # fmt: skip
    for kind in made:
        kind.model_rebuild(force=True)
