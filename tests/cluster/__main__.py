"""`python -m tests.cluster`: a test cluster to look around in, until it is interrupted."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster import binaries, spark_image
from tests.cluster.cluster import Cluster


def main() -> None:
    """Prints what a shell needs, then waits for SIGINT or SIGTERM and leaves nothing behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    programs = binaries.directory("kube")
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True) as directory,
        Cluster(Path(directory), programs) as cluster,
    ):
        cluster.set_image("sh", ["sh", "-c"])
        cluster.set_image("python", [sys.executable, "-c"])
        cluster.set_image(spark_image.NAME, spark_image.ENTRYPOINT, spark_image.environment())
        cluster.start_kubelet()
        print(f"export KUBECONFIG={cluster.kubeconfig}")
        print(f'export PATH="{programs}:$PATH"', flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
