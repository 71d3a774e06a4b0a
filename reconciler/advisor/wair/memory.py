"""The memory limit of WAIR (section 3.3, extension 1): a set of more than k_max files is rewritten
in parts of at most so many, each on its own.

The paper does not say how the set is divided. Files are put in order of the key by the middle of
their bounds, so that a part holds neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.plan.ordering import Ordering
from reconciler.table.filetable import FileTable, Int64

MOST_FILES = 128
"""k_max of the literal method: the paper asks for more than log n and names no number."""


def memory_parts(files: FileTable, rows: Int64, ordering: Ordering, most: int) -> list[Int64]:
    """Return the files at `rows`, of one partition, in parts of at most `most`."""
    each = replace(ordering.extents(files.take(rows)), bytes=np.ones(len(rows), dtype=np.int64))
    groups = ordering.groups(each, target_bytes=most, max_bytes=most)
    return [np.sort(rows[group]) for group in groups.members]
