"""Spark's JVM loads no class that a table's properties or a REST server's answers name.

Which classes are loaded is asked of the class loader, for classes that nothing else uses.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.plan.actions.rewrite import BinPack
from reconciler.spark.session import iceberg, rest_filter, runtime
from tests.class_properties import ALL, ICEBERG
from tests.conftest import rest_spark_conf
from tests.hostile_catalog import PLACES, HostileCatalog
from tests.rest_server import RestServer
from tests.spark.tables import Bench

UNUSED = "org.apache.iceberg.aliyun.oss.OSSFileIO"
CONTROL = "org.apache.iceberg.aws.glue.GlueCatalog"


def is_loaded(spark: Any, name: str) -> bool:
    """Whether the loader of Iceberg's classes has loaded this one."""
    java, gateway = spark._jvm.java, spark.gateway
    loader = iceberg.java_class(spark, "org.apache.iceberg.Table").getClassLoader()
    base = java.lang.Class.forName("java.lang.ClassLoader")
    parameters = gateway.new_array(java.lang.Class, 1)
    parameters[0] = java.lang.Class.forName("java.lang.String")
    method = base.getDeclaredMethod("findLoadedClass", parameters)
    method.setAccessible(True)
    arguments = gateway.new_array(java.lang.Object, 1)
    arguments[0] = name
    return method.invoke(loader, arguments) is not None


def everything(name: str) -> dict[str, str]:
    return dict.fromkeys(ALL, name)


def properties(name: str) -> str:
    return ", ".join(f"'{key}'='{value}'" for key, value in everything(name).items())


@pytest.mark.spark
def test_a_hostile_table_is_rewritten_and_names_no_class(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    for start in range(3):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, 'x' FROM range({start}, 90, 3)")
    before = bench.rows(name)
    request = bench.request(name, bench.action(name, BinPack))
    bench.sql(f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ({properties(UNUSED)})")
    result = bench.run(request)
    assert (result.done, result.commits) == (True, 1)
    after = bench.table(name).properties()
    assert {key: after.get(key) for key in ALL} == everything(UNUSED)
    assert not is_loaded(bench.spark, UNUSED)
    removed = ", ".join(f"'{key}'" for key in ALL)
    bench.sql(f"ALTER TABLE {bench.full(name)} UNSET TBLPROPERTIES ({removed})")
    assert bench.rows(name) == before
    assert len(bench.paths(name)) == 1


@pytest.fixture
def hostile(rest_server: RestServer) -> Iterator[HostileCatalog]:
    server = HostileCatalog(upstream=rest_server.uri)
    yield server
    server.stop()


@pytest.mark.spark
@pytest.mark.rest
def test_a_hostile_server_names_no_class_to_spark(
    spark: Any, rest_server: RestServer, hostile: HostileCatalog, tmp_path: Path
) -> None:
    spark.open_catalogs(rest_spark_conf(rest_server, "honest"))
    hostile.sends = {place: everything(UNUSED) for place in PLACES}
    conf, filters = rest_filter.filtered(
        {**rest_spark_conf(rest_server, "hostile"), "spark.sql.catalog.hostile.uri": hostile.uri}
    )
    spark.open_catalogs(conf)
    bench = Bench(spark, CatalogConfig("hostile", "rest", {"uri": hostile.uri}), tmp_path)
    name = bench.create("id bigint, s string")
    for start in range(3):
        bench.sql(f"INSERT INTO honest.jobs.{name} SELECT id, 'x' FROM range({start}, 90, 3)")
    before = bench.rows(name)
    result = bench.run(bench.request(name, bench.action(name, BinPack)))
    assert (result.done, result.commits) == (True, 1)
    assert bench.rows(name) == before
    assert not is_loaded(spark, UNUSED)
    io = iceberg.load(spark, bench.full(name)).io().getClass().getName()
    assert io == "org.apache.iceberg.io.ResolvingFileIO"
    for opened in filters:
        opened.stop()


@pytest.mark.spark
@pytest.mark.rest
def test_without_the_filter_the_server_would(
    spark: Any, rest_server: RestServer, hostile: HostileCatalog
) -> None:
    hostile.sends = {"overrides": {"io-impl": CONTROL}}
    conf = {**rest_spark_conf(rest_server, "open"), "spark.sql.catalog.open.uri": hostile.uri}
    for key, value in conf.items():
        spark.conf.set(key, value)
    assert not is_loaded(spark, CONTROL)
    with pytest.raises(Exception, match="FileIO"):
        spark.sql("SHOW NAMESPACES IN open").collect()
    assert is_loaded(spark, CONTROL)


LOADS = re.compile(
    rb"org/apache/iceberg/common/Dyn(Constructors|Classes)\$Builder|java/util/ServiceLoader"
    rb"|\x00\x07forName|\x00\x09loadClass"
)


@pytest.mark.jvm
def test_these_are_all_the_places_where_iceberg_loads_a_class_by_name() -> None:
    (jar,) = runtime.fetch([runtime.ICEBERG_RUNTIME])
    root, own = "org/apache/iceberg/", "org/apache/iceberg/common/Dyn"
    found = set()
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            foreign = "/shaded/" in name or "/relocated/" in name or name.startswith(own)
            ours = name.startswith(root) and name.endswith(".class")
            if ours and not foreign and LOADS.search(archive.read(name)):
                found.add(name.removeprefix(root).removesuffix(".class"))
    assert found == set(ICEBERG)
