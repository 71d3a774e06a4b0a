"""A real S3 server as a process: versitygw, which checks every signature, over a directory.

A REST catalog server whose warehouse is a bucket of it stands beside, in the two ways that
catalogs hand out access: the client has keys of its own, or gets them with each table.
"""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.api.catalog_config import CatalogConfig
from tests.cluster import processes
from tests.rest_server import S3_PINS, RestServer, pinned_jars

REGION = "eu-central-1"
BUCKET = "lake"
KEYS = {"s3.access-key-id": "gateway-user", "s3.secret-access-key": "gateway-secret-0123456789"}


class Request(NamedTuple):
    """operation: "s3_GetObject". key: within the bucket. agent: the rest of the line, which names
    the client."""

    operation: str
    key: str
    agent: str


class S3Store:
    """One gateway process over `directory`, with the bucket "lake"."""

    def __init__(self, program: Path, directory: Path) -> None:
        self.data, sidecar = directory / "data", directory / "sidecar"
        self.data.mkdir(parents=True)
        sidecar.mkdir()
        port = processes.free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        log, self._requests = directory / "gateway.log", directory / "requests.log"
        self.process = processes.spawn(
            [str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet",
             "--health", "/health", "--access-log", str(self._requests), "posix",
             "--sidecar", str(sidecar), str(self.data)],
            log,
            {
                **os.environ,
                "ROOT_ACCESS_KEY": KEYS["s3.access-key-id"],
                "ROOT_SECRET_KEY": KEYS["s3.secret-access-key"],
            },
        )  # fmt: skip
        self._wait_until_up(log)
        self.files().create_dir(BUCKET)

    def files(self) -> Any:
        """The store as pyarrow's file system."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=KEYS["s3.access-key-id"],
            secret_key=KEYS["s3.secret-access-key"],
            region=REGION,
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        )

    def listing(self, prefix: str) -> set[str]:
        """Objects below s3://... `prefix`, as s3:// addresses."""
        from pyarrow.fs import FileSelector, FileType

        below = FileSelector(prefix.removeprefix("s3://"), recursive=True, allow_not_found=True)
        found = self.files().get_file_info(below)
        return {f"s3://{item.path}" for item in found if item.type == FileType.File}

    def requests(self) -> list[Request]:
        """What clients asked for until now, by the server's access log."""
        lines = (line.split() for line in self._requests.read_text().splitlines())
        named = (words for words in lines if len(words) > 10 and words[7].startswith("s3_"))
        return [Request(words[7], words[8], " ".join(words[10:])) for words in named]

    def _wait_until_up(self, log: Path) -> None:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{self.endpoint}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise RuntimeError(f"the S3 gateway did not start: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        processes.end(self.process, 10)


def rest_server_on(store: S3Store, directory: Path, *, vends: bool) -> RestServer:
    """A catalog server with its warehouse on the store. vends: gives its keys to every client."""
    return RestServer(
        directory,
        warehouse=f"s3://{BUCKET}/warehouse",
        jars=pinned_jars(S3_PINS),
        environment={
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": store.endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "CATALOG_CLIENT_REGION": REGION,
            "CATALOG_S3_ACCESS__KEY__ID": KEYS["s3.access-key-id"],
            "CATALOG_S3_SECRET__ACCESS__KEY": KEYS["s3.secret-access-key"],
            "CATALOG_INCLUDE__CREDENTIALS": str(vends).lower(),
        },
    )


def s3_catalog(server: RestServer, store: S3Store, name: str = "rec") -> CatalogConfig:
    """The catalog for a client with keys of its own, in pyiceberg's spelling."""
    return CatalogConfig(
        name=name,
        type="rest",
        properties={
            "type": "rest",
            "uri": server.uri,
            "s3.endpoint": store.endpoint,
            "s3.region": REGION,
            **KEYS,
        },
        source="test",
    )
