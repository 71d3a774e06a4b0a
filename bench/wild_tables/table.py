"""A wild table: made by Spark, Java and pyiceberg, changed by random steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.wild_tables.columns import (
    BY_JAVA,
    Column,
    column,
    is_plain,
    leaves,
    literals,
    members,
)
from tests.spark.equality import FIELD_ID, add_equality_delete
from tests.spark.tables import Bench

PROPERTIES: dict[str, tuple[str, ...]] = {
    "write.parquet.compression-codec": ("zstd", "snappy", "gzip", "uncompressed", "lz4"),
    "write.target-file-size-bytes": ("20000", "200000"),
    "write.parquet.row-group-size-bytes": ("10000", "100000"),
    "write.parquet.page-size-bytes": ("2000",),
    "write.parquet.page-row-limit": ("50",),
    "write.parquet.dict-size-bytes": ("1000",),
    "write.metadata.metrics.default": ("none", "counts", "truncate(3)", "truncate(1)", "full"),
    "write.metadata.metrics.max-inferred-column-defaults": ("1", "3"),
    "commit.manifest.min-count-to-merge": ("2",),
    "commit.manifest-merge.enabled": ("false",),
    "commit.manifest.target-size-bytes": ("8000",),
    "write.object-storage.enabled": ("true",),
    "write.object-storage.partitioned-paths": ("false",),
    "write.metadata.compression-codec": ("gzip",),
    "write.metadata.previous-versions-max": ("2",),
    "write.metadata.delete-after-commit.enabled": ("true",),
    "write.delete.mode": ("merge-on-read", "copy-on-write"),
    "write.update.mode": ("merge-on-read", "copy-on-write"),
    "write.merge.mode": ("merge-on-read", "copy-on-write"),
    "write.delete.granularity": ("file", "partition"),
    "write.distribution-mode": ("none", "hash", "range"),
    "write.summary.partition-limit": ("10",),
    "write.parquet.compression-level": ("1",),
    "commit.manifest.compression-codec": ("zstd",),
    "write.avro.compression-codec": ("snappy", "uncompressed", "zstd"),
}
NAMES = ("Weird Name", "ünï", "dot.ted", "UPPER", "select", "a-b")


class Wild:
    """One table, its columns, and the steps that it can take."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.seed, self.chance = bench, seed, random.Random(seed)
        self.name, self.rows, self.log = f"w{seed}", 0, []
        self.version = self.chance.choice((1, 2, 2, 2))
        self.refs: list[str] = []
        self.next = 0
        self.columns = [Column("id", "bigint", required=self.chance.random() < 0.5)]
        self.columns += [
            column(self.chance, self._name()) for _ in range(self.chance.randint(2, 7))
        ]
        for one in self.columns[1:]:
            one.required = self.chance.random() < 0.15

    def _name(self) -> str:
        self.next += 1
        plain = f"c{self.next}"
        return self.chance.choice(NAMES) + str(self.next) if self.chance.random() < 0.15 else plain

    @property
    def full(self) -> str:
        return self.bench.full(self.name)

    def step(self, what: str, act: Callable[[], None]) -> bool:
        """Take a step; a step that Iceberg refuses is none."""
        try:
            act()
        except Exception as error:
            self.log.append(f"refused {what}: {str(error).splitlines()[0][:200]}")
            return False
        self.log.append(what)
        return True

    def sql(self, text: str) -> bool:
        return self.step(text[:1500], lambda: self.bench.sql(text) and None)

    # Made

    def create(self) -> None:
        chance = self.chance
        columns = ", ".join(
            f"{one.sql} {one.kind}{' NOT NULL' if one.required else ''}" for one in self.columns
        )
        by = f"PARTITIONED BY ({', '.join(self._transforms())})" if chance.random() < 0.6 else ""
        given = {"format-version": str(self.version), "write.spark.fanout.enabled": "true"}
        given |= self._properties(5)
        if chance.random() < 0.2:
            given["write.data.path"] = f"file://{self.bench.directory}/elsewhere/{self.name}"
        plain = [one for one in self.columns if "." not in one.name and is_plain(one.kind)]
        for one in chance.sample(plain, min(2, len(plain))):
            mode = chance.choice(PROPERTIES["write.metadata.metrics.default"])
            given[f"write.metadata.metrics.column.{one.name}"] = mode
            if chance.random() < 0.3 and one.kind in ("string", "int", "bigint"):
                given[f"write.parquet.bloom-filter-enabled.column.{one.name}"] = "true"
        listed = ", ".join(f"'{key}'='{value}'" for key, value in given.items())
        text = f"CREATE TABLE {self.full} ({columns}) USING iceberg {by} TBLPROPERTIES ({listed})"
        if not self.sql(text):
            self.sql(text.replace(by, ""))
        for kind in BY_JAVA:
            if chance.random() < 0.2:
                self._add_by_java(kind)
        if chance.random() < 0.3:
            keys = ", ".join(one.sql for one in chance.sample(plain, min(2, len(plain))))
            self.sql(f"ALTER TABLE {self.full} WRITE ORDERED BY {keys}")
        if self.columns[0].required and chance.random() < 0.3:
            self.sql(f"ALTER TABLE {self.full} SET IDENTIFIER FIELDS id")

    def _properties(self, most: int) -> dict[str, str]:
        keys = self.chance.sample(sorted(PROPERTIES), self.chance.randint(0, most))
        return {key: self.chance.choice(PROPERTIES[key]) for key in keys}

    def _transforms(self) -> list[str]:
        some = [one for one in leaves(self.columns) if "." not in one.name and one.kind != "fixed"]
        chosen = self.chance.sample(some, min(len(some), self.chance.choice((1, 1, 1, 2))))
        for one in chosen:  # a directory has a name of at most 255 bytes
            one.pool = [text for text in one.pool if "long" not in text] or one.pool
        return [self._transform(one) for one in chosen]

    def _transform(self, one: Column) -> str:
        kinds = ["{}"]
        if one.kind not in ("boolean", "float", "double"):
            kinds.append("bucket(3, {})")
        if one.kind in ("int", "bigint", "string") or one.kind.startswith("decimal"):
            kinds.append("truncate(2, {})")
        if one.kind in ("date", "timestamp", "timestamp_ntz"):
            kinds = ["years({})", "months({})", "days({})"]
            kinds += ["hours({})"] * (one.kind != "date")
        return self.chance.choice(kinds).format(one.sql)

    def _add_by_java(self, kind: str) -> None:
        types, name = self.bench.spark._jvm.org.apache.iceberg.types.Types, self._name()
        made = types.UUIDType.get() if kind == "uuid" else types.FixedType.ofLength(3)

        def act() -> None:
            self.bench.table(self.name).updateSchema().addColumn(name, made).commit()
            self.columns.append(column(self.chance, name, kind))

        self.step(f"add {name} {kind}", act)

    # Rows

    def selected(self, first: int, rows: int, parts: int) -> str:
        values = ", ".join(
            "id" if one.name == "id" else f"{one.value()} AS {one.sql}" for one in self.columns
        )
        return f"SELECT {values} FROM range({first}, {first + rows}, 1, {parts})"

    def insert(self, to: str = "") -> bool:
        rows, parts = self.chance.choice((1, 20, 60, 200)), self.chance.randint(1, 3)
        self.rows += rows
        names = ", ".join(one.sql for one in self.columns)
        text = (
            f"INSERT INTO {self.full}{to} ({names}) {self.selected(self.rows - rows, rows, parts)}"
        )
        return self.sql(text)

    def delete(self) -> None:
        many = self.chance.choice((3, 7, 50))
        self.sql(
            f"DELETE FROM {self.full} WHERE pmod(xxhash64(id, {self.chance.random()}), {many}) = 0"
        )

    def delete_by_value(self) -> None:
        one = self.chance.choice(leaves(self.columns))
        text = self.chance.choice(literals(self.chance, one.kind))
        self.sql(f"DELETE FROM {self.full} WHERE {one.sql} = {text} AND id % 2 = 0")

    def update(self) -> None:
        one = self.chance.choice(self.columns[1:] or self.columns)
        rest = self.chance.randint(0, 10)
        self.sql(f"UPDATE {self.full} SET {one.sql} = {one.value()} WHERE id % 11 = {rest}")

    def merge(self) -> None:
        rows, self.rows = 50, self.rows + 50
        names = ", ".join(one.sql for one in self.columns)
        values = ", ".join(f"s.{one.sql}" for one in self.columns)
        start = max(0, self.rows - 80)
        self.sql(
            f"MERGE INTO {self.full} t USING ({self.selected(start, rows + 30, 1)}) s "
            f"ON t.id = s.id WHEN MATCHED AND t.id % 2 = 0 THEN DELETE "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )

    def equality(self) -> None:
        chance = self.chance
        files = [row.file_path for row in self.bench.files(self.name)]
        if not files:
            return
        kinds = {
            "bigint": pa.int64(),
            "string": pa.string(),
            "int": pa.int32(),
            "date": pa.date32(),
        }
        keys = [one for one in self.columns if one.kind in kinds and "." not in one.name]
        key = chance.choice(keys)
        many = 3 if key.name != "id" else 30
        rows = self.bench.sql(f"SELECT {key.sql} FROM {self.full} LIMIT 500")
        values = [row[0] for row in chance.sample(rows, min(many, len(rows)))]
        if key.name == "id":
            values += [self.rows + 5]
        arrays = {key.name: pa.array(values, kinds[key.kind])}
        spec = self.bench.table(self.name).spec()
        like = chance.choice(files) if not spec.isUnpartitioned() else ""
        more: dict[str, Any] = {} if like else {"spec_id": int(spec.specId())}
        self.step(
            f"equality {key.name} {values[:5]} like {like}",
            lambda: add_equality_delete(self.bench, self.name, arrays, like=like, **more) and None,
        )

    def pyiceberg(self) -> None:
        def act() -> None:
            from pyiceberg.catalog import load_catalog

            rows = self.bench.spark.sql(self.selected(self.rows, 100, 1)).toArrow()
            self.rows += 100
            config = self.bench.config
            table = load_catalog(config.name, **dict(config.properties)).load_table(
                ("jobs", self.name)
            )
            target = table.schema().as_arrow()
            table.append(rows.select(target.names).cast(target))

        self.step("append by pyiceberg", act)

    def add_files(self) -> None:
        if any(one.kind in BY_JAVA for one in self.columns):
            return
        where = f"{self.bench.directory}/imported/{self.name}-{self.rows}"

        def act() -> None:
            self.bench.spark.sql(self.selected(self.rows, 150, 1)).write.parquet(where)
            self.rows += 150
            self.bench.sql(
                f"CALL {self.bench.config.name}.system.add_files(table => 'jobs.{self.name}', "
                f"source_table => '`parquet`.`{where}`')"
            )

        self.step(f"add_files {where}", act)

    def empty_file(self) -> None:
        def act() -> None:
            table = self.bench.table(self.name)
            key = pa.field(
                "id",
                pa.int64(),
                metadata={FIELD_ID: str(table.schema().findField("id").fieldId()).encode()},
            )
            path = self.bench.directory / f"empty-{self.name}-{len(self.log)}.parquet"
            pq.write_table(pa.table([pa.array([], pa.int64())], schema=pa.schema([key])), path)
            builder = self.bench.spark._jvm.org.apache.iceberg.DataFiles.builder(table.spec())
            file = builder.withPath(f"file:{path}").withFormat("PARQUET").withRecordCount(0)
            table.newAppend().appendFile(
                file.withFileSizeInBytes(path.stat().st_size).build()
            ).commit()

        if self.bench.table(self.name).spec().isUnpartitioned():
            self.step("empty file", act)

    # Metadata

    def properties(self) -> None:
        for key, value in self._properties(3).items():
            self.sql(f"ALTER TABLE {self.full} SET TBLPROPERTIES ('{key}'='{value}')")

    def spec(self) -> None:
        fields = list(self.bench.sql(f"DESCRIBE EXTENDED {self.full}"))
        present = [row.data_type for row in fields if row.col_name.startswith("Part ")]
        if present and self.chance.random() < 0.5:
            self.sql(f"ALTER TABLE {self.full} DROP PARTITION FIELD {self.chance.choice(present)}")
        else:
            self.sql(f"ALTER TABLE {self.full} ADD PARTITION FIELD {self._transforms()[0]}")

    def ref(self) -> None:
        name = f"r{len(self.refs)}"
        kind = self.chance.choice(("BRANCH", "TAG"))
        if self.sql(f"ALTER TABLE {self.full} CREATE {kind} {name}"):
            self.refs.append(name)
            if kind == "BRANCH" and self.chance.random() < 0.6:
                self.insert(f".branch_{name}")

    def evolve(self) -> None:
        self.chance.choice((self._add, self._add, self._drop, self._rename, self._move, self._widen,
                            self._nested, self._nullable))()  # fmt: skip

    def _add(self) -> None:
        one = column(self.chance, self._name())
        where = self.chance.choice(("", "FIRST", "AFTER id"))
        if self.sql(f"ALTER TABLE {self.full} ADD COLUMN {one.sql} {one.kind} {where}"):
            self.columns.append(one)

    def _some(self) -> Column | None:
        return self.chance.choice(self.columns[1:]) if len(self.columns) > 2 else None

    def _drop(self) -> None:
        one = self._some()
        if one and self.sql(f"ALTER TABLE {self.full} DROP COLUMN {one.sql}"):
            self.columns.remove(one)

    def _rename(self) -> None:
        one, name = self._some(), self._name()
        if one and self.sql(f"ALTER TABLE {self.full} RENAME COLUMN {one.sql} TO `{name}`"):
            one.name = name

    def _move(self) -> None:
        one = self._some()
        if one:
            self.sql(f"ALTER TABLE {self.full} ALTER COLUMN {one.sql} FIRST")

    def _nullable(self) -> None:
        one = self.chance.choice(self.columns)
        if one.required and self.sql(
            f"ALTER TABLE {self.full} ALTER COLUMN {one.sql} DROP NOT NULL"
        ):
            one.required = False

    def _widen(self) -> None:
        for one in self.columns:
            wider = wider_than(one.kind)
            if wider and self.sql(f"ALTER TABLE {self.full} ALTER COLUMN {one.sql} TYPE {wider}"):
                one.kind, one.pool = wider, []

    def _nested(self) -> None:
        structs = [one for one in self.columns if one.kind.startswith("struct")]
        if not structs:
            return self._add()
        one = self.chance.choice(structs)
        inside, act = members(one.kind), self.chance.choice(("add", "drop", "rename", "widen"))
        at = self.chance.randrange(len(inside))
        name, kind = inside[at]
        new, text = f"n{len(self.log)}", f"ALTER TABLE {self.full} "
        if act == "add":
            added = self.chance.choice(("int", "string", "double"))
            inside.append((new, added))
            text += f"ADD COLUMN {one.sql}.{new} {added}"
        elif act == "drop" and len(inside) > 1:
            del inside[at]
            text += f"DROP COLUMN {one.sql}.{name}"
        elif act == "widen" and wider_than(kind):
            inside[at] = name, wider_than(kind)
            text += f"ALTER COLUMN {one.sql}.{name} TYPE {wider_than(kind)}"
        else:
            inside[at] = new, kind
            text += f"RENAME COLUMN {one.sql}.{name} TO {new}"
        if self.sql(text):
            one.kind = f"struct<{','.join(f'{n}:{k}' for n, k in inside)}>"
        return None

    def wander(self, steps: int) -> None:
        ways = (
            [self.insert] * 5 + [self.delete] * 3 + [self.update, self.merge, self.delete_by_value]
        )
        ways += [self.evolve] * 3 + [self.spec, self.ref, self.properties, self.pyiceberg]
        ways += [self.add_files, self.empty_file] + [self.equality] * 2 * (self.version > 1)
        for way in self.chance.choices(ways, k=steps):
            way()


def wider_than(kind: str) -> str:
    if kind.startswith("decimal"):
        digits, scale = (int(part) for part in kind[8:-1].split(","))
        return f"decimal({min(38, digits + 9)},{scale})" if digits < 38 else ""
    return {"int": "bigint", "float": "double"}.get(kind, "")
