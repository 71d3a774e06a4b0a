"""What others do to a table between the moment a request of ours was made and its arrival.

A request is kept with the metadata that it was made for. Copies of the table, registered on a real
REST catalog with the same metadata file, get each change, and the request after it, twice. What the
catalog does with it is judged by the metadata before and after, and by the rows that DuckDB reads.
"""

from __future__ import annotations

import copy
import http.client
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from reconciler.demo.witness import connect
from tests.gateway import Gateway, Recorded

MAIN, NEW_TAG, NEW_BRANCH = "main", "theirs", "their-branch"
MADE = (NEW_TAG, NEW_BRANCH)
DROPPED, CREATED = "dropped", "dropped and created again"
REST = {"Content-Type": "application/json"}

Body = dict[str, Any]
Change = tuple[str, tuple[Body, ...]]
"""Its name, and the updates that others commit."""

_numbers = itertools.count()


@dataclass(slots=True)
class Kept:
    """A request, and the metadata of the table just before it arrived. adds: rows, to main."""

    request: Recorded
    body: Body
    made_for: Body
    adds: int = 0

    @property
    def updates(self) -> list[Body]:
        return list(self.body["updates"])

    def of(self, action: str) -> list[Body]:
        return [update for update in self.updates if update["action"] == action]

    @property
    def signature(self) -> str:
        """What a catalog judges it by: its requirements and updates, without their values."""
        asserted = {(one["type"], one.get("ref")) for one in self.body["requirements"]}
        actions = {(one["action"], one.get("ref-name")) for one in self.updates}
        return f"{sorted(map(str, asserted))} {sorted(map(str, actions))}"

    @property
    def removed(self) -> set[int]:
        return {one for update in self.of("remove-snapshots") for one in update["snapshot-ids"]}


def refs_of(metadata: Body) -> dict[str, int]:
    return {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}


def snapshots_of(metadata: Body) -> dict[int, Body]:
    return {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}


def point(name: str, snapshot: int, kind: str = "branch") -> Body:
    return {
        "action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot,
    }  # fmt: skip


