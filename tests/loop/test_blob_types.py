"""Statistics of types that pyiceberg does not know are no reason to refuse a table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.catalog.load import connect

FOREIGN = "presto-sum-data-size-bytes-v1"


def with_foreign_statistics(table: Any) -> dict[str, Any]:
    """Write metadata of the table that lists a blob of a foreign type; return it."""
    place = Path(table.metadata_location.removeprefix("file://"))
    body = json.loads(place.read_text())
    head = body["current-snapshot-id"]
    blob = {"type": FOREIGN, "snapshot-id": head, "sequence-number": 1, "fields": [1]}
    body["statistics"] = [{
        "snapshot-id": head, "statistics-path": f"{place}.stats", "file-size-in-bytes": 4,
        "file-footer-size-in-bytes": 4, "blob-metadata": [blob],
    }]  # fmt: skip
    place.write_text(json.dumps(body))
    return dict(body)


def test_a_table_with_foreign_statistics_is_read(
    catalog_config: Any, make_table: Callable[..., Any]
) -> None:
    table = make_table("foreign_statistics", files=1)
    with_foreign_statistics(table)
    found = connect(catalog_config).load_table(table.name())
    ((blob,),) = [one.blob_metadata for one in found.metadata.statistics]
    assert blob.type == FOREIGN


def test_an_answer_of_a_rest_catalog_with_foreign_statistics_is_read(
    make_table: Callable[..., Any],
) -> None:
    """In a process of its own, where nothing else has made the classes of answers."""
    body = with_foreign_statistics(make_table("foreign_answer", files=1))
    program = (
        "import sys\n"
        "from reconciler.catalog import border_rest\n"
        "from pyiceberg.catalog.rest import TableResponse\n"
        "made = TableResponse.model_validate_json(sys.stdin.read())\n"
        "print(made.metadata.statistics[0].blob_metadata[0].type)\n"
    )
    answer = json.dumps({"metadata-location": "x", "metadata": body})
    done = subprocess.run(
        [sys.executable, "-c", program], input=answer, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [FOREIGN]
