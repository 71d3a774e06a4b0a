"""Wraps the parts of Iceberg's Java API that jobs use: tables, snapshots, scan tasks, staging
caches.

Work over many files is done inside the JVM (streams over method handles), not by one py4j call per
file. Nothing is decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.snapshots import SnapshotInfo

_BETWEEN = "\x1e"
"""No property has this character."""
_LEVELS = re.compile("`((?:[^`]|``)*)`|([^`.]+)")


def quoted(name: str) -> str:
    """Return a name quoted for Spark SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def qualified(catalog: CatalogConfig, table: tuple[str, ...]) -> str:
    """Return the table's name in Spark SQL, every level quoted."""
    return ".".join(quoted(level) for level in (catalog.name, *table))


def load(spark: Any, name: str) -> Any:
    """Return a fresh org.apache.iceberg.Table by its qualified name (`qualified`)."""
    catalog, *inner = levels(name)
    return spark.load(catalog, inner)


def levels(name: str) -> list[str]:
    """Return the levels of a qualified name, the catalog first, not quoted."""
    return [quoted.replace("``", "`") or plain for quoted, plain in _LEVELS.findall(name)]


def java_class(spark: Any, name: str) -> Any:
    """Return a class by name through the class loader that has the runtime jar."""
    return once(spark, name, lambda: _loaded(spark, name))


def _loaded(spark: Any, name: str) -> Any:
    return spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


def once(spark: Any, key: Any, make: Callable[[], Any]) -> Any:
    """Return an immutable object of this JVM, such as a class or a method handle, created once.

    To create one takes several calls.
    """
    known = spark.gateway.__dict__.setdefault("_layoutctl_known", {})
    if key not in known:
        known[key] = make()
    return known[key]


def is_a(spark: Any, value: Any, class_name: str) -> bool:
    return bool(java_class(spark, class_name).isInstance(value))


def table_cache(spark: Any) -> Any:
    """Return SparkTableCache.get(), by reflection: its name is ambiguous for py4j."""
    java, gateway = spark._jvm, spark.gateway
    found = java_class(spark, "org.apache.iceberg.spark.SparkTableCache")
    method = found.getMethod("get", gateway.new_array(java.java.lang.Class, 0))
    return method.invoke(None, gateway.new_array(java.java.lang.Object, 0))


