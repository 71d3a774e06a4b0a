"""A real Iceberg REST catalog server as a process, for tests marked `rest`.

Iceberg's own test server (1.11.0 is the last release that publishes it) on a SQLite catalog; the
Hadoop classes come from the Spark distribution.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from reconciler.spark.session import runtime

_PINS = Path(__file__).parent / "rest_server_jars.txt"
S3_PINS = Path(__file__).parent / "rest_server_s3_jars.txt"
"""What the server needs besides to keep its tables on S3."""


_SQLITE = "busy_timeout=30000&synchronous=OFF&journal_mode=MEMORY"
"""Nothing has to survive the machine: without waiting for the disk a commit takes half the time."""


def pinned_jars(pins: Path = _PINS) -> tuple[runtime.Jar, ...]:
    jars = []
    for line in pins.read_text().splitlines():
        coordinates, sha256 = line.split()
        organisation, module, revision, *classifier = coordinates.split(":")
        jars.append(runtime.Jar(organisation, module, revision, sha256, "".join(classifier)))
    return tuple(jars)


class RestServer:
    """One server process below `directory`; `uri` is its address."""

    def __init__(
        self,
        directory: Path,
        catalog: str = "rec",
        port: int = 0,
        *,
        warehouse: str = "",
        jars: tuple[runtime.Jar, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """port: 0 for one that is free. warehouse: "" for a directory below `directory`.

        jars: on the class path besides the server's own. environment: CATALOG_* settings besides
        the address, and what the store's client reads.
        """
        hadoop = sorted((runtime.spark_home() / "jars").glob("hadoop-client-*.jar"))
        fetched = runtime.fetch((*pinned_jars(), runtime.SQLITE_JDBC, *jars))
        class_path = ":".join(map(str, [*fetched, *hadoop]))
        (directory / "warehouse").mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = port or probe.getsockname()[1]
        self.port = port
        self.uri = f"http://127.0.0.1:{port}"
        self.warehouse = warehouse or f"file://{directory}/warehouse"
        self._log = (directory / "server.log").open("w")
        self.process = subprocess.Popen(
            [runtime.java_command(), "-Xmx256m", "-cp", class_path,
             "org.apache.iceberg.rest.RESTCatalogServer"],
            env={
                **os.environ,
                "CATALOG_CATALOG_NAME": catalog,
                "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db?{_SQLITE}",
                "CATALOG_WAREHOUSE": self.warehouse,
                "CATALOG_REST_PORT": str(port),
                **(environment or {}),
            },
            stdout=self._log,
            stderr=self._log,
        )  # fmt: skip
        self._wait_until_up(directory / "server.log")

    def _wait_until_up(self, log: Path) -> None:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise RuntimeError(f"the REST server did not start: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._log.close()
