"""The loop on a REST catalog whose tables lie on S3: keys of one's own, vended keys, no keys."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect
from reconciler.catalog.orphans import find_orphans
from reconciler.catalog.properties import spark_conf
from reconciler.engines.commit import commit, history
from reconciler.engines.engine_errors import translated
from reconciler.engines.schedule import execute, processes
from reconciler.engines.schedule.refused import NotVerified
from reconciler.errors import EXIT_USER, AccessDeniedError, UnknownCommitError, UserError
from reconciler.loop.driver_job import drive, load_plan
from reconciler.loop.local_actor import LocalActor
from reconciler.plan.actions.rewrite import Cluster
from reconciler.rewrite import rewriting
from reconciler.spark.engine import JavaBackend
from reconciler.spark.session import translate
from reconciler.table.orphans import Search
from tests.cli.in_process import Cli, runner
from tests.loop.runs import prepared
from tests.rest_server import RestServer
from tests.s3_store import BUCKET, KEYS, S3Store, s3_catalog
from tests.spark.tables import Bench

pytestmark = [pytest.mark.rest]

CATALOG = "on_s3"
ABORTED = "s3_AbortMultipartUpload"
FETCHING = "aws-sdk-cpp"
"""The client of pyarrow, by which whole files are fetched; the JVM reads footers by its own."""


@pytest.fixture(autouse=True)
def no_credentials_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "PYICEBERG_", "LAYOUTCTL_STATE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def config(s3_rest_server: RestServer, s3_store: S3Store) -> CatalogConfig:
    """The catalog "on_s3", for clients that have keys."""
    return s3_catalog(s3_rest_server, s3_store, CATALOG)


@pytest.fixture
def on_s3(spark: Any, config: CatalogConfig) -> Any:
    """The shared session, which knows the catalog "on_s3"."""
    spark.open_catalogs(spark_conf(config))
    return spark


@dataclass
class Home:
    """A user's directory: configuration, state, cache."""

    directory: Path

    def configure(self, properties: Mapping[str, str]) -> None:
        text = yaml.safe_dump({"catalog": {CATALOG: dict(properties)}})
        (self.directory / ".pyiceberg.yaml").write_text(text)

    def environment(self) -> dict[str, str]:
        return {
            "PYICEBERG_HOME": str(self.directory),
            "LAYOUTCTL_STATE": str(self.directory / "state"),
            "COLUMNS": "100",
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def cli(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Cli:
    """layoutctl in this process: exit code, stdout, stderr."""
    return runner(monkeypatch, capsys)


def scattered(config: CatalogConfig, name: str) -> Any:
    """sales.<name>: six appends over which `day` scatters."""
    catalog = connect(config)
    catalog.create_namespace_if_not_exists("sales")
    table = None
    for number in range(6):
        random = np.random.default_rng(number)
        batch = pa.table(
            {
                "id": np.arange(number * 500, (number + 1) * 500),
                "day": random.integers(0, 400, 500),
            }
        )
        if table is None:
            table = catalog.create_table(f"sales.{name}", batch.schema)
        table.append(batch)
    return table


def rows(table: Any) -> list[dict[str, Any]]:
    found = table.refresh().scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def unreferenced(table: Any, store: S3Store) -> set[str]:
    """Data files below the table's location that no snapshot names."""
    named = set(table.refresh().inspect.all_files()["file_path"].to_pylist())
    return store.listing(f"{table.location()}/data") - named


def policy(path: Path, table: Any) -> str:
    spec = {
        "catalogRef": {"name": CATALOG},
        "tables": {"include": [".".join(table.name())]},
        "layout": {"clustering": {"mode": "Declared", "keys": ["day"]}},
    }
    meta = {"apiVersion": "layout.lakehouse.dev/v1alpha1", "kind": "TableLayoutPolicy"}
    path.write_text(yaml.safe_dump({**meta, "metadata": {"name": "sales"}, "spec": spec}))
    return str(path)


def test_a_table_on_s3_converges_with_its_rows_unchanged(
    cli: Cli,
    home: Home,
    config: CatalogConfig,
    on_s3: Any,
    s3_store: S3Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalActor, "session", lambda *_: on_s3)
    home.configure(config.properties)
    table = scattered(config, "converging")
    before, name, file = rows(table), f"{CATALOG}.sales.converging", policy(tmp_path / "p", table)
    code, out, _ = cli("observe", name)
    assert code == 0 and "6 data files" in out
    assert cli("plan", name, "-f", file, "--detailed-exitcode")[0] == 2
    code, out, err = cli("apply", name, "-f", file, "--until-converged", "--auto-approve")
    assert code == 0, err
    assert "hash equal" in err
    assert rows(table) == before
    assert len(list(table.scan().plan_files())) < 6
    assert "layout.plan-id" in table.current_snapshot().summary.additional_properties
    assert unreferenced(table, s3_store) == set()
    assert cli("plan", name, "-f", file, "--detailed-exitcode")[0] == 0


@pytest.mark.jvm
def test_keys_that_the_catalog_hands_out_are_enough(
    home: Home, vending_rest_server: RestServer, s3_store: S3Store, tmp_path: Path
) -> None:
    """Through a JVM that `apply` starts, with the jars that it finds to be missing."""
    config = s3_catalog(vending_rest_server, s3_store, CATALOG)
    table = scattered(config, "vended")
    before = rows(table)
    properties = {k: v for k, v in config.properties.items() if k not in KEYS}
    assert not set(KEYS.values()) & set(properties.values())
    home.configure(properties)
    done = subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", "apply", f"{CATALOG}.sales.vended",
         "-f", policy(tmp_path / "p", table), "--until-converged", "--auto-approve"],
        env={**os.environ, **home.environment()}, cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hash equal" in done.stderr
    assert rows(table) == before
    assert len(list(table.scan().plan_files())) < 6


def test_what_a_crash_left_on_s3_is_removed(
    config: CatalogConfig, on_s3: Any, s3_store: S3Store, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bench = Bench(on_s3, config, tmp_path)
    name = bench.create("id bigint")
    for number in range(3):
        made = f"SELECT /*+ COALESCE(1) */ id * 3 + {number} FROM range(10)"
        bench.sql(f"INSERT INTO {bench.full(name)} {made}")
    table, before = connect(config).load_table(("jobs", name)), bench.rows(name)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    writer = processes.identity(dead.pid)
    dead.kill()
    dead.wait()
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "send", lambda *_: commit.Unknown("connection lost", lost=True))
        patch.setattr(processes, "own_identity", lambda jvm: writer)
        with pytest.raises(UnknownCommitError):
            bench.run(request)
    assert unreferenced(table, s3_store)
    (attempt,) = {one.prefix for one in bench.ledger.open_intents(request.table_uuid)}
    begun = s3_store.files().open_output_stream(f"{attempt.removeprefix('s3://')}/killed.parquet")
    begun.write(b"x" * (11 << 20))  # more than one part; never completed
    begun.flush()
    mark = len(s3_store.requests())
    settled = execute.resume(
        config, request.table, JavaBackend(on_s3), bench.ledger, bench.lease, bench.events.append
    )
    assert settled == 1
    ended = [one for one in s3_store.requests()[mark:] if one.operation == ABORTED]
    assert [one.key.rpartition("/")[2] for one in ended] == ["killed.parquet"]
    assert unreferenced(table, s3_store) == set()
    assert bench.run(request).done
    assert bench.rows(name) == before
    assert unreferenced(table, s3_store) == set()


def test_each_input_is_fetched_once_and_no_output_is_read_before_the_commit(
    config: CatalogConfig, on_s3: Any, s3_store: S3Store, tmp_path: Path
) -> None:
    bench = Bench(on_s3, config, tmp_path)
    name = bench.create("id bigint, s string")
    for number in range(3):
        made = f"SELECT /*+ COALESCE(1) */ id * 3 + {number}, repeat(uuid(), 9) FROM range(9000)"
        bench.sql(f"INSERT INTO {bench.full(name)} {made}")
    before, inputs = bench.rows(name), set(bench.paths(name))
    size = bench.size(name)
    action = bench.action(name, Cluster, "id", target_bytes=size // 3)
    mark = len(s3_store.requests())
    assert bench.run(bench.request(name, action)).done
    asked = [(one.operation, f"s3://{BUCKET}/{one.key}") for one in s3_store.requests()[mark:]]
    fetched = Counter(
        f"s3://{BUCKET}/{one.key}"
        for one in s3_store.requests()[mark:]
        if one.operation == "s3_GetObject" and FETCHING in one.agent
    )
    assert fetched == dict.fromkeys(inputs, 2), "a footer, then one copy for engine and witness"
    outputs = set(bench.paths(name))
    assert len(outputs) > 1 and not outputs & inputs
    for path in outputs:
        of = [operation for operation, key in asked if key == path]
        assert (of.count("s3_GetObject"), of.count("s3_HeadObject")) == (0, 1)
    assert bench.rows(name) == before
    listed = s3_store.listing(f"{connect(config).load_table(('jobs', name)).location()}/data")
    assert listed == outputs | inputs


def test_what_differs_is_not_stored(
    config: CatalogConfig, on_s3: Any, s3_store: S3Store, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bench = Bench(on_s3, config, tmp_path)
    name = bench.create("id bigint, s string")
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, string(id) FROM range(50)")
    before, honest = bench.rows(name), rewriting.compared

    def altered(check: Any, outputs: Any, scratch: Any, stopping: Any) -> Any:
        path = scratch.path(outputs[0].path)
        rows = pq.read_table(path)
        other = pa.array([*rows["s"].to_pylist()[1:], "x"], pa.string())
        position = rows.schema.get_field_index("s")
        changed = rows.set_column(position, rows.schema.field(position), other)
        pq.write_table(changed, path, store_schema=False)
        return honest(check, outputs, scratch, stopping)

    monkeypatch.setattr(rewriting, "compared", altered)
    mark = len(s3_store.requests())
    with pytest.raises(NotVerified) as caught:
        bench.run(bench.request(name, bench.action(name, Cluster, "id")))
    assert '"s"' in caught.value.what and '"id"' not in caught.value.what
    written = [one for one in s3_store.requests()[mark:] if "Multipart" in one.operation]
    assert not [one for one in written if one.key.endswith(".parquet")]
    assert bench.rows(name) == before


def test_plans_and_shared_state_lie_on_s3(
    config: CatalogConfig, on_s3: Any, s3_store: S3Store
) -> None:
    """The operator's side: its driver reads the plan by address and digest, and keeps the ledger
    in the catalog."""
    base = f"s3://{BUCKET}/layout-plans"
    found = prepared(config, connect(config), base)
    assert s3_store.listing(base) == {found.run.plan_uri}
    before = found.rows()
    plan = load_plan(found.run, found.store.plans)
    assert plan.digest() == found.plan.digest()
    driven = drive(
        found.run, config, found.actor(on_s3), lambda event: None, lambda: False,
        lambda: dt.datetime.now(dt.UTC),
    )  # fmt: skip
    assert driven.execution is not None and driven.execution.done
    assert found.rows() == before
    state = s3_store.listing(f"s3://{BUCKET}/warehouse/driver_state")
    assert state
    entries = found.store.ledger(str(found.table.metadata.table_uuid))
    assert [entry.plan_id for entry in entries if entry.committed] == [found.plan.id]


def test_refused_keys_are_the_users_error_for_reading(
    cli: Cli, home: Home, config: CatalogConfig
) -> None:
    scattered(config, "refused")
    home.configure({**config.properties, "s3.secret-access-key": "not-the-secret"})
    code, _, err = cli("observe", f"{CATALOG}.sales.refused")
    assert code == 1
    assert "credentials" in err and "s3.secret-access-key" in err
    assert "restore" not in err, "nothing is damaged"


def test_a_wrong_region_is_the_users_error_for_reading(
    cli: Cli, home: Home, config: CatalogConfig
) -> None:
    scattered(config, "elsewhere")
    home.configure({k: v for k, v in config.properties.items() if k != "s3.region"})
    code, _, err = cli("observe", f"{CATALOG}.sales.elsewhere")
    assert code == 1
    assert "set s3.region" in err


REFUSALS = {
    "other secret": ({"s3.secret-access-key": "not-the-secret"}, AccessDeniedError, "credentials"),
    "other region": ({"s3.region": "us-west-2"}, UserError, "set s3.region"),
    "no region": ({"s3.region": "", "s3.endpoint": ""}, UserError, "set s3.region"),
    "no keys": (dict.fromkeys(KEYS, ""), AccessDeniedError, "set s3.access-key-id"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_spark_is_refused_is_the_users_error(
    config: CatalogConfig, spark: Any, case: str
) -> None:
    changed, kind, remedy = REFUSALS[case]
    scattered(config, "_".join(["spark", *case.split()]))
    properties = {k: v for k, v in {**config.properties, **changed}.items() if v}
    name = "_".join(["s3", *case.split()])
    spark.open_catalogs(spark_conf(replace(config, name=name, properties=properties)))
    spark._jvm.java.lang.System.setProperty("aws.disableEc2Metadata", "true")
    with pytest.raises(kind) as raised, translated(translate, "rewrite sales.t"):
        spark.table(f"{name}.sales.{'_'.join(['spark', *case.split()])}").collect()
    assert raised.value.exit_code == EXIT_USER
    assert remedy in raised.value.render()


def test_every_page_of_a_listing_is_searched_for_orphans(
    config: CatalogConfig, s3_store: S3Store, tmp_path: Path
) -> None:
    """S3 lists at most 1,000 keys at once."""
    table = scattered(config, "orphaned")
    place = table.location().removeprefix("s3://") + "/data/orphans"
    files = s3_store.files()
    for number in range(1_100):
        with files.open_output_stream(f"{place}/{number:04}.parquet") as stream:
            stream.write(b"x")
    later = int(time.time() * 1000) + 3 * 86_400_000
    found = find_orphans(
        config, ("sales", "orphaned"), tmp_path / "cache", Search(86_400_000), later
    )
    assert (len(found.files), found.left) == (1_000, 100)
    assert all("/data/orphans/" in file.path for file in found.files)
    assert {file.size for file in found.files} == {1}
