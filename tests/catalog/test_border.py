"""No class that a catalog's server, a table or a document names is imported; vended access works.

The named class stands in a module that writes a file and ends the process when it is imported.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyiceberg
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.served_properties import names_code
from reconciler.catalog.claim import claim
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.load import connect, load_table, within
from reconciler.catalog.observe import observe_table
from reconciler.catalog.properties import pyiceberg_properties, spark_conf
from reconciler.errors import UnavailableError, UserError
from reconciler.state.shared_state import SharedStore
from tests.class_properties import ALL, PYICEBERG
from tests.hostile_catalog import (
    CONFIG,
    CREDENTIALS,
    DEFAULTS,
    EVIL,
    OVERRIDES,
    PLACES,
    TABLE,
    HostileCatalog,
    hostile_code,
)
from tests.said import Said

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    with hostile_code(tmp_path) as written:
        yield written


@pytest.fixture
def table(catalog: Any) -> Any:
    made = catalog.create_table("sales.t", SCHEMA)
    made.append(pa.table({"id": [1, 2, 3], "s": ["x", "y", None]}, schema=SCHEMA))
    return catalog.load_table("sales.t")


@pytest.fixture
def hostile(table: Any) -> Iterator[HostileCatalog]:
    path = Path(table.metadata_location.removeprefix("file://"))

    def tables() -> dict[str, Any]:
        metadata = json.loads(path.read_text())
        return {"sales.t": {"metadata-location": table.metadata_location, "metadata": metadata}}

    server = HostileCatalog(tables)
    yield server
    server.stop()


def rest(server: HostileCatalog, **properties: str) -> CatalogConfig:
    return CatalogConfig("lake", "rest", {"uri": server.uri, **properties}, "test")


@pytest.mark.parametrize("place", PLACES)
def test_a_server_names_no_class(
    hostile: HostileCatalog, marker: Path, tmp_path: Path, place: str
) -> None:
    for name in ALL:
        nested = name == "auth" and place in (DEFAULTS, OVERRIDES)
        hostile.sends = {place: {name: {"type": "custom", "impl": EVIL} if nested else EVIL}}
        seen = observe_table(rest(hostile), ("sales", "t"), tmp_path / "cache")
        assert (name, len(seen.files)) == (name, 1)
        assert not marker.exists(), name


def test_a_server_names_no_class_by_all_of_them_at_once(
    hostile: HostileCatalog, marker: Path, tmp_path: Path
) -> None:
    hostile.sends = {place: dict.fromkeys(ALL, EVIL) for place in PLACES}
    seen = observe_table(rest(hostile), ("sales", "t"), tmp_path / "cache")
    for identifier in (None, ("sales", "t")):
        groups = read_row_groups(rest(hostile), seen.files, np.arange(1), identifier=identifier)
        assert groups.records.sum() == 3


def test_a_table_of_an_sql_catalog_names_no_class_when_it_is_read_and_committed_to(
    catalog: Any, config: CatalogConfig, marker: Path, tmp_path: Path
) -> None:
    connect(config).create_table("sales.t", SCHEMA, properties=dict.fromkeys(ALL, EVIL))
    assert observe_table(config, ("sales", "t"), tmp_path / "cache").files is not None
    assert claim(config, ("sales", "t"), "owner") == "owner"
    after = load_table(connect(config), config, ("sales", "t")).properties
    assert {name: after.get(name) for name in ALL} == dict.fromkeys(ALL, EVIL)


def test_a_state_table_that_somebody_altered_names_no_class(
    config: CatalogConfig, catalog: Any, marker: Path
) -> None:
    store = SharedStore(config)
    store.set_note("first", {"n": 1})
    (records,) = catalog.list_tables(store.namespace)
    loaded = connect(config).load_table(records)
    with loaded.transaction() as change:
        change.set_properties(dict.fromkeys(ALL, EVIL))
    again = SharedStore(config)
    again.set_note("second", {"n": 2})
    assert again.note("second") == {"n": 2}


def test_a_document_names_no_class(table: Any, config: CatalogConfig, marker: Path) -> None:
    more = {name: EVIL for name in ALL if name != "type"}
    named = CatalogConfig(config.name, "sql", {**config.properties, **more}, "document.yaml")
    assert load_table(connect(named), named, ("sales", "t")).metadata.table_uuid
    assert not pyiceberg_properties(named).keys() & more.keys()


def test_a_persons_own_configuration_may_name_a_class(
    table: Any, config: CatalogConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_files.py").write_text(
        "from pyiceberg.io.pyarrow import PyArrowFileIO\nclass Mine(PyArrowFileIO): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    properties = {**config.properties, "py-io-impl": "my_files.Mine"}
    mine = CatalogConfig(config.name, "sql", properties, ".pyiceberg.yaml", own=True)
    assert type(load_table(connect(mine), mine, ("sales", "t")).io).__name__ == "Mine"


def test_a_class_that_nobody_of_ours_named_is_refused_by_name(marker: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.rest.auth import AuthManagerFactory
    from pyiceberg.io import load_file_io

    import reconciler.catalog.border_rest  # noqa: F401

    calls = (
        lambda: load_file_io({"py-io-impl": EVIL}),
        lambda: load_catalog("x", **{"py-catalog-impl": EVIL}),
        lambda: AuthManagerFactory.create(EVIL, {}),
    )
    for call in calls:
        with pytest.raises(UserError, match="hostile_code"):
            call()


def imported(statements: str) -> str:
    """Run statements in a process of their own, which has `config`; return what they print."""
    code = f"""
