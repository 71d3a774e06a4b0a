"""The image with Spark for the test kubelet: this environment and the job image's entry point."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = "spark:test"
ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINT = [sys.executable, str(ROOT / "images/job/entrypoint.py")]


def environment() -> dict[str, str]:
    """ENV of the image. One address a pod: by a shared one, Spark takes shuffle files for local."""
    from reconciler.spark.session import runtime

    passed_on = ("JAVA_HOME", "JDK_JAVA_OPTIONS", "LAYOUTCTL_CACHE", "XDG_CACHE_HOME")
    return {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(runtime.spark_home()),
        "SPARK_LOCAL_IP": "$(status.podIP)",
        **{name: os.environ[name] for name in passed_on if name in os.environ},
    }
