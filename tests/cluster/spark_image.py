"""The image with Spark for the test kubelet: the pyspark of this environment, and its entry point.

Run as a program it is that entry point: "executor" starts an executor from the SPARK_* variables
that Spark sets on the pod, as the entry point of Spark's own image does (PyPI's pyspark has none);
anything else is a command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = "spark:test"
ENTRYPOINT = [sys.executable, str(Path(__file__).resolve())]


def environment() -> dict[str, str]:
    """ENV of the image. One address a pod: by a shared one, Spark takes shuffle files for local."""
    from reconciler.jobs import runtime

    root = Path(__file__).resolve().parents[2]
    passed_on = ("JAVA_HOME", "LAYOUTCTL_CACHE", "XDG_CACHE_HOME")
    return {
        "PYTHONPATH": str(root),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(runtime.spark_home()),
        "SPARK_LOCAL_IP": "$(status.podIP)",
        **{name: os.environ[name] for name in passed_on if name in os.environ},
    }


def executor_command(env: dict[str, str]) -> list[str]:
    """Java's command line for an executor, from what Spark puts into its pod's environment."""
    numbered = [name for name in env if name.startswith("SPARK_JAVA_OPT_")]
    options = [env[name] for name in sorted(numbered, key=lambda name: int(name.split("_")[-1]))]
    home = env.get("JAVA_HOME")
    memory = env["SPARK_EXECUTOR_MEMORY"]
    arguments = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    class_path = [env.get("SPARK_CONF_DIR", "/opt/spark/conf"), f"{env['SPARK_HOME']}/jars/*"]
    class_path += [env[name] for name in ("SPARK_EXTRA_CLASSPATH",) if env.get(name)]
    return [
        f"{home}/bin/java" if home else "java",
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(class_path),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(word for flag, name in arguments.items() for word in (flag, env[name])),
    ]


def main(words: list[str]) -> None:
    command = executor_command(dict(os.environ)) if words[:1] == ["executor"] else words
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