@dataclass
class Copies:
    """Copies of tables behind the gateway; each request's files are kept until it was judged."""

    gateway: Gateway
    directory: Path
    kept: list[Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.gateway.behind, timeout=60)
        self.catalog = RestCatalog("copies", uri=f"http://127.0.0.1:{self.gateway.behind}")
        self._duckdb = connect()
        self._rows: dict[tuple[str, int], Counter[str]] = {}

    def record(self, work: Callable[[], object]) -> None:
        """Keep every commit that the work sends through the gateway, and the files of its table."""
        self.gateway.before_commit = self._keep
        try:
            work()
        finally:
            self.gateway.before_commit = None

    def _keep(self, request: Recorded) -> None:
        made_for = json.loads(Path(_local(request.base)).read_bytes())
        self.kept.append(Kept(request, json.loads(request.body), made_for))
        place = _local(made_for["location"])
        shutil.copytree(place, self._backup(place), copy_function=_link, dirs_exist_ok=True)

    def _backup(self, place: str) -> Path:
        return self.directory / place.replace("/", "_")

    def restore(self) -> None:
        """Bring back what the work removed after its requests."""
        for place in {_local(one.made_for["location"]) for one in self.kept}:
            shutil.copytree(self._backup(place), place, copy_function=_link, dirs_exist_ok=True)

    def call(self, method: str, path: str, body: Body | None = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, REST)
        response = self._connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else {}

    def make(self, request: Recorded) -> tuple[str, Body]:
        """Return the path of a new copy, and what the catalog says of it."""
        space = request.path.rpartition("/tables/")[0]
        name = f"copy_{next(_numbers)}"
        body = {"name": name, "metadata-location": request.base}
        status, answer = self.call("POST", f"{space}/register", body)
        assert status == 200, answer
        return f"{space}/tables/{name}", answer

    def drop(self, path: str) -> None:
        """Forget the copy: whoever asks every table of the catalog would ask it too."""
        self.call("DELETE", path)

    def change(self, path: str, present: Body, change: Change) -> Body | None:
        """Make the change; return what the catalog says of the table then, None if it refuses."""
        name, updates = change
        if name in (DROPPED, CREATED):
            status, answer = self.call("DELETE", path)
            assert status == 204, answer
            if name == DROPPED:
                return {}
            space, _, table = path.rpartition("/tables/")
            schemas = {one["schema-id"]: one for one in present["metadata"]["schemas"]}
            schema = schemas[present["metadata"]["current-schema-id"]]
            status, answer = self.call(
                "POST", f"{space}/tables", {"name": table, "schema": schema, "properties": {}}
            )
            assert status == 200, answer
            return dict(answer)
        if not updates:
            return present
        status, answer = self.call("POST", path, {"requirements": [], "updates": list(updates)})
        return dict(answer) if status == 200 else None

    def rows(self, answer: Body) -> Counter[str]:
        """Return the rows of main, as DuckDB reads them."""
        metadata = answer["metadata"]
        main = snapshots_of(metadata).get(refs_of(metadata).get(MAIN, -1))
        if main is None:
            return Counter()
        key = main["manifest-list"], metadata["current-schema-id"]
        if key not in self._rows:
            scan = f"SELECT * FROM iceberg_scan('{_local(answer['metadata-location'])}')"
            self._rows[key] = Counter(map(str, self._duckdb.execute(scan).fetchall()))
        return self._rows[key]

    def writes(self, one: Kept) -> Iterator[Change]:
        """Appends and overwrites of others, on top of the metadata that the request was for."""
        path, _ = self.make(one.request)
        space, _, name = path.rpartition("/tables/")
        table = self.catalog.load_table((*space.rpartition("/")[2].split("%1F"), name))
        self.drop(path)
        if table.metadata.format_version > 2:
            return  # pyiceberg does not write row lineage
        yield "append", _updates(table.transaction().update_snapshot().fast_append(), self, table)
        live = _live(table)
        if live:
            overwrite = table.transaction().update_snapshot().overwrite()
            for file in live:
                overwrite.delete_data_file(file)
            yield "overwrite", _updates(overwrite, self, table)
            first = table.transaction().update_snapshot().overwrite()
            first.delete_data_file(live[0])
            yield "one file replaced", _updates(first, self, table)

    def row_of(self, table: Table) -> DataFile:
        """Return a new data file of one row, all NULL."""
        schema = table.schema().as_arrow()
        path = self.directory / f"theirs-{next(_numbers)}.parquet"
        values = [
            pa.nulls(1, f.type) if f.nullable else pa.array(["0"]).cast(f.type) for f in schema
        ]
        pq.write_table(pa.table(values, schema=schema), path)
        place = [
            0 if table.schema().find_field(one.source_id).required else None
            for one in table.spec().fields
        ]
        return DataFile.from_args(
            content=DataFileContent.DATA, file_path=f"file:{path}", file_format=FileFormat.PARQUET,
            partition=Record(*place), record_count=1,
            file_size_in_bytes=path.stat().st_size, spec_id=table.spec().spec_id,
        )  # fmt: skip


