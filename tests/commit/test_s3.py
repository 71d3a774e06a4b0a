"""The engine without a JVM on S3: a real server of objects, and a real REST catalog beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.choices import EngineType
from reconciler.catalog import s3_uploads
from reconciler.catalog.load import connect
from reconciler.commit.table import LiveTable
from reconciler.errors import UnsupportedError
from reconciler.loop import engines
from reconciler.loop.engines import CommitTarget
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step, run_until_converged
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.killed_run import UNRECORDED, run_killed
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of
from tests.rest_server import RestServer
from tests.s3_store import BUCKET, KEYS, S3Store, s3_catalog

pytestmark = [pytest.mark.rest]
CATALOG = "s3_local"


@pytest.fixture(autouse=True)
def no_credentials_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "PYICEBERG_", "LAYOUTCTL_STATE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def table_on(config: Any, name: str, files: int = 4) -> Any:
    catalog = connect(config)
    catalog.create_namespace_if_not_exists("loop")
    table = catalog.create_table(f"loop.{name}", rows_of(0, 9).schema)
    for number in range(files):
        table.append(rows_of(number, 1_000))
    return table


def rows(table: Any) -> Counter[tuple[Any, ...]]:
    """The rows by Arrow's reader: nothing here has deletes."""
    found = table.refresh().scan().to_arrow().to_pylist()
    return Counter(tuple(row.values()) for row in found)


def unreferenced(table: Any, store: S3Store) -> set[str]:
    named = set(table.refresh().inspect.all_files()["file_path"].to_pylist())
    return store.listing(f"{table.location()}/data") - named


def uploads(store: S3Store) -> list[str]:
    """Keys of uploads that nobody completed, by a client of the test's own."""
    import boto3

    client = boto3.client(
        "s3", endpoint_url=store.endpoint, region_name="eu-central-1",
        aws_access_key_id=KEYS["s3.access-key-id"],
        aws_secret_access_key=KEYS["s3.secret-access-key"],
    )  # fmt: skip
    return [one["Key"] for one in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]


def test_keys_that_the_catalog_hands_out_are_enough_without_a_jvm(
    vending_rest_server: RestServer, s3_store: S3Store, tmp_path: Path
) -> None:
    config = s3_catalog(vending_rest_server, s3_store, CATALOG)
    table = table_on(config, "vended")
    before = rows(table)
    properties = {key: text for key, text in config.properties.items() if key not in KEYS}
    (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {CATALOG: properties}}))
    policy = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1", "kind": "TableLayoutPolicy",
        "metadata": {"name": "p"},
        "spec": {"catalogRef": {"name": CATALOG}, "tables": {"include": ["loop.vended"]},
                 **DECLARED},
    }  # fmt: skip
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    environment = {
        "PATH": "/nonexistent", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path),
        "PYICEBERG_HOME": str(tmp_path), "LAYOUTCTL_STATE": str(tmp_path / "state"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", "apply", f"{CATALOG}.loop.vended",
         "-f", "policy.yaml", "--until-converged", "--auto-approve"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Engine Local" in done.stdout + done.stderr
    assert rows(table) == before
    assert len(list(table.scan().plan_files())) == 1
    assert unreferenced(table, s3_store) == set()


@pytest.mark.parametrize("phase", ["verified", "commit", UNRECORDED])
def test_a_killed_run_on_s3_leaves_the_table_and_the_next_one_cleans_up(
    s3_rest_server: RestServer, s3_store: S3Store, tmp_path: Path, phase: str
) -> None:
    config = s3_catalog(s3_rest_server, s3_store, CATALOG)
    name = f"killed_{phase.partition(' ')[0]}"
    table = table_on(config, name)
    before = rows(table)
    run_killed(config, name, phase, tmp_path)
    assert rows(table) == before
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(config, name, **DECLARED)
    proposal = step.propose(actor)
    (attempt,) = {one.prefix for one in actor.store.open_intents(str(table.metadata.table_uuid))}
    begun = s3_store.files().open_output_stream(f"{attempt.removeprefix('s3://')}/killed.parquet")
    begun.write(b"x" * (11 << 20))  # more than one part; never completed
    begun.flush()
    assert [key.rpartition("/")[2] for key in uploads(s3_store)] == ["killed.parquet"]
    assert actor.resume(step, proposal.observation, quiet) == 1
    assert uploads(s3_store) == []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert rows(table) == before
    assert unreferenced(table, s3_store) == set()


def test_a_store_that_refuses_to_list_uploads_keeps_them(s3_store: S3Store) -> None:
    properties = {"s3.endpoint": s3_store.endpoint, "s3.region": "eu-central-1", **KEYS}
    refused = {**properties, "s3.secret-access-key": "not-the-secret"}
    begun = s3_store.files().open_output_stream(f"{BUCKET}/layout-x/killed.parquet")
    begun.write(b"x" * (11 << 20))
    begun.flush()
    s3_uploads.end_uploads(refused, f"s3://{BUCKET}/layout-x")
    assert len(uploads(s3_store)) == 1
    s3_uploads.end_uploads(properties, f"s3://{BUCKET}/layout")
    assert len(uploads(s3_store)) == 1, "of another directory"
    s3_uploads.end_uploads(properties, f"s3://{BUCKET}/layout-x")
    assert uploads(s3_store) == []


@pytest.mark.parametrize("proxy", [None, "http://proxy:3128"])
def test_uploads_are_ended_through_the_proxy_of_the_files(proxy: str | None) -> None:
    properties = {"s3.region": "eu-central-1", **({"s3.proxy-uri": proxy} if proxy else {}), **KEYS}
    wanted = {"http": proxy, "https": proxy} if proxy else None
    assert s3_uploads._client(properties).meta.config.proxies == wanted


def test_which_stores_the_local_engine_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    here, on_s3, there = "file:/a", "s3://b/t", "gs://b/t"
    refused = engines._store_needs_spark
    assert not refused(CommitTarget("rest"), [here, on_s3])
    assert refused(CommitTarget("rest"), [on_s3, there])
    assert refused(CommitTarget("rest", own_io="s3.signer"), [on_s3])
    assert not refused(CommitTarget("sql", own_io="py-io-impl"), [here])
    monkeypatch.setattr(s3_uploads, "is_installed", lambda: False)
    assert refused(CommitTarget("rest"), [on_s3])


def test_files_that_something_else_than_arrow_opens_are_left_to_spark(
    s3_rest_server: RestServer, s3_store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a server that signs requests, which only its answer says."""
    config = s3_catalog(s3_rest_server, s3_store, CATALOG)
    table_on(config, "signed")
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(config, "signed", **DECLARED)
    proposal = step.propose(actor)
    monkeypatch.setattr(LiveTable, "io", object())
    before = s3_store.listing(f"s3://{BUCKET}")
    with pytest.raises(UnsupportedError):
        run_step(step, actor, EVERYTHING, quiet, never, proposal)
    assert s3_store.listing(f"s3://{BUCKET}") == before
