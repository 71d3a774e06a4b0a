"""Entry point of the job image: the driver of a Job, or an executor that Spark started.

PyPI's pyspark ships no entry point for Kubernetes. As in Spark's own image, this one builds Java's
command line from the executor's environment (SPARK_*). It runs any other arguments as a command.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(words: list[str], environ: Mapping[str, str]) -> list[str]:
    """The command line that a container with these arguments runs."""
    if words[:1] == ["driver"]:
        return [sys.executable, "-m", "reconciler.cli.main", "job"]
    if words[:1] == ["executor"]:
        return executor(environ)
    return words


def executor(environ: Mapping[str, str]) -> list[str]:
    numbered = [name for name in environ if name.startswith("SPARK_JAVA_OPT_")]
    options = [environ[name] for name in sorted(numbered, key=lambda n: int(n.split("_")[-1]))]
    home = environ.get("JAVA_HOME")
    jars = Path(spark_home(environ)) / "jars"
    # In the order of Spark's launcher: an archive of classes fits one class path only.
    first = sorted(map(str, jars.glob("slf4j-api-*.jar")))
    class_path = [environ.get("SPARK_CONF_DIR", "/opt/spark/conf"), *first, f"{jars}/*"]
    if environ.get("SPARK_EXTRA_CLASSPATH"):
        class_path.append(environ["SPARK_EXTRA_CLASSPATH"])
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    return [
        f"{home}/bin/java" if home else "java",
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(class_path),
        BACKEND,
        *(word for flag, name in ARGUMENTS.items() for word in (flag, environ[name])),
    ]


def spark_home(environ: Mapping[str, str]) -> str:
    """SPARK_HOME, else the distribution inside the pyspark package."""
    package = importlib.util.find_spec("pyspark")
    found = str(Path(package.origin).parent) if package and package.origin else "/opt/spark"
    return environ.get("SPARK_HOME") or found


if __name__ == "__main__":
    argv = command(sys.argv[1:], os.environ)
    os.execvp(argv[0], argv)
