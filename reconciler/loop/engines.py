"""Which engine carries out a plan on one table, by what is asked for and what the plan needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType, PolicyEngineType
from reconciler.api.documents import Safety
from reconciler.catalog import s3_uploads
from reconciler.commit.fields import in_form_of_java
from reconciler.commit.metadata import NEWEST_VERSION
from reconciler.engines.choice import UNEVEN, Chosen, Needs, choose
from reconciler.errors import UnsupportedError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import as_rewrite
from reconciler.plan.plan import PlannedAction
from reconciler.plan.prediction import total
from reconciler.table.left_to_spark import OTHER_FORMAT
from reconciler.table.numbers import stops_java
from reconciler.table.observation import Observation
from reconciler.table.paths import is_local
from reconciler.table.row_group_bytes import row_group_rows

CATALOGS = ("sql", "rest")
"""Types of catalogs to which the local engine commits."""
PROVIDER = "write.location-provider.impl"
LOCATIONS = ("write.data.path", "write.metadata.path")
OWN_IO = ("py-io-impl", "s3.signer")
"""Properties of a catalog by which files are opened by other code than Arrow's."""


@dataclass(frozen=True, slots=True)
class CommitTarget:
    """Where commits of a plan go."""

    catalog: str
    """The type of the catalog."""
    check: str = ""
    """The query that each batch must pass on a branch, "" for none."""
    own_io: str = ""
    """The property of the catalog by which something else than Arrow opens files, "" if none."""

    @classmethod
    def of(cls, catalog: CatalogConfig, safety: Safety) -> CommitTarget:
        own = (name for name in OWN_IO if catalog.properties.get(name))
        return cls(catalog.type, safety.check or "", next(own, ""))


def asked_engine(
    option: EngineType | None,
    policy: PolicyEngineType | None,
    catalog: EngineType | None,
    default: EngineType,
) -> EngineType:
    """Return the engine that is asked for: by an option, else by the policy, else by its catalog.

    default: of the place that carries plans out.
    """
    chosen = None if policy is None or policy is PolicyEngineType.EARLIER else EngineType(policy)
    return option or chosen or catalog or default


def engine_for(
    asked: EngineType, place: CommitTarget, observation: Observation, items: Sequence[PlannedAction]
) -> Chosen:
    """Return the engine of these actions on this machine."""
    from reconciler.engines.local import machine

    return choose(asked, needs_of(place, observation, items), machine.of_this(why_no_spark()))


def require_engine(chosen: Chosen, name: str) -> None:
    """Raise UnsupportedError if no engine can carry the plan out. name: of the table."""
    if chosen.refused:
        raise UnsupportedError(
            f"the plan of {name} cannot be carried out: {chosen.why}",
            details=("Nothing was changed.",),
            do="install what is missing, or choose another engine (--engine, spec.engine.type)",
        )


