"""Says which engine would write files: the one in Arrow, or Spark, and why."""

from __future__ import annotations

import numpy as np

from reconciler.advisor.situation import Situation
from reconciler.table.filetable import Int64
from reconciler.table.left_to_spark import OTHER_FORMAT, why_left_to_spark


def why_by_spark(situation: Situation, rows: Int64) -> str:
    """Return why the rows of these files go through Spark, "" if they do not."""
    columns = [(field.name, field.type) for field in situation.table.schema.fields]
    deletes = situation.given.deletes
    others = any(
        np.isin(deletes.reaches(number, situation.table), rows).any()
        for number in np.flatnonzero(deletes.other_format).tolist()
    )
    properties = situation.settings.metadata.properties
    return why_left_to_spark(columns, properties, [OTHER_FORMAT] if others else [])