import sys
from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import load
{statements}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_sql_catalog_does_not_wait_for_what_only_rest_needs(
    config: CatalogConfig, catalog: Any
) -> None:
    catalog.create_namespace_if_not_exists("sales")
    opening = (
        f"config = CatalogConfig({config.name!r}, 'sql', {dict(config.properties)!r}, 'test')\n"
        "print(load.connect(config).list_namespaces() != [], "
        "[name for name in ('requests', 'pyiceberg.catalog.rest') if name in sys.modules])"
    )
    assert imported(opening) == "True []"


def test_a_file_io_that_asks_a_signer_reads_bounded_answers() -> None:
    asking = (
        "from pyiceberg.io import FSSPEC_FILE_IO\n"
        "from reconciler.catalog import border\n"
        "border.load_file_io({'py-io-impl': FSSPEC_FILE_IO})\n"
        "from requests.adapters import HTTPAdapter\n"
        "from reconciler.catalog import answers\n"
        "print(HTTPAdapter.send is answers._bounded_send)"
    )
    assert imported(asking) == "True"


def test_these_are_all_the_places_where_pyiceberg_imports_a_name() -> None:
    root = Path(pyiceberg.__file__).parent
    found = set()
    texts = {path: path.read_text() for path in root.rglob("*.py")}
    for path, text in texts.items():
        if not any(f"{name}(" in text for name in IMPORTERS):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                if any(ast.unparse(call.func) in IMPORTERS for call in calls):
                    found.add((str(path.relative_to(root)), function.name))
    assert found == set(PYICEBERG)


IMPORTERS = {"importlib.import_module", "import_module", "__import__", "eval", "exec"}


@pytest.mark.parametrize("name", ALL)
def test_no_table_property_that_names_a_class_reaches_a_writer(name: str) -> None:
    from reconciler.api.served_properties import staged_properties

    assert staged_properties({name: EVIL, "write.target-file-size-bytes": "1"}) == {
        "write.target-file-size-bytes": "1"
    }


@pytest.mark.parametrize(
    "name",
    [
        "write.format.default",
        "write.parquet.compression-codec",
        "write.parquet.bloom-filter-enabled.column.class",
        "write.object-storage.enabled",
        "write.distribution-mode",
        "schema.name-mapping.default",
        "read.split.target-size",
    ],
)
def test_what_shapes_a_table_stays(name: str) -> None:
    assert not names_code(name)


VENDED = {
    "s3.access-key-id": "vended-id",
    "s3.secret-access-key": "vended-secret",
    "s3.session-token": "vended-token",
    "s3.endpoint": "http://127.0.0.1:9",
    "s3.region": "eu-central-1",
    "gcs.oauth2.token": "g",
    "adls.sas-token.account.dfs.core.windows.net": "sas",
}


