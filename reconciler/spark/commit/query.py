"""Asks the query of a policy (spec.safety.check), which may read the rows of its table alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.check_query import DENIED
from reconciler.spark.session import iceberg

PLAN_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
SPARK_TABLE = "org.apache.iceberg.spark.source.SparkTable"
BASE_TABLE = "org.apache.iceberg.BaseTable"
SCRIPT = "ScriptTransformation"
"""The node of Spark's plan that starts a program; it stands in no other plan but as a literal."""
LEAVES = frozenset(
    ("OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "ResolvedInlineTable")
)
"""Nodes of Spark's plan that read nothing by themselves. ICEBERG reads the table."""
ICEBERG = "DataSourceV2Relation"
WITHHELD = frozenset(
    ("CallMethodViaReflection", "TryReflect", "SparkVersion", "CurrentUser", "CurrentDatabase",
     "CurrentCatalog", "InputFileName", "InputFileBlockStart", "InputFileBlockLength", "ScalaUDF",
     "PythonUDF", "PythonUDAF", "HiveSimpleUDF", "HiveGenericUDF", "HiveGenericUDTF", "PythonUDTF",
     "VariableReference")
)  # fmt: skip
"""Expressions of Spark's plan that call code, or read anything but the rows of the table."""


@dataclass(frozen=True, slots=True)
class JavaRows:
    """What a query returns, as a Dataset of Java."""

    rows: Any
    """The Dataset, which runs when it is asked."""
    beyond: str
    """As in `table.Rows`."""

    def is_empty(self) -> bool:
        return bool(self.rows.isEmpty())


def asked(table: Any, text: str, versions: Mapping[str, int]) -> JavaRows:
    """Return what a query returns over the snapshots that its names mean. table: a JavaTable.

    As a subquery it can only read.
    """
    for name, version in versions.items():
        text = text.replace(name, f"{table.name} VERSION AS OF {version}")
    rows = _session(table.spark).sql(f"SELECT * FROM (\n{text}\n) LIMIT 1")
    return JavaRows(rows, _beyond(table, rows.queryExecution().analyzed()))


def _beyond(table: Any, analysed: Any) -> str:
    """Return what the query reads beyond the rows of its table, "" for nothing.

    Whatever is not known to be harmless counts: a leaf of the plan that is not the table itself.
    """
    nodes: list[Any] = [analysed]
    expressions: list[Any] = []
    while nodes or expressions:
        if expressions:
            item = expressions.pop()
            name = str(item.getClass().getSimpleName())
            if name in WITHHELD:
                return f"it uses {name}"
            if iceberg.is_a(table.spark, item, PLAN_EXPRESSION):
                nodes.append(item.plan())
            expressions += _seq(item.children())
            continue
        node = nodes.pop()
        name = str(node.getClass().getSimpleName()).rstrip("$")
        if name in (SCRIPT, "View") or iceberg.is_a(table.spark, node, COMMAND):
            return f"its plan has a node {name}"
        children = _seq(node.children())
        if not children and name not in LEAVES and not _is_checked(table, node, name):
            return f"it reads another table, by a node {name}"
        nodes += [*children, *_seq(node.innerChildren())]
        expressions += _seq(node.expressions())
    return ""


def _is_checked(table: Any, node: Any, name: str) -> bool:
    """Whether the relation is the table of the check, and not a metadata table of it."""
    if name != ICEBERG:
        return False
    read = node.table()
    if not iceberg.is_a(table.spark, read, SPARK_TABLE):
        return False
    found = read.table()
    if not iceberg.is_a(table.spark, found, BASE_TABLE):
        return False
    return str(found.operations().current().uuid()) == str(table.uuid())


def _seq(items: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [items.apply(number) for number in range(int(items.size()))]


def _session(spark: Any) -> Any:
    """Return a Java session that reads tables of catalogs only, and calls no Java method by
    name."""
    session = spark._jsparkSession.cloneSession()
    session.conf().set("spark.sql.runSQLOnFiles", "false")
    registry = session.sessionState().functionRegistry()
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in DENIED:
        registry.dropFunction(identifier(name))
    return session