def _live(table: Table) -> list[DataFile]:
    main = table.current_snapshot()
    manifests = [] if main is None else main.manifests(table.io)
    return [
        entry.data_file
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _local(location: str) -> str:
    return "/" + location.removeprefix("file:").lstrip("/")


def _link(source: str, target: str) -> None:
    if not Path(target).exists():
        os.link(source, target)


def _updates(producer: Any, copies: Copies, table: Table) -> tuple[Body, ...]:
    producer.append_data_file(copies.row_of(table))
    updates, _ = producer._commit()
    return tuple(json.loads(one.model_dump_json(by_alias=True)) for one in updates)


def ref_changes(metadata: Body, *, every: bool) -> Iterator[Change]:
    """The ways to move, make or remove one ref; and one that a person does by hand.

    every: with each snapshot, not only with the first and the last one that differ.
    """
    refs, snapshots = refs_of(metadata), list(snapshots_of(metadata))

    def some(found: Sequence[int]) -> Sequence[int]:
        return found if every else sorted({*found[:1], *found[-1:]})

    for name, ref in metadata["refs"].items():
        for snapshot in some([one for one in snapshots if one != refs[name]]):
            where = snapshots.index(snapshot)
            yield f"{name} moved to {where}", (point(name, snapshot, ref["type"]),)
    for snapshot in some(snapshots):
        yield f"tag on {snapshots.index(snapshot)}", (point(NEW_TAG, snapshot, "tag"),)
    for snapshot in snapshots if every else snapshots[-1:]:
        yield f"branch on {snapshots.index(snapshot)}", (point(NEW_BRANCH, snapshot),)
    for name in refs:
        gone = {"action": "remove-snapshot-ref", "ref-name": name}
        yield f"{name} removed", (gone,)
        if name != MAIN:
            yield f"{name} published by hand", (point(MAIN, refs[name]), gone)


def metadata_changes(metadata: Body) -> Iterator[Change]:
    """Changes of the schema, specs, sort order, properties, format and history."""
    schemas = {one["schema-id"]: one for one in metadata["schemas"]}
    schema, last = schemas[metadata["current-schema-id"]], metadata["last-column-id"]
    added, dropped, renamed = (copy.deepcopy(schema) for _ in range(3))
    added["fields"].append({"id": last + 1, "name": "theirs", "type": "string", "required": False})
    dropped["fields"].pop()
    renamed["fields"][0]["name"] = "renamed"
    for name, wanted in ("added", added), ("dropped", dropped), ("renamed", renamed):
        if wanted["fields"]:
            yield (
                f"column {name}",
                (
                    {"action": "add-schema", "schema": wanted, "last-column-id": last + 1},
                    {"action": "set-current-schema", "schema-id": -1},
                ),
            )
    source = schema["fields"][0]["id"]
    field_id = metadata["last-partition-id"] + 1
    yield "spec", (
        {"action": "add-spec", "spec": {"spec-id": 9, "fields": [
            {"source-id": source, "field-id": field_id, "name": "theirs_bucket",
             "transform": "bucket[7]"}]}},
        {"action": "set-default-spec", "spec-id": -1},
    )  # fmt: skip
    for spec in metadata["partition-specs"]:
        if spec["spec-id"] != metadata["default-spec-id"]:
            yield (
                f"spec {spec['spec-id']} again",
                ({"action": "set-default-spec", "spec-id": spec["spec-id"]},),
            )
    yield "sort order", (
        {"action": "add-sort-order", "sort-order": {"order-id": 9, "fields": [
            {"source-id": source, "transform": "identity", "direction": "desc",
             "null-order": "nulls-first"}]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )  # fmt: skip
    yield "property", ({"action": "set-properties", "updates": {"theirs": "yes"}},)
    if metadata["properties"]:
        first = sorted(metadata["properties"])[0]
        yield "property removed", ({"action": "remove-properties", "removals": [first]},)
    if metadata["format-version"] < 3:
        version = metadata["format-version"] + 1
        yield "upgrade", ({"action": "upgrade-format-version", "format-version": version},)
    heads = set(refs_of(metadata).values())
    old = [one for one in snapshots_of(metadata) if one not in heads]
    if old:
        yield "expiry", ({"action": "remove-snapshots", "snapshot-ids": old},)


def picked(metadata: Body, append: Sequence[Body]) -> Iterator[Change]:
    """Snapshots of branches that others cherry-pick onto main, after an append and without one."""
    main = refs_of(metadata).get(MAIN)
    for name, head in refs_of(metadata).items():
        if head == main:
            continue
        for before in ((), tuple(append)):
            parent = before[0]["snapshot"]["snapshot-id"] if before else main
            number = metadata["last-sequence-number"] + 1 + bool(before)
            snapshot = {
                **snapshots_of(metadata)[head], "snapshot-id": head // 2 + 1,
                "parent-snapshot-id": parent, "sequence-number": number,
                "summary": {"operation": "append", "source-snapshot-id": str(head)},
            }  # fmt: skip
            yield f"{name} picked{' after an append' if before else ''}", (
                *before, {"action": "add-snapshot", "snapshot": snapshot},
                point(MAIN, snapshot["snapshot-id"]),
            )  # fmt: skip


def changes(copies: Copies, one: Kept, *, every: bool = False) -> Iterator[Change]:
    """Single changes of others, by name. every: see `ref_changes`."""
    yield "nothing", ()
    yield DROPPED, ()
    yield CREATED, ()
    writes = dict(copies.writes(one))
    yield from writes.items()
    if "refs" in one.made_for:
        yield from ref_changes(one.made_for, every=every)
        yield from picked(one.made_for, writes.get("append", ()))
    yield from metadata_changes(one.made_for)