@pytest.mark.parametrize("place", [DEFAULTS, OVERRIDES, CONFIG, CREDENTIALS])
def test_vended_credentials_reach_the_file_io(hostile: HostileCatalog, place: str) -> None:
    hostile.sends = {place: {**VENDED, "py-io-impl": EVIL}}
    config = rest(hostile)
    io = load_table(connect(config), config, ("sales", "t")).io
    assert {name: io.properties.get(name) for name in VENDED} == VENDED
    assert "py-io-impl" not in io.properties


def test_vended_credentials_go_before_the_tables_config(hostile: HostileCatalog) -> None:
    hostile.sends = {CONFIG: {"s3.access-key-id": "config"}, CREDENTIALS: VENDED}
    config = rest(hostile, **{"s3.access-key-id": "own"})
    io = load_table(connect(config), config, ("sales", "t")).io
    assert io.properties["s3.access-key-id"] == "vended-id"


def test_a_table_redirects_no_credentials(hostile: HostileCatalog) -> None:
    hostile.sends = {
        TABLE: {"s3.endpoint": "http://evil", "s3.signer": "S3V4RestSigner",
                "s3.signer.uri": "http://evil", "uri": "http://evil"}
    }  # fmt: skip
    config = rest(hostile, **{"s3.endpoint": "http://own", "token": "secret"})
    io = load_table(connect(config), config, ("sales", "t")).io
    assert io.properties["s3.endpoint"] == "http://own"
    assert io.properties["uri"] == hostile.uri
    assert not {"s3.signer", "s3.signer.uri"} & io.properties.keys()


def test_only_the_catalogs_server_signs(hostile: HostileCatalog) -> None:
    elsewhere = {"s3.signer": "S3V4RestSigner", "s3.signer.uri": "http://evil", **VENDED}
    config = rest(hostile, token="secret")
    hostile.sends = {CONFIG: elsewhere}
    io = load_table(connect(config), config, ("sales", "t")).io
    assert (io.properties["s3.signer"], io.properties.get("s3.signer.uri")) == (
        "S3V4RestSigner",
        None,
    )
    hostile.sends = {CONFIG: {**elsewhere, "s3.signer.uri": hostile.uri}}
    io = load_table(connect(config), config, ("sales", "t")).io
    assert io.properties["s3.signer.uri"] == hostile.uri


def test_a_server_changes_no_credential_of_ours(hostile: HostileCatalog) -> None:
    hostile.sends = {
        OVERRIDES: {"oauth2-server-uri": "http://evil", "credential": "theirs", "ssl": {"x": "y"},
                    "header.Metadata-Flavor": "Google", "prefix": "p"}
    }  # fmt: skip
    opened = connect(rest(hostile, token="t"))
    assert opened.properties["prefix"] == "p"
    assert not {"oauth2-server-uri", "credential", "ssl"} & opened.properties.keys()
    assert "header.Metadata-Flavor" not in opened.properties


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://(host=evil,socketFactory=evil.Factory)/db",
        "mysql://address=(host=evil)(queryInterceptors=evil.Class)/db",
        "postgresql://db/lake;socketFactory=evil.Factory",
        "postgresql://db/lake&socketFactory=evil.Factory",
    ],
)
def test_an_sql_uri_carries_no_option_into_jdbc(uri: str) -> None:
    with pytest.raises(UserError, match="JDBC"):
        spark_conf(CatalogConfig("lake", "sql", {"uri": uri}, "document.yaml"))


def test_a_document_names_no_plugin_of_the_database_client() -> None:
    named = CatalogConfig("lake", "sql", {"uri": "postgresql://db/x?plugin=evil"}, "document.yaml")
    with pytest.raises(UserError, match="plugin"):
        connect(named)


def test_a_document_reads_no_variable_of_the_environment() -> None:
    properties = {"uri": "http://evil", "scope": "env:GITHUB_TOKEN"}
    with pytest.raises(UserError, match="scope"):
        spark_conf(CatalogConfig("lake", "rest", properties, "document.yaml"))
    own = CatalogConfig("lake", "rest", properties, "PYICEBERG_*", own=True)
    assert spark_conf(own)["spark.sql.catalog.lake.scope"] == "env:GITHUB_TOKEN"


def test_code_that_ends_the_process_ends_only_the_call(config: CatalogConfig, said: Said) -> None:
    with pytest.raises(UnavailableError) as raised:
        within(lambda: sys.exit(3), 10, config)
    said(raised.value)
    assert "SystemExit" in raised.value.details