def task_set_manager(spark: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()


def rewrite_coordinator(spark: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()


def java_list(spark: Any, values: Iterable[Any]) -> Any:
    collected = spark._jvm.java.util.ArrayList()
    for value in values:
        collected.add(value)
    return collected


def java_lines(spark: Any, texts: Iterable[str]) -> Any:
    """Return a java.util.stream.Stream of strings in a few calls, however many there are."""
    known = list(texts)
    if not known:  # a text of no characters splits into one line
        return spark._jvm.java.util.stream.Stream.empty()
    pattern = spark._jvm.java.util.regex.Pattern
    return pattern.compile("\n").splitAsStream("\n".join(known))


def java_set(spark: Any, texts: Iterable[str]) -> Any:
    return java_lines(spark, texts).collect(spark._jvm.java.util.stream.Collectors.toSet())


def java_array(spark: Any, kind: str, values: Sequence[Any]) -> Any:
    array = spark.gateway.new_array(java_package(spark, kind), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def java_package(spark: Any, name: str) -> Any:
    """Return a class as py4j names it."""
    found = spark._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def each(java_iterable: Any) -> Iterator[Any]:
    """Yield the items of a Java collection.

    py4j's own iterator ends by an exception, which costs more calls than a short list has items.
    """
    iterator = java_iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def java_values(java_map: Any) -> Any:
    """Return the map's java.util.Collection of values: py4j's own `values` is a Python view."""
    from py4j.java_gateway import get_method

    return get_method(java_map, "values")()


def method_type(spark: Any, returns: str, *parameters: str) -> Any:
    """Return a java.lang.invoke.MethodType of class names; PRIMITIVES are known by name."""
    kind = spark._jvm.java.lang.invoke.MethodType
    classes = java_list(spark, [_class_of(spark, name) for name in parameters])
    return kind.methodType(_class_of(spark, returns), classes)


PRIMITIVES = {"boolean": "Boolean", "int": "Integer", "long": "Long", "void": "Void"}
"""Primitive types, with the class whose TYPE they are."""


def _class_of(spark: Any, name: str) -> Any:
    boxed = PRIMITIVES.get(name)
    return getattr(spark._jvm.java.lang, boxed).TYPE if boxed else java_class(spark, name)


def method(spark: Any, owner: str, name: str, returns: str, *parameters: str) -> Any:
    """Return a public method as a MethodHandle; its first argument is the object."""
    return _handle(spark, "findVirtual", owner, name, returns, *parameters)


def static_method(spark: Any, owner: str, name: str, returns: str, *parameters: str) -> Any:
    return _handle(spark, "findStatic", owner, name, returns, *parameters)


def _handle(spark: Any, find: str, owner: str, name: str, returns: str, *parameters: str) -> Any:
    def found() -> Any:
        lookup = spark._jvm.java.lang.invoke.MethodHandles.publicLookup()
        kind = method_type(spark, returns, *parameters)
        return getattr(lookup, find)(java_class(spark, owner), name, kind)

    return once(spark, (find, owner, name, parameters), found)


def private_method(spark: Any, owner: str, name: str, *parameters: str) -> Any:
    """Return a MethodHandle of a method that Iceberg does not publish."""

    def found() -> Any:
        gateway = spark.gateway
        kinds = gateway.new_array(spark._jvm.java.lang.Class, len(parameters))
        for index, parameter in enumerate(parameters):
            kinds[index] = java_class(spark, parameter)
        declared = java_class(spark, owner).getDeclaredMethod(name, kinds)
        declared.setAccessible(True)
        return spark._jvm.java.lang.invoke.MethodHandles.publicLookup().unreflect(declared)

    return once(spark, ("private", owner, name, parameters), found)


def as_lambda(spark: Any, interface: str, handle: Any) -> Any:
    """Return a MethodHandle as a functional interface, so that it runs inside the JVM."""
    proxies = spark._jvm.java.lang.invoke.MethodHandleProxies
    return proxies.asInterfaceInstance(java_class(spark, interface), handle)


def snapshot_info(snapshot: Any) -> SnapshotInfo:
    """Read it from Iceberg's own JSON: one call, where its summary takes three per entry."""
    from py4j.java_gateway import JavaClass

    parser = JavaClass("org.apache.iceberg.SnapshotParser", snapshot._gateway_client)
    body = json.loads(str(parser.toJson(snapshot)))
    summary = dict(body.get("summary") or {})
    operation = summary.pop("operation", "")
    return SnapshotInfo(
        int(body["snapshot-id"]), body.get("parent-snapshot-id"), str(operation), summary,
        int(body.get("sequence-number", 0)), int(body["timestamp-ms"]), body.get("schema-id"),
        str(body.get("manifest-list") or ""),
    )  # fmt: skip


def ancestors(table: Any) -> Iterator[SnapshotInfo]:
    """Yield the snapshots from the head of main back to the root, or to where the history has
    expired."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        info = snapshot_info(snapshot)
        yield info
        snapshot = None if info.parent is None else table.snapshot(info.parent)


def added_since(metadata: Any, base: int) -> Iterator[Any]:
    """Yield the snapshots of every branch added after `base`, newest first; all if it expired."""
    snapshots = metadata.snapshots()
    for index in reversed(range(snapshots.size())):
        snapshot = snapshots.get(index)
        if int(snapshot.snapshotId()) == base:
            return
        yield snapshot


def schema_document(spark: Any, schema: Any) -> dict[str, Any]:
    """Return a schema in the JSON form of the specification."""
    parser = spark._jvm.org.apache.iceberg.SchemaParser
    return dict(json.loads(str(parser.toJson(schema))))


def properties_of(spark: Any, table: Any) -> dict[str, str]:
    """Return a table's properties in a few calls, however many there are."""
    given, join = table.properties(), spark._jvm.java.lang.String.join
    if given.isEmpty():
        return {}
    names, values = (
        str(join(_BETWEEN, part)).split(_BETWEEN) for part in (given.keySet(), java_values(given))
    )
    return dict(zip(names, values, strict=True))


def format_version(table: Any) -> int:
    """Return the format version of the table as last loaded or refreshed."""
    return int(table.operations().current().formatVersion())


def jvm_pid(spark: Any) -> int | None:
    process = getattr(spark.gateway, "proc", None)
    return process.pid if process is not None else None
