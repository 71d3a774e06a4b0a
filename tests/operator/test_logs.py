"""Log lines are JSON, say which table they are about, and hold no secret."""

from __future__ import annotations

import base64
import io
import json
import logging
from types import SimpleNamespace

import pytest

from reconciler.api.reach import Reach, networks
from reconciler.operator import logs
from reconciler.operator.catalog.handles import LiveCatalogs, LiveHandle
from reconciler.operator.index import Index
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.stored import StoredDocuments


@pytest.fixture
def lines():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonLines())
    logger = logging.getLogger("tests.logs")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)

    def read():
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield logger, read
    logger.handlers.clear()


def test_the_signature_in_an_address_is_in_no_line(lines):
    logger, read = lines
    try:
        raise OSError("GET https://a.blob.example/c/f?sv=1&sig=aGlkZGVu%3D&se=2 failed")
    except OSError:
        logger.exception("could not read")
    (line,) = read()
    assert "aGlkZGVu" not in json.dumps(line) and "se=2" in json.dumps(line)


def test_a_line_carries_what_it_is_about(lines):
    logger, read = lines
    with logs.about(table="sales.lineitem"), logs.about(plan="p-1"):
        logger.info("it %s", "stands")
    logger.warning("outside\nof it")
    first, second = read()
    assert first["message"] == "it stands"
    assert (first["table"], first["plan"], first["level"]) == ("sales.lineitem", "p-1", "info")
    assert first["time"].endswith("Z")
    assert "table" not in second
    assert second["message"] == "outside\nof it"


def test_known_secrets_are_hidden_in_messages_and_tracebacks(lines):
    logger, read = lines
    logs.conceal(["planted-value-1", "x"])
    try:
        raise RuntimeError("refused: planted-value-1")
    except RuntimeError:
        logger.exception("login planted-value-1 failed")
    (line,) = read()
    assert "planted-value-1" not in json.dumps(line)
    assert "RuntimeError" in line["error"]
    assert "login *** failed" in line["message"]


@pytest.mark.parametrize(
    "text",
    [
        "connect postgresql://user:planted2@db:5432/c",
        "Authorization: Bearer planted2-eyJhbGciOi",
        "s3.secret-access-key=planted2",
        "{'password': 'planted2', 'uri': 'x'}",
        '{"client_secret": "planted2"}',
        "token=planted2&x=1",
        "X-Amz-Signature=planted2",
    ],
)
def test_what_looks_like_a_credential_is_hidden(text):
    assert "planted2" not in logs.redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "lineitem: 12 files",
        "s3://lake/wh/data/file.parquet",
        "secretRef warehouse-credentials",
    ],
)
def test_other_text_is_left_alone(text):
    assert logs.redact(text) == text


def test_what_the_secret_of_a_catalog_holds_is_hidden_once_it_is_opened(lines):
    logger, read = lines
    values = {"token": "planted-value-8", "uri": "http://127.0.0.1:1/?key=planted-value-9"}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}
    body = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "IcebergCatalog",
        "metadata": {"name": "lake", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {
            "type": "rest",
            "catalogName": "lake",
            "properties": {"uri": "http://127.0.0.1:1"},
            "secretRef": {"name": "keys"},
        },
    }
    api = SimpleNamespace(get=lambda *place: {"data": data})
    reach = Reach(networks(["127.0.0.1"]))
    catalogs = LiveCatalogs(api, Index(), OperatorSettings(), StoredDocuments(), reach)
    assert isinstance(catalogs.open("n", "lake", body), LiveHandle)
    logger.info("sent planted-value-8, planted-value-9")
    (line,) = read()
    assert line["message"] == "sent ***, ***"
