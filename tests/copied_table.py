"""A table made once and copied for each test that needs one of its own.

The copy has its own name, UUID and location. Its first snapshots read the original's files, which
no test may delete; whatever is written later goes to the copy's location.
"""

from __future__ import annotations

import uuid
from typing import Any

from pyiceberg.serializers import FromInputFile, ToOutputFile


def copied_table(catalog: Any, original: Any, name: str) -> Any:
    """Return a copy of a pyiceberg table under `name`, registered in the catalog."""
    metadata = FromInputFile.table_metadata(original.io.new_input(original.metadata_location))
    location = f"{original.location().rpartition('/')[0]}/{name.rpartition('.')[2]}"
    copy = metadata.model_copy(update={"table_uuid": uuid.uuid4(), "location": location})
    path = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(copy, original.io.new_output(path))
    return catalog.register_table(name, path)