def needs_of(
    place: CommitTarget, observation: Observation, items: Sequence[PlannedAction]
) -> Needs:
    """Return what the actions need of a machine."""
    groups = [
        -(-(item.predicted.bytes_in or 0) // max(1, item.predicted.groups or 1)) for item in items
    ]
    stops = stops_java(observation.properties)
    return Needs(
        _unsupported(place, observation, items),
        f"{stops}, at which Iceberg's Java library raises" if stops else "",
        max(groups, default=0),
        not is_local(observation.location),
        total(item.predicted for item in items).millis / 1000,
        sum(item.predicted.groups or 1 for item in items if item.action.inputs),
        max((_task_bytes(observation, item) for item in items), default=0),
    )


def _task_bytes(observation: Observation, item: PlannedAction) -> int:
    """Return the memory that the task of a large group takes at least: the ranks of its rows
    and one row group of the least size that the engine writes.

    What rows decode to is not known here: 8 bytes for each column, and their texts.
    """
    from reconciler.engines.schedule.native import SMALLER, keys_bytes
    from reconciler.loop.decision_settings import configured_row_group
    from reconciler.rewrite import memory

    one = item.predicted
    if not one.rows or not one.bytes_out or not one.columns:
        return 0
    in_group, stored = int(UNEVEN * one.rows / max(1, one.groups or 1)), one.bytes_out / one.rows
    decoded = 8 * one.columns * one.rows + max(0, one.text_bytes or 0)
    configured, keys, rewrite = configured_row_group(observation), 0, as_rewrite(item.action)
    if rewrite is not None:
        configured = rewrite.row_group_bytes or configured
        keys = keys_bytes(rewrite, in_group, rewrite.target_in(observation.properties) / stored)
    held = min(in_group, row_group_rows(configured, stored) // SMALLER)
    row = memory.gathered(decoded, one.bytes_out) / one.rows
    return int(held * row) + keys


def _unsupported(
    place: CommitTarget, observation: Observation, items: Sequence[PlannedAction]
) -> str:
    if place.catalog not in CATALOGS:
        return f"it does not commit to a catalog of type {place.catalog}"
    if place.check and any(item.action.inputs for item in items):
        return "spec.safety.check is a query that Spark runs"
    if PROVIDER in observation.properties:
        return "the table places its files by a Java class"
    refused = _store_needs_spark(place, _locations(observation))
    if refused:
        return refused
    if observation.format_version > NEWEST_VERSION:
        return f"the table has format {observation.format_version}, whose commits need Spark"
    refused = _spec_needs_spark(observation)
    if refused:
        return refused
    deletes = observation.delete_files
    odd = bool((deletes.other_format & ~deletes.dangling).any())
    for item in items:
        if item.action.needs_spark:
            return f"only Spark carries out {item.action.kind}"
        if item.predicted.by_spark:
            return item.predicted.by_spark
        refused = _moves_need_spark(observation, item.action)
        if refused:
            return refused
        if item.action.reads_deletes and odd:
            return f"Spark reads delete files in {OTHER_FORMAT}"
    return ""


def _store_needs_spark(place: CommitTarget, locations: Sequence[str]) -> str:
    """Return why only Spark writes to one of these locations, "" if this is not so."""
    remote = [one for one in locations if not is_local(one)]
    if not all(map(s3_uploads.on_s3, remote)):
        return "its files are in an object store that is not S3"
    if remote and not s3_uploads.is_installed():
        return (
            "its files are in S3, where ending the uploads of a killed run needs boto3 "
            "(pip install 'table-layout-reconciler[aws]')"
        )
    if remote and place.own_io:
        return f"the catalog sets {place.own_io}, and this engine writes to S3 by Arrow alone"
    return ""


def _spec_needs_spark(observation: Observation) -> str:
    """Return why only Spark writes manifests of a partition spec of live files, "" if this is not
    so."""
    files, deletes = observation.files, observation.delete_files
    used = {*np.unique(files.spec_id).tolist(), *np.unique(deletes.spec_id).tolist()}
    for number in sorted(used & files.specs.keys()):
        for one in files.specs[number].fields:
            if one.source_id not in files.schema.by_id:
                return f"partition spec {number} partitions by a column that was dropped"
    return ""


def _moves_need_spark(observation: Observation, action: Action) -> str:
    """Return why only Spark moves rows to the partitions that an action names, "" if this is not
    so."""
    for one in action.moves_by or ():
        kind = observation.files.schema.by_id[one.source_id].type
        if one.transform == "identity" and in_form_of_java(kind):
            return f"rows move to partitions by values of type {kind}"
    return ""


def _locations(observation: Observation) -> list[str]:
    named = (observation.properties.get(name) for name in LOCATIONS)
    return [observation.location, *(one for one in named if one)]


def why_no_spark() -> str:
    """Return why Spark cannot run here, as a clause; "" if it can, as far as a look can tell."""
    if importlib.util.find_spec("pyspark") is None and not os.environ.get("SPARK_HOME"):
        return "pyspark is not installed (pip install 'table-layout-reconciler[spark]')"
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return "there is no Java (set JAVA_HOME to a JDK 17 or newer)"
    return ""
