"""The application file of a SparkApplication (experimental): the same driver as the Job's."""

from __future__ import annotations

import sys

from reconciler.cli.main import main

if __name__ == "__main__":
    sys.argv = ["layoutctl", "job"]
    main()
