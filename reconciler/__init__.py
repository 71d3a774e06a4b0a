"""Table Layout Reconciler: declarative physical layout for Apache Iceberg tables.

`reconciler.Table` is the Python API, `reconciler.notebook.Table`. It is imported when it is asked
for: importing the package costs nothing, and every module of it does so.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name != "Table":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("reconciler.notebook").Table
