"""A claimed table with a published plan, and the run document of its first attempt."""

from __future__ import annotations

import datetime as dt
import itertools
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.api.document_codec import from_document
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.run_document import RunDocument
from reconciler.catalog.claim import claim
from reconciler.loop.driver_job import DriverActor
from reconciler.loop.gating import policy_key
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.step import Step
from reconciler.plan.plan import Plan
from reconciler.state.plan_store import PlanStore
from reconciler.state.shared_state import SharedStore
from tests.copied_table import copied_table
from tests.loop.test_step import queries_on

OWNER = "analytics/warehouse@test"
STATE = ("driver_state",)
_NUMBERS = itertools.count()


def document(kind: str, spec: dict[str, Any]) -> Any:
    return from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "test", "namespace": "analytics"},
            "spec": spec,
        }
    )


@dataclass
class Prepared:
    """table: pyiceberg's. store: the shared state. plan: published, of clustering by "day"."""

    config: CatalogConfig
    table: Any
    store: SharedStore
    plan: Plan
    run: RunDocument

    def rows(self) -> list[dict[str, Any]]:
        found = self.table.refresh().scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def files(self) -> list[str]:
        return sorted(task.file.file_path for task in self.table.refresh().scan().plan_files())

    def actor(self, spark: Any, run: RunDocument | None = None) -> DriverActor:
        return DriverActor(
            store=self.store,
            cache=Path(tempfile.mkdtemp()),
            claims_as=OWNER,
            plan=self.plan,
            attempt=(run or self.run).attempt,
            start=lambda catalog, app: spark,
            stopping=lambda: False,
            spark=spark,
        )


def prepared(
    config: CatalogConfig,
    catalog: Any,
    plans: Path | str,
    files: int = 6,
    partitions: int = 1,
    workload: bool = False,
    **spec: Any,
) -> Prepared:
    """Makes the table, claims it, plans it and publishes the plan. plans: their URI, or a path.

    workload: with queries on "day"; the plan then follows them. spec: of the policy, instead of the
    declared key."""
    base = plans if isinstance(plans, str) else f"file://{plans}"
    catalog.create_namespace_if_not_exists("driven")
    name = f"t{next(_NUMBERS)}"
    original = _original(catalog, files, 6_000 if workload else 1_500, partitions)
    table = copied_table(catalog, original, f"driven.{name}")
    claim(config, ("driven", name), OWNER)
    icat = document(
        "IcebergCatalog",
        {
            "type": config.type,
            "catalogName": config.name,
            "properties": {k: v for k, v in config.properties.items() if k != "type"},
            "system": {"namespace": list(STATE), "plans": {"uri": base}},
        },
    )
    policy = document(
        "TableLayoutPolicy",
        {
            "catalogRef": {"name": "test"},
            "tables": {"include": ["driven.*"]},
            "layout": {} if workload else {"clustering": {"mode": "Declared", "keys": ["day"]}},
            **spec,
        },
    )
    assert isinstance(icat, IcebergCatalog) and isinstance(policy, TableLayoutPolicy)
    store = SharedStore(config, STATE, plans_uri=base)
    if workload:
        now = dt.datetime.now(dt.UTC)
        store.append_fragments(queries_on(table, "day", 300, 10, 400, now=now))
    plan, uri = _published(config, ("driven", name), policy, store)
    run = RunDocument(
        catalog=icat,
        policy=policy,
        table=("driven", name),
        plan_uri=uri,
        plan_digest=plan.digest(),
        plan_id=plan.id,
        attempt=1,
        action_ids=tuple(action.id for action in plan.actions),
        bytes_limit=1 << 40,
        cpu_limit_seconds=36_000,
        policy_key=policy_key(policy),
        owner=OWNER,
        engine=EngineType.SPARK,
    )
    return Prepared(config, table, store, plan, run)


def _published(
    config: CatalogConfig, table: tuple[str, ...], policy: TableLayoutPolicy, store: SharedStore
) -> tuple[Plan, str]:
    step = Step(Target(config, table), policy, "test", lambda: dt.datetime.now(dt.UTC))
    plan = step.propose(LocalActor(store, Path(tempfile.mkdtemp()))).plan
    plan = replace(plan, catalog=config.name)
    return plan, PlanStore(config, store.plans._base).put(plan)


@cache
def _original(catalog: Any, files: int, rows: int, partitions: int) -> Any:
    catalog.create_namespace_if_not_exists("originals")
    table = None
    for number in range(files):
        batch = rows_of(number, rows, partitions)
        if table is None:
            table = _create(catalog, f"originals.t{next(_NUMBERS)}", batch.schema, partitions)
        table.append(batch)
    return table


def _create(catalog: Any, name: str, schema: pa.Schema, partitions: int) -> Any:
    properties = {
        "write.target-file-size-bytes": str(1 << 20),
        "write.parquet.row-group-size-bytes": str(1 << 18),
    }
    table = catalog.create_table(name, schema=schema, properties=properties)
    if partitions > 1:
        with table.update_spec() as update:
            update.add_identity("part")
    return table


def rows_of(number: int, rows: int, partitions: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "id": np.arange(number * rows, (number + 1) * rows),
            "day": random.integers(0, 400, rows),
            "part": random.integers(0, partitions, rows),
            "pad": [random.bytes(32).hex() for _ in range(rows)],
        }
    )
