"""Reads archives of arrays, one thread at a time.

NumPy parses the head of each array as Python. In CPython 3.11 two threads that do so at once may
fail with "AST constructor recursion depth mismatch".
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO

import numpy as np

from reconciler.table.filetable import Array

_ONE_AT_A_TIME = threading.Lock()


def arrays_of(file: Path | IO[bytes]) -> dict[str, Array]:
    """Return the arrays of a .npz archive by name. Raises OSError, ValueError."""
    with _ONE_AT_A_TIME, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
