"""`layoutctl route`: the query is the result, reasons go to stderr, exit codes are those of all
verbs."""

from __future__ import annotations

import json

import pytest
import yaml

from reconciler.table import block_ids
from reconciler.table.block_ids import BlockTree, base_of, key_of
from reconciler.table.cut_tree import Cut, made
from tests.cli.in_process import Cli, isolate, runner
from tests.conftest import sqlite_catalog
from tests.loop.test_route import BLOCK, TYPES, World

NAME = "rec.sales.t"
TREE = made((Cut(2, 5), (Cut(3, b"b"), None, None), (Cut(4, 4.0), None, None)), [0] * 4)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    properties = dict(sqlite_catalog(tmp_path).properties)
    (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"rec": properties}}))
    isolate(monkeypatch, tmp_path, home, tmp_path / "state", tmp_path / "cache")
    return runner(monkeypatch, capsys)


@pytest.fixture
def world(tmp_path) -> World:
    made_up = World(tmp_path)
    node = (Cut(2, 5), (Cut(3, b"b"), None, None), (Cut(4, 4.0), None, None))
    types = {one: TYPES[one] for one in TREE.of_column}
    made_up.set({block_ids.TREE + key_of(TREE): BlockTree(TREE, types).text})
    made_up.lay_out(made_up.rows(80), node, TREE)
    return made_up


def test_the_query_is_printed_with_the_condition_and_as_a_document(world, cli, said):
    sql = "SELECT id FROM sales.t WHERE day < 5 OR day IS NULL LIMIT 3"
    code, out, err = cli("route", NAME, sql)
    assert code == 0 and out.count("\n") == 1
    base = base_of(key_of(TREE))
    assert f"{BLOCK} BETWEEN {base} AND" in out or f"{BLOCK} IN ({base}" in out
    said(out)
    said(err)
    code, out, _ = cli("route", NAME, sql, "-o", "json")
    body = json.loads(out)
    assert (code, body["kind"], body["changed"], body["column"]) == (0, "QueryRoute", True, BLOCK)
    (read,) = body["reads"]
    assert read["bytesAfter"] <= read["bytesBefore"] and read["reason"] is None
    assert read["ids"][0]["first"] == base


def test_a_query_that_stays_as_it_is_is_no_error(world, cli, said):
    sql = "SELECT  id FROM sales.t -- all of it"
    code, out, err = cli("route", NAME, sql)
    assert (code, out) == (0, sql + "\n")
    said(err)


@pytest.mark.parametrize(
    "wrong",
    [
        (NAME, "SELECT 1"),
        (NAME, "DELETE FROM sales.t"),
        (NAME, "SELECT id FROM sales.t WHERE day < 5", "--dialect", "klingon"),
        (NAME, "SELECT id FROM sales.t WHERE day < 5", "--time-zone", "Mars/Olympus"),
        ("rec.sales.none", "SELECT id FROM sales.none WHERE day < 5"),
    ],
)
def test_errors_of_the_user_say_what_to_do(world, cli, said, wrong):
    code, out, err = cli("route", *wrong)
    assert (code, out) == (1, "")
    said(err)
