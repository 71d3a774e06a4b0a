"""What applying deletes to a data file costs one reading of it.

The linear model of reading with deletes: a position costs a little, a key of an equality delete
more, and the first set of keys costs a look-up of every row of the file ("Petabyte-Scale Row-Level
Operations in Data Lakehouses", sections 3.2.6 and 5.2). The constants are CPU seconds, measured on
TPC-H lineitem in Spark.
"""

from __future__ import annotations

from reconciler.table.filetable import Float64, Int64

POSITION_SECONDS = 2e-7
"""CPU seconds per deleted position that a reader loads, and per reading."""
ROW_SECONDS = 2.7e-7
"""CPU seconds per row of a file that is looked up in a set of deleted keys."""
KEY_SECONDS = 5e-7
"""CPU seconds per deleted key that a reader loads for a file."""


def apply_seconds(positions: Float64, keys: Float64, key_sets: Float64, records: Int64) -> Float64:
    """k_p * positions + k_l * keys + k_e * rows, once per set of identity columns."""
    return POSITION_SECONDS * positions + KEY_SECONDS * keys + ROW_SECONDS * records * key_sets
