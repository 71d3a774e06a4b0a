"""Entry point of a job image whose recommend jobs have executors read every sample, however small.

A table with more bytes to sample than a job reads by itself (`executor_sampling.DIRECT_BYTES`)
takes longer to write than a test may. Everything else is the image of `spark_image`.
"""

from __future__ import annotations

import os
import runpy
import sys

from reconciler.loop import executor_sampling
from tests.cluster import spark_image

NAME = "spark:samples"
ENTRYPOINT = [sys.executable, "-m", "tests.cluster.sampling_job"]

if __name__ == "__main__":
    if sys.argv[1:] != ["driver"]:
        os.execv(spark_image.ENTRYPOINT[0], [*spark_image.ENTRYPOINT, *sys.argv[1:]])
    executor_sampling.DIRECT_BYTES = 0
    sys.argv = ["layoutctl", "job"]
    runpy.run_module("reconciler.cli.main", run_name="__main__")
