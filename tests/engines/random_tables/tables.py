"""Random tables, as other writers make them, beside a model of the rows that they have."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg import transforms as tr
from pyiceberg import types as t
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Operation

from reconciler.table import block_ids
from tests.engines.random_tables import writer
from tests.engines.random_tables.reader import Found, Place, Reader, shown
from tests.engines.random_tables.values import (
    TYPES,
    WIDER,
    Random,
    internal,
    plain,
    random_value,
)
from tests.engines.random_tables.writer import Commit, Row

ID, MAIN = 1, "main"
BUCKETED = (
    "int", "long", "date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed[4]",
    "binary", "decimal(9, 2)", "decimal(18, 4)", "decimal(30, 6)",
)  # fmt: skip
TRUNCATED = ("string", "binary", "decimal(9, 2)", "decimal(30, 6)")
"""Of the least int and long pyiceberg makes a number that does not fit its manifests."""
DATED, TIMED = ("date", "timestamp", "timestamptz"), ("timestamp", "timestamptz")
_names = itertools.count()


class RandomTable:
    """One table. `rows` are those of each branch by the value of column 1, which no two share."""

    def __init__(self, catalog: Any, seed: int, operations: int = 12) -> None:
        self.random, self.reader, self.next_id = Random(seed), Reader(), 0
        self.name = f"random_{seed}_{next(_names)}"
        catalog.create_namespace_if_not_exists("loop")
        self.ids = self.random.random() < 0.8
        self.version = self.random.choice([1, 2, 2, 2])
        schema = self._schema()
        properties = {
            "format-version": str(self.version),
            "write.avro.compression-codec": self.random.choice(["gzip", "null", "zstd"]),
            "commit.manifest.min-count-to-merge": self.random.choice(["2", "100"]),
            "write.metadata.compression-codec": self.random.choice(["none", "gzip"]),
        }
        if self.random.random() < 0.3:
            properties["write.summary.partition-limit"] = "10"
        self.table = catalog.create_table(f"loop.{self.name}", schema, properties=properties)
        if not self.ids:
            mapping = create_mapping_from_schema(self.table.schema()).model_dump_json()
            with self.table.transaction() as transaction:
                transaction.set_properties({"schema.name-mapping.default": mapping})
        self.old_schemas = [self.table.schema()]
        self.rows: dict[str, dict[int, Row]] = {MAIN: {}}
        self.rows_at: dict[int, dict[int, Row]] = {}
        if self.random.random() < 0.7:
            self.change_spec()
        self.append()
        for _ in range(operations):
            self.operate()

    def _schema(self) -> Schema:
        random, number = self.random, itertools.count(2)
        kinds = random.choices(sorted(TYPES), k=random.randrange(2, 6))
        columns = [t.NestedField(ID, "id", t.LongType(), required=random.random() < 0.5)]
        names = ["s", "a b", "ü", "x.y", "Day", "_1", "v"]
        random.shuffle(names)
        for kind, name in zip(kinds, names, strict=False):
            required = random.random() < 0.1
            columns.append(t.NestedField(next(number), name, TYPES[kind], required=required))
        if random.random() < 0.3 and self.ids:
            columns.append(t.NestedField(next(number), "st", t.StructType(
                t.NestedField(next(number), "x", t.IntegerType()),
                t.NestedField(next(number), "y", t.StringType()),
            )))  # fmt: skip
        if random.random() < 0.2:
            columns.append(t.NestedField(next(number), "li", t.ListType(
                next(number), t.LongType(), element_required=False)))  # fmt: skip
        if random.random() < 0.2:
            columns.append(t.NestedField(next(number), "ma", t.MapType(
                next(number), t.StringType(), next(number), t.LongType(), value_required=False
            )))  # fmt: skip
        return Schema(*columns)

    # Operations of others

    def operate(self) -> None:
        """One change by another writer."""
        self.table.refresh()
        operations: list[tuple[int, Callable[[], None]]] = [
            (8, self.append), (2, self.add_column), (2, self.rename), (2, self.promote),
            (1, self.drop), (2, self.change_spec), (2, self.tag), (2, self.replace_files),
            (1, self.rollback), (1, self.upgrade), (1, self.stray_snapshot),
        ]  # fmt: skip
        if self.table.metadata.format_version > 1:
            operations += [(5, self.row_delta)]
        weights, found = [n for n, _ in operations], [one for _, one in operations]
        self.random.choices(found, weights)[0]()
        self.table.refresh()

    def _new_rows(self, schema: Schema) -> list[Row]:
        made = []
        for _ in range(self.random.choice([1, 2, 5, 12, 30])):
            row: Row = {ID: self.next_id}
            self.next_id += 1
            for one in schema.fields[1:] if schema.fields[0].field_id == ID else schema.fields:
                if one.field_id == ID:
                    continue
                null = not one.required and self.random.random() < 0.25
                null = null or one.doc == block_ids.DOC  # others leave it NULL
                row[one.field_id] = None if null else random_value(self.random, one.field_type)
            made.append(row)
        return made

    def _files(self, rows: Sequence[Row], schema: Schema, spec_id: int) -> list[Any]:
        """Write rows and return (spec id, entry) of each file; rows lose what is not written."""
        ids = self.ids or self.random.random() < 0.5
        columns = writer.written_as(self.random, schema)
        written = {one.field_id for one in columns}
        for row in rows:
            for key in [one for one in row if one not in written]:
                del row[key]
        found = []
        for values, some in self.by_partition(rows, spec_id, schema).items():
            partition = [value for _, value in values]
            file = writer.data_file(self.random, self.table, columns, some, partition, spec_id, ids)
            found.append((spec_id, file))
        return found

    def by_partition(
        self, rows: Sequence[Row], spec_id: int, schema: Schema
    ) -> dict[tuple[tuple[str, Any], ...], list[Row]]:
        spec, found = self.table.metadata.specs()[spec_id], {}
        for row in rows:
            values = []
            for one in spec.fields:
                source = schema.find_type(one.source_id)
                value = internal(row.get(one.source_id))
                made = None if value is None else one.transform.transform(source)(value)
                values.append((repr(made), made))
            found.setdefault(tuple(key for key, _ in values), (values, []))[1].append(row)
        return {tuple(values): some for values, some in found.values()}

    def _spec_for(self, schema: Schema) -> int | None:
        """A spec that a writer with this schema may use: mostly the default one."""
        known = {one.field_id for one in schema.fields}
        fits = [
            number for number, spec in self.table.metadata.specs().items()
            if all(one.source_id in known or str(one.transform) == "void" for one in spec.fields)
        ]  # fmt: skip
        default = self.table.metadata.default_spec_id
        if default in fits and self.random.random() < 0.85:
            return default
        return self.random.choice(fits) if fits else None

    def append(self, branch: str = MAIN) -> None:
        """Append files, perhaps by a writer that has not seen the newest schema."""
        late = [one for one in self.old_schemas[-2:] if self._fits(one)]
        schema = self.random.choice([self.table.schema(), self.table.schema(), *late])
        spec_id = self._spec_for(schema)
        if spec_id is None:
            return
        rows = self._new_rows(schema)
        added = self._files(rows, schema, spec_id)
        self._commit(Commit(Operation.APPEND, added, branch=branch))
        self.rows[branch] = {**self.rows[branch], **{row[ID]: row for row in rows}}
        self._note(branch)

    def _fits(self, schema: Schema) -> bool:
        """Whether rows of the old schema are rows of the new one."""
        known = {one.field_id for one in schema.fields}
        return all(one.field_id in known for one in self.table.schema().fields if one.required)

    def _commit(self, change: Commit) -> None:
        change.totals = self.random.random() < 0.9
        writer.commit(self.table, change)
        self.table.refresh()

    def _note(self, branch: str) -> None:
        head = self.table.metadata.refs[branch].snapshot_id
        self.rows_at[head] = self.rows[branch]

    def places(self, branch: str = MAIN) -> list[Place]:
        ref = self.table.metadata.refs.get(branch)
        return list(self.reader.live(self.table, None if ref is None else ref.snapshot_id))

    def row_delta(self) -> None:
        """Deletes by position, by equality, or both, perhaps with new rows in the same commit."""
        branch = self.random.choice(sorted(self.rows))
        places, added, gone = self.places(branch), list[Any](), set[int]()
        rows: list[Row] = []
        if self.random.random() < 0.3 and (spec := self._spec_for(self.table.schema())) is not None:
            rows = self._new_rows(self.table.schema())
            added = self._files(rows, self.table.schema(), spec)
        if places and self.random.random() < 0.6:
            gone |= self._by_position(places, added)
        if self.random.random() < 0.6:
            gone |= self._by_equality(places, added)
        if not added:
            return
        self._commit(Commit(Operation.OVERWRITE, added, branch=branch))
        left = {key: row for key, row in self.rows[branch].items() if key not in gone}
        self.rows[branch] = {**left, **{row[ID]: row for row in rows}}
        self._note(branch)

    def _by_position(self, places: list[Place], added: list[Any]) -> set[int]:
        """One delete file for each data file, or one for each partition."""
        chosen = [one for one in places if self.random.random() < 0.2]
        wide = self.random.random() < 0.5
        groups: dict[Any, list[Place]] = {}
        for one in chosen:
            key = one.entry.place if wide else one.entry.path
            groups.setdefault(key, []).append(one)
        for some in groups.values():
            entry = some[0].entry
            at = [(one.entry.path, one.at) for one in some]
            if self.random.random() < 0.1:
                at.append((f"{entry.path}.gone", 0))
            if self.random.random() < 0.1:
                at.append((entry.path, 10**6))
            values = [entry.file.partition[n] for n in range(len(entry.file.partition))]
            file = writer.position_deletes(self.random, self.table, at, values, entry.spec)
            added.append((entry.spec, file))
        return {one.row[ID] for one in chosen}

    def _by_equality(self, places: list[Place], added: list[Any]) -> set[int]:
        """One delete file: of a partition, or of all of them under an unpartitioned spec."""
        schema = self.table.schema()
        usable = [
            one for one in schema.fields
            if isinstance(one.field_type, t.PrimitiveType)
            and not isinstance(one.field_type, t.FloatType | t.DoubleType)
        ]  # fmt: skip
        keys = self.random.sample(usable, min(len(usable), self.random.choice([1, 1, 2])))
        if self.random.random() < 0.4:
            keys = [schema.find_field(ID)]
        rows = [one.row for one in places if self.random.random() < 0.15]
        if self.random.random() < 0.2 or not rows:
            rows = [*rows, *self._new_rows(schema)[:2]]
        specs = self.table.metadata.specs()
        everywhere = [n for n, spec in specs.items() if not spec.fields]
        if everywhere and (self.random.random() < 0.3 or not places):
            spec_id, values, reach = everywhere[0], [], places
        elif places:
            entry = self.random.choice(places).entry
            spec_id = entry.spec
            values = [entry.file.partition[n] for n in range(len(entry.file.partition))]
            free = all(str(one.transform) == "void" for one in specs[spec_id].fields)
            reach = [one for one in places if free or one.entry.place == entry.place]
        else:
            return set()
        file = writer.equality_deletes(self.random, self.table, keys, rows, values, spec_id)
        added.append((spec_id, file))
        ids = [one.field_id for one in keys]
        wanted = {tuple(plain(row.get(n)) for n in ids) for row in rows}
        return {one.row[ID] for one in reach if tuple(plain(one.row.get(n)) for n in ids) in wanted}

    def replace_files(self) -> None:
        """Copy on write: some data files go, and their rows come back in new ones, or not all."""
        places = self.places()
        paths = sorted({one.entry.path for one in places})
        if not paths:
            return
        gone = set(self.random.sample(paths, min(len(paths), self.random.choice([1, 2]))))
        entries = self.reader.entries(self.table, self.table.metadata.current_snapshot_id)
        if any(int(one.file.content) == writer.EQUALITY for one in entries):
            return
        schema = self.table.schema()
        spec_id = self._spec_for(schema)
        if spec_id is None:
            return
        kept = [one.row for one in places if one.entry.path in gone and self.random.random() < 0.8]
        known = self.rows[MAIN]
        rows = [dict(known[row[ID]]) for row in kept]
        current = {one.field_id for one in schema.fields}
        rows = [{key: value for key, value in row.items() if key in current} for row in rows]
        added = self._files(rows, schema, spec_id) if rows else []
        self._commit(Commit(Operation.OVERWRITE, added, gone))
        lost = {one.row[ID] for one in places if one.entry.path in gone}
        left = {key: row for key, row in known.items() if key not in lost}
        self.rows[MAIN] = {**left, **{row[ID]: row for row in rows}}
        self._note(MAIN)

    # Schema and specs

    def add_column(self) -> None:
        kind = self.random.choice(sorted(TYPES))
        with self.table.update_schema() as update:
            update.add_column(f"c{next(_names)}", TYPES[kind])
        self.old_schemas.append(self.table.refresh().schema())

    def rename(self) -> None:
        one = self.random.choice(self.table.schema().fields)
        if one.field_id == ID or "." in one.name or one.doc == block_ids.DOC:
            return
        with self.table.update_schema() as update:
            update.rename_column(one.name, f"r{next(_names)}")
        self.old_schemas.append(self.table.refresh().schema())

    def promote(self) -> None:
        found = [
            one for one in self.table.schema().fields
            if str(one.field_type) in WIDER and "." not in one.name
        ]  # fmt: skip
        if not found:
            return
        one = self.random.choice(found)
        sources = [
            field.transform for spec in self.table.metadata.specs().values()
            for field in spec.fields if field.source_id == one.field_id
        ]  # fmt: skip
        if any(isinstance(some, tr.BucketTransform) for some in sources) and isinstance(
            one.field_type, t.DecimalType
        ):
            return
        with self.table.update_schema() as update:
            update.update_column(one.name, WIDER[str(one.field_type)])
        self.old_schemas.append(self.table.refresh().schema())

    def drop(self) -> None:
        """Drop a column that no partition spec, delete file or required value stands on."""
        used = {f.source_id for spec in self.table.metadata.specs().values() for f in spec.fields}
        for head in {one.snapshot_id for one in self.table.metadata.refs.values()}:
            for entry in self.reader.entries(self.table, head):
                used |= set(entry.file.equality_ids or ())
        free = [
            one for one in self.table.schema().fields
            if one.field_id not in {*used, ID} and not one.required and "." not in one.name
        ]  # fmt: skip
        if not free:
            return
        with self.table.update_schema() as update:
            update.delete_column(self.random.choice(free).name)
        self.old_schemas = [self.table.refresh().schema()]

    def change_spec(self) -> None:
        spec = self.table.spec()
        own = [one for one in spec.fields if str(one.transform) != "void"]
        with self.table.update_spec() as update:
            if own and self.random.random() < 0.4:
                update.remove_field(self.random.choice(own).name)
                return
            drawn = self._transform()
            if drawn is None:
                return
            column, transform = drawn
            if any(
                one.source_id == column.field_id and str(one.transform) == str(transform)
                for one in spec.fields
            ):
                return
            update.add_field(column.name, transform, f"p{next(_names)}")

    def _transform(self) -> tuple[t.NestedField, tr.Transform[Any, Any]] | None:
        columns = [
            one for one in self.table.schema().fields
            if isinstance(one.field_type, t.PrimitiveType) and "." not in one.name
            and not one.required  # pyiceberg cannot write the void field that is left of it
        ]  # fmt: skip
        if not columns:
            return None
        column = self.random.choice(columns)
        kind, found = str(column.field_type), list[Any]()
        # pyiceberg 0.12 reads a double of a manifest as a number of 32 bits, and Iceberg's Java
        # library writes a fixed one in a form of its own
        if kind not in ("double", "fixed[4]") and (kind != "long" or column.field_id != ID):
            found.append(tr.IdentityTransform())
        if kind in BUCKETED:
            found.append(tr.BucketTransform(self.random.choice([1, 2, 3])))
        if kind in TRUNCATED:
            found.append(tr.TruncateTransform(self.random.choice([1, 10])))
        if kind in DATED:
            found += [tr.YearTransform(), tr.MonthTransform(), tr.DayTransform()]
        if kind in TIMED:
            found.append(tr.HourTransform())
        return (column, self.random.choice(found)) if found else None

    # Refs and history

    def tag(self) -> None:
        snapshots = [one.snapshot_id for one in self.table.metadata.snapshots]
        with self.table.manage_snapshots() as update:
            update.create_tag(self.random.choice(snapshots), f"tag{next(_names)}")

    def stray_snapshot(self) -> None:
        """A branch with a commit of its own."""
        if len(self.rows) > 1:
            self.append(self.random.choice(sorted(self.rows)))
            return
        name = f"branch{next(_names)}"
        head = self.table.metadata.current_snapshot_id
        with self.table.manage_snapshots() as update:
            update.create_branch(head, name)
        self.table.refresh()
        self.rows[name] = self.rows[MAIN]
        self.append(name)

    def rollback(self) -> None:
        """Main goes back to a snapshot before it; what came after stays without a ref."""
        chain, head = [], self.table.metadata.current_snapshot_id
        while head is not None and self.table.metadata.snapshot_by_id(head) is not None:
            chain.append(head)
            head = self.table.metadata.snapshot_by_id(head).parent_snapshot_id
        if len(chain) < 2:
            return
        target = self.random.choice(chain[1:])
        with self.table.manage_snapshots() as update:
            update.set_current_snapshot(snapshot_id=target)
        self.rows[MAIN] = self.expected_at(target)

    def upgrade(self) -> None:
        if self.table.metadata.format_version == 1:
            with self.table.transaction() as transaction:
                transaction.upgrade_table_version(2)

    # The model

    def expected_at(self, snapshot_id: int) -> dict[int, Row]:
        """The rows of a snapshot: those of the last one before it that another writer made, since
        nothing of ours changes rows. They are kept, since what lies between may expire."""
        between = []
        while snapshot_id not in self.rows_at:
            between.append(snapshot_id)
            snapshot_id = self.table.metadata.snapshot_by_id(snapshot_id).parent_snapshot_id
        self.rows_at |= dict.fromkeys(between, self.rows_at[snapshot_id])
        return self.rows_at[snapshot_id]

    def expected(self, snapshot_id: int) -> Counter[Found]:
        schema = self.table.schema()
        return Counter(shown(schema, row) for row in self.expected_at(snapshot_id).values())
