"""plan, apply, status, history and explain as a user meets them, bad input included."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import numpy as np
import pytest
import yaml

from reconciler.cli import apply_result
from reconciler.errors import EXIT_INTERNAL, EXIT_UNAVAILABLE
from reconciler.format import utc
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import Step
from reconciler.plan.plan import plan_from_document
from reconciler.plan.reasons import MIGRATION_REFUSED, REFUSED_FILES
from reconciler.rewrite import write
from reconciler.rewrite.opened import Opened
from reconciler.rewrite.witness import Witness
from reconciler.table.refusals import FAILED, OUT_OF_MEMORY, REMEDIES
from tests.cli.in_process import Cli, isolate, runner
from tests.delete_commits import delete_equal
from tests.said import Said


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, catalog_config: Any) -> Cli:
    """layoutctl in this process: (exit code, stdout, stderr); state and cache of its own."""
    home = tmp_path / "home"
    home.mkdir()
    properties = dict(catalog_config.properties)
    (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"rec": properties}}))
    isolate(monkeypatch, tmp_path, home, tmp_path / "state", tmp_path / "cache")
    return runner(monkeypatch, capsys)


@pytest.fixture
def with_spark(monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    """The shared session instead of one per command."""
    monkeypatch.setattr(LocalActor, "session", lambda *_: spark)


def own_manifest(table: Any) -> str:
    """Append a row to a copied table; return the path of its manifest, which no other table has."""
    table.append(table.scan(limit=1).to_arrow())
    manifests = table.current_snapshot().manifests(table.io)
    return next(m.manifest_path for m in manifests if m.manifest_path.startswith(table.location()))


def name_of(table: Any) -> str:
    return ".".join(("rec", *table.name()))


def policy_file(path: Path, table: Any, **spec: Any) -> str:
    document = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "TableLayoutPolicy",
        "metadata": {"name": path.stem},
        "spec": {
            "catalogRef": {"name": "rec"},
            "tables": {"include": [".".join(table.name())]},
            **spec,
        },
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def declared(*keys: str, **spec: Any) -> dict[str, Any]:
    return {"layout": {"clustering": {"mode": "Declared", "keys": list(keys)}}, **spec}


def write_log(path: Path, table: Any, count: int = 600) -> str:
    random = np.random.default_rng(5)
    with path.open("w") as out:
        for number in range(count):
            low = int(random.integers(0, 390))
            sql = f"select pad from {'.'.join(table.name())} where day between {low} and {low + 4}"
            when = f"2026-11-{7 + number * 7 // count:02d}T{number % 24:02d}:00:00Z"
            out.write(json.dumps({"sql": sql, "timestamp": when}) + "\n")
    return str(path)


@pytest.mark.spark
def test_from_log_to_converged_and_nothing_left(cli, with_spark, scattered, tmp_path):
    name, log = name_of(scattered), write_log(tmp_path / "q.jsonl", scattered)
    assert cli("workload", "import", log)[0] == 0
    code, out, _ = cli("plan", name, "--out", "plan.json", "--detailed-exitcode")
    assert code == 2
    plan = json.loads(Path("plan.json").read_text())
    assert plan["planId"] in out
    assert any(item["predicted"]["label"] in out for item in plan["actions"])

    code, out, err = cli("apply", "plan.json")
    assert (code, err.count("AwaitingApproval") + out.count("AwaitingApproval")) == (3, 1)

    before = scattered.refresh().scan().to_arrow().num_rows
    code, out, err = cli("apply", "plan.json", "--yes")
    assert code == 0
    assert "hash equal" in err
    assert "PREDICTED" in out
    assert scattered.refresh().scan().to_arrow().num_rows == before
    summary = scattered.current_snapshot().summary
    assert summary["layout.plan-id"] == plan["planId"]

    assert cli("apply", "plan.json", "--yes")[0] == 0
    assert cli("apply", name, "--until-converged", "--auto-approve")[0] == 0
    assert cli("plan", name, "--detailed-exitcode")[0] == 0
    assert "Converged" in cli("status", name)[1]
    code, out, _ = cli("history", name, "-o", "json")
    past = json.loads(out)["items"]
    assert past[0]["planId"] == plan["planId"]
    assert past[0]["actions"][0]["state"] == "committed"
    assert past[0]["rewrittenBytes"] > 0


@pytest.mark.spark
def test_sizes_that_the_policy_names_are_kept_by_other_writers_and_set_once(
    cli, with_spark, scattered, tmp_path
):
    clustering = {"mode": "None"}
    files = {"rowGroupSize": "64Ki", "minInputFiles": 2}
    policy = policy_file(
        tmp_path / "p.yaml", scattered, layout={"clustering": clustering, "files": files}
    )
    name = name_of(scattered)
    code, out, _ = cli("plan", name, "-f", policy)
    assert code == 0
    assert "write.parquet.row-group-size-bytes" in out
    assert "write.target-file-size-bytes" not in out
    assert cli("apply", name, "-f", policy, "--until-converged", "--auto-approve")[0] == 0
    properties = scattered.refresh().properties
    assert properties["write.parquet.row-group-size-bytes"] == str(64 << 10)
    assert cli("plan", name, "-f", policy, "--detailed-exitcode")[0] == 0


def test_a_migration_under_live_equality_deletes_is_refused_whatever_is_accepted(
    cli, scattered, tmp_path, said: Said
):
    """A writer that may add some again can be accepted; rows that would come back cannot."""
    name, path = name_of(scattered), tmp_path / "p.yaml"

    def refusals(*accepted: str) -> list[str]:
        fields = [{"column": "day", "transform": "identity"}]
        partitioning: dict[str, Any] = {"mode": "Declared", "fields": fields}
        if accepted:
            partitioning["accept"] = list(accepted)
        policy_file(path, scattered, layout={"partitioning": partitioning})
        code, out, err = cli("plan", name, "-f", str(path), "-o", "json")
        assert code == 0, err
        entries = json.loads(out)["evidence"]["rejected"]
        return [one["why"] for one in entries if one["reason"] == MIGRATION_REFUSED]

    assert refusals() == []
    delete_equal(scattered.refresh(), "id", [3, 5, 7])
    location = scattered.refresh().metadata_location
    alive, writer = refusals()
    assert refusals("EqualityDeletes") == [alive]
    said(f"{alive}\n{writer}")
    printed = " ".join(cli("plan", name, "-f", str(path))[1].split())
    assert alive in printed and writer not in printed, "to its end, which is the way round"
    assert scattered.refresh().metadata_location == location


def test_the_printed_plan_and_its_json_agree(cli, scattered, tmp_path):
    name = name_of(scattered)
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    _, text, _ = cli("plan", name, "-f", policy)
    _, body, _ = cli("plan", name, "-f", policy, "-o", "json")
    plan = plan_from_document(json.loads(body))
    assert plan.id in text
    assert f"{sum(len(a.action.inputs) for a in plan.actions)} input files" in text
    assert "Approval: Manual" in " ".join(text.split())
    commands = ("save:", "run:")  # never broken
    broken = [line for line in text.splitlines() if not line.lstrip().startswith(commands)]
    assert all(len(line) <= 100 for line in broken)
    _, yaml_body, _ = cli("plan", name, "-f", policy, "-o", "yaml")
    assert plan_from_document(yaml.safe_load(yaml_body)).id == plan.id
    assert cli("plan", name, "-f", policy, "-o", "name")[1].strip() == plan.id
    assert cli("plan", name, "-f", policy, "-o", "markdown")[1].startswith("<!-- layoutctl:plan")


def _two_tables(path: Path, table: Any, catalog: Any) -> str:
    """A policy on the table and on an empty one beside it, nothing approved."""
    other = table.name()[-1] + "_b"
    catalog.create_table(("cli", other), table.schema())
    document = yaml.safe_load(Path(policy_file(path, table, **declared("day"))).read_text())
    document["spec"]["tables"]["include"].append(f"cli.{other}")
    document["spec"]["budgets"] = [{"name": "daily", "per": "24h", "maxRewriteBytes": "1Gi"}]
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_machine_output_is_one_document_whatever_the_number_of_tables(
    cli, scattered, iceberg_catalog, tmp_path
):
    name = name_of(scattered)
    both = _two_tables(tmp_path / "both.yaml", scattered, iceberg_catalog)
    kinds = {
        ("plan", name): "LayoutPlan",
        ("plan", "-f", both): "LayoutPlanList",
        ("status", name): "TableStatusList",
        ("status", "-f", both): "TableStatusList",
        ("history", name): "TableHistory",
        ("observe", name): "TableObservation",
        ("observe", "cli"): "TableObservationList",
        ("explain", name): "TableExplanation",
        ("apply", name): "ApplyReport",
        ("apply", "-f", both): "ApplyReportList",
        ("catalogs",): "CatalogList",
    }
    for arguments, kind in kinds.items():
        code, out, _ = cli(*arguments, "-o", "json")
        body = json.loads(out)
        assert (body["apiVersion"], body["kind"]) == ("layout.lakehouse.dev/v1alpha1", kind)
        assert code == (3 if arguments[0] == "apply" else 0)
    (body,) = yaml.safe_load_all(cli("apply", "-f", both, "-o", "yaml")[1])
    assert [item["kind"] for item in body["items"]] == ["ApplyReport", "ApplyReport"]
    assert body["errors"] == []


def test_budgets_and_digest_are_shown_before_anything_is_approved(
    cli, scattered, iceberg_catalog, tmp_path
):
    both = _two_tables(tmp_path / "both.yaml", scattered, iceberg_catalog)
    name = name_of(scattered)
    assert "Budget daily: " in cli("plan", name, "-f", both)[1]
    body = json.loads(cli("plan", name, "-f", both, "-o", "json")[1])
    text = cli("plan", name, "-f", both, "-o", "markdown")[1]
    assert text.startswith(f"<!-- layoutctl:plan {name} {body['planId']} sha256:")
    assert "**Budget** daily: " in text and "Approval: Manual" in text
    assert "0 of 1.0 GiB" in cli("status", name, "-f", both)[1]


def test_explain_reads_a_query_and_shows_its_values_only_when_asked(cli, scattered, said):
    name, table = name_of(scattered), ".".join(scattered.name())
    sql = f"SELECT pad FROM {table} WHERE id = 4321"
    code, out, _ = cli("explain", name, "--query", sql)
    assert code == 0
    assert " 1 of 8 files" in out and "id = ?" in out and "4321" not in out
    assert "4000 .. 4999" in cli("explain", name, "--query", sql, "--show-literals")[1]
    for wrong in (
        f"SELECT pad FROM {table} WHERE idd = 4321",
        "SELECT pad FROM cli.nowhere WHERE id = 1",
        "SELECT FROM WHERE",
        "nothing like it",
    ):
        code, out, err = cli("explain", name, "--query", wrong)
        assert (code, out) == (1, "")
        assert "do: " in err
        said(err)


def test_a_table_larger_than_its_budget_is_planned_in_slices(cli, scattered, tmp_path):
    assert cli("workload", "import", write_log(tmp_path / "q.jsonl", scattered))[0] == 0
    most = max(task.file.file_size_in_bytes for task in scattered.scan().plan_files()) * 3
    day = {"per": "24h", "maxRewriteBytes": str(most)}
    night = {"schedule": "0 0 * * *", "duration": "6h", "maxRewriteBytes": "0"}
    wide = {"per": "720h", "maxRewriteBytes": "1Ti"}
    budgets = [{"name": f"b{n}", **limit} for n, limit in enumerate((day, night, wide))]
    documents = ("-f", policy_file(tmp_path / "p.yaml", scattered, budgets=budgets))
    code, body, err = cli("plan", name_of(scattered), *documents, "-o", "json")
    assert code == 0, err
    plan = json.loads(body)
    sizes = [action["predicted"]["bytesIn"] for action in plan["actions"]]
    assert len(sizes) == 3 and max(sizes) <= most < sum(sizes)


def test_explain_prints_one_document_of_the_file_the_query_and_the_recorded_shapes(
    cli, scattered, tmp_path, said
):
    name, table = name_of(scattered), ".".join(scattered.name())
    assert cli("workload", "import", write_log(tmp_path / "q.jsonl", scattered))[0] == 0
    _, body, _ = cli("plan", name, "-o", "json")
    plan = json.loads(body)
    path = plan["actions"][0]["inputs"][0]
    sql = f"SELECT pad FROM {table} WHERE day BETWEEN 371 AND 372"
    asked = ("explain", name, "--data-file", path, "--query", sql)
    code, out, _ = cli(*asked, "-o", "json")
    body = json.loads(out)
    assert (code, body["table"], body["dataFiles"]) == (0, name, 8)
    labels = [action["predicted"]["label"] for action in plan["actions"]]
    assert [item["label"] for item in body["chosen"]] == labels
    assert body["file"]["path"] == path
    assert body["file"]["decision"]["action"] == labels[0]
    (scan,), (recorded,) = body["query"], body["shapes"]
    assert scan["estimate"] == "exact" and scan["readBytes"] > 0
    assert scan["filesRead"] == len(scan["files"]) == 8 and "bounds" not in scan["files"][0]
    assert recorded["shapeId"] == scan["shapeId"] and recorded["queries"] == 600
    assert "371" not in scan["condition"] + json.dumps(scan["read"])
    shown = yaml.safe_load(cli(*asked, "-o", "yaml", "--show-literals")[1])["query"][0]
    assert shown["condition"] == "day BETWEEN 371 AND 372" and shown["files"][0]["bounds"]

    code, out, _ = cli("explain", name, "--query", scan["shapeId"][:6], "-o", "json")
    (shape,) = json.loads(out)["shapes"]
    median = shape["medianQuery"]
    assert median["filesRead"] + median["filesSkipped"] == 8
    text = cli("explain", name, "--query", scan["shapeId"])[1]
    assert f" {median['filesRead']} of 8 files" in text
    assert all(item["because"] in " ".join(text.split()) for item in median["read"])
    assert cli("explain", name, "-o", "name")[1].strip() == name
    code, out, err = cli(*asked[:4], "--query", "nothing like it", "-o", "json")
    assert (code, out) == (1, "")
    said(err)


def test_documents_that_do_not_govern_a_named_table_are_spoken_of(cli, scattered, tmp_path, said):
    other = tmp_path / "other.yaml"
    policy_file(other, scattered)
    other.write_text(other.read_text().replace(".".join(scattered.name()), "cli.another"))
    code, _, err = cli("plan", name_of(scattered), "-f", str(other))
    assert code == 0
    said(err)
    code, _, err = cli("plan", "-f", policy_file(tmp_path / "p.yaml", scattered), "--select", "z.*")
    assert code == 1
    said(err)


def test_a_policy_of_an_unknown_catalog_is_no_built_in_policy(cli, scattered, tmp_path, said):
    path = tmp_path / "p.yaml"
    policy_file(path, scattered)
    text = path.read_text()
    lost = text.replace("name: rec\n", "name: lake\n")
    assert lost != text
    path.write_text(lost)
    code, out, err = cli("plan", name_of(scattered), "-f", str(path))
    assert (code, out) == (1, "")
    said(err)
    path.write_text("---\n".join((text, lost.replace("name: p", "name: lost"))))
    code, out, err = cli("plan", "-f", str(path))
    assert code == 0 and name_of(scattered) in out
    said(err)


def test_plan_reads_only_and_needs_no_java(cli, scattered, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    before = scattered.refresh().metadata_location
    assert cli("plan", name_of(scattered))[0] == 0
    assert scattered.refresh().metadata_location == before


def test_values_of_queries_are_not_printed_unless_asked(cli, scattered, tmp_path):
    log = tmp_path / "q.jsonl"
    rows = [
        {"sql": f"select id from {'.'.join(scattered.name())} where pad = 'sEcReT{n}'",
         "timestamp": f"2026-11-{7 + n // 24:02d}T{n % 24:02d}:00:00Z"}
        for n in range(100)
    ]  # fmt: skip
    log.write_text("\n".join(json.dumps(row) for row in rows))
    cli("workload", "import", str(log))
    for arguments in (["plan"], ["plan", "-o", "json"], ["plan", "-o", "markdown"], ["explain"]):
        code, out, err = cli(arguments[0], name_of(scattered), *arguments[1:])
        assert code == 0
        assert "sEcReT" not in out + err
    assert "sEcReT" in cli("plan", name_of(scattered), "--show-literals")[1]


def test_many_tables_get_a_line_each_and_one_failure_hides_none(cli, scattered, tmp_path, said):
    good = policy_file(tmp_path / "good.yaml", scattered, **declared("day"))
    code, out, _ = cli("plan", "-f", good)
    assert code == 0
    assert out.splitlines()[0].split() == [
        "TABLE", "ACTIONS", "REWRITE", "CPU", "READ/DAY", "PAYBACK", "STATE",
    ]  # fmt: skip
    assert "AwaitingApproval" in out
    bad = policy_file(tmp_path / "bad.yaml", scattered, **declared("nokey"))
    code, _, err = cli("plan", "-f", bad)
    assert code == 1
    said(err)


def test_one_file_for_several_tables_is_refused_before_any_is_planned(
    cli, scattered, iceberg_catalog, tmp_path, monkeypatch, said
):
    namespace, name = scattered.name()
    iceberg_catalog.create_table(f"{namespace}.{name}b", scattered.schema())
    policy = policy_file(tmp_path / "p.yaml", scattered, tables={"include": [f"cli.{name}*"]})
    planned = []
    propose = Step.propose

    def counted(step: Step, *arguments: Any, **options: Any) -> Any:
        planned.append(step.target.identifier)
        return propose(step, *arguments, **options)

    monkeypatch.setattr(Step, "propose", counted)
    code, _, err = cli("plan", "-f", policy, "--out", "plan.json")
    assert code == 1
    said(err)
    assert f"cli.{name}, cli.{name}b" in err
    assert (planned, Path("plan.json").exists()) == ([], False)
    assert cli("plan", "-f", policy, "--select", f"cli.{name}", "--out", "plan.json")[0] == 0
    assert planned == [("cli", name)]
    assert json.loads(Path("plan.json").read_text())["table"] == ["cli", name]


def test_a_plan_that_was_to_be_saved_and_cannot_be_made_says_why(cli, scattered, tmp_path, said):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("nokey"))
    code, _, err = cli("plan", "-f", policy, "--out", "plan.json")
    assert code == 1
    said(err)
    assert not Path("plan.json").exists()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (declared("day", budgets=[{"name": "z", "per": "24h", "maxRewriteBytes": "0"}]),
         "OverBudget"),
        (declared("day", suspend=True), "Suspended"),
        (declared("day", approval={"mode": "Manual",
                                   "automaticUpTo": {"rewriteBytes": "1Ki"}}), "automaticUpTo"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_said_and_the_table_stays(cli, scattered, tmp_path, spec, reason):
    policy = policy_file(tmp_path / "p.yaml", scattered, **spec)
    before = scattered.refresh().metadata_location
    asked = ["--yes"] if "budgets" in spec else []
    code, out, err = cli("apply", name_of(scattered), "-f", policy, *asked)
    assert code == 3
    assert reason in out + err
    assert scattered.refresh().metadata_location == before


@pytest.mark.parametrize("key", ["nokey", "m"])
def test_a_key_that_cannot_be_ordered_by_is_refused_and_the_table_stays(
    cli, scattered, tmp_path, said, key
):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared(key))
    before = scattered.refresh().metadata_location
    code, _, err = cli("apply", name_of(scattered), "-f", policy)
    assert code == 1
    said(err)
    assert scattered.refresh().metadata_location == before


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The process gets the signal while it plans."""

    def arrange(number: int) -> None:
        propose = Step.propose

        def after_the_signal(self: Step, *args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(Step, "propose", propose)
            os.kill(os.getpid(), number)
            return propose(self, *args, **kwargs)

        monkeypatch.setattr(Step, "propose", after_the_signal)

    return arrange


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("option", ["--yes", "--until-converged"])
def test_a_signal_before_the_first_commit_ends_as_interrupted(
    cli, scattered, tmp_path, signalled, number, option, said
):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    before = scattered.refresh().metadata_location
    signalled(number)
    code, out, _ = cli("apply", name_of(scattered), "-f", policy, option, "--auto-approve")
    assert code == 130
    said(out.splitlines()[0])
    assert scattered.refresh().metadata_location == before


def test_a_signal_that_cuts_nothing_short_changes_no_exit_code(
    cli, scattered, iceberg_catalog, tmp_path, signalled
):
    both = _two_tables(tmp_path / "p.yaml", scattered, iceberg_catalog)
    signalled(signal.SIGINT)
    assert cli("apply", f"{name_of(scattered)}_b", "-f", both, "--yes")[0] == 0
    waits = policy_file(tmp_path / "q.yaml", scattered, **declared("day"), suspend=True)
    signalled(signal.SIGINT)
    assert cli("apply", name_of(scattered), "-f", waits, "--yes")[0] == 3


def test_tables_that_a_signal_left_out_count_as_interrupted(
    cli, scattered, iceberg_catalog, tmp_path, signalled
):
    policy = _two_tables(tmp_path / "p.yaml", scattered, iceberg_catalog)
    signalled(signal.SIGTERM)
    code, out, _ = cli("apply", "-f", policy, "--yes", "-o", "json")
    assert code == 130
    assert len(json.loads(out)["items"]) == 1


def test_a_claimed_table_is_left_alone_even_when_approved(cli, scattered, tmp_path):
    scattered.transaction().set_properties(
        {"layout.owner": "cluster-a/analytics"}
    ).commit_transaction()
    code, out, _ = cli("apply", name_of(scattered), "--yes")
    assert code == 3
    assert "OwnedElsewhere" in out and "cluster-a/analytics" in out


def test_a_catalog_that_takes_no_commits_is_one_error_and_no_conflict(
    cli, scattered, tmp_path, catalog_config, said
):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    properties = dict(catalog_config.properties)
    path = properties["uri"].partition("?")[0].removeprefix("sqlite:///")
    properties["uri"] = f"sqlite:///file:{path}?mode=ro&uri=true"
    home = Path(os.environ["PYICEBERG_HOME"])
    (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"rec": properties}}))
    code, out, err = cli("apply", name_of(scattered), "-f", policy, "--auto-approve")
    assert code == 1
    said(err[err.index("error: ") :])
    assert "conflict" not in out + err


@pytest.mark.spark
def test_a_saved_plan_that_is_done_runs_no_other(cli, with_spark, scattered, tmp_path):
    """What was reviewed is what runs, and --yes approves no plan that it does not show."""
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    assert cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")[0] == 0
    assert cli("apply", "plan.json", "--yes")[0] == 0
    rows = scattered.refresh().scan().to_arrow()
    for number in range(8):
        scattered.append(rows.slice(number * 500, 1_000))
    before = scattered.refresh().metadata_location
    code, out, err = cli("apply", "plan.json", "--yes")
    assert (code, scattered.refresh().metadata_location) == (0, before)
    assert json.loads(Path("plan.json").read_text())["planId"] in err and "1 action" in out
    code, out, err = cli("apply", "plan.json", "--yes", "--until-converged")
    assert (code, scattered.refresh().metadata_location) == (3, before)
    assert "AwaitingApproval" in out
    code, out, _ = cli("apply", "plan.json", "--auto-approve", "--until-converged")
    assert code == 0 and scattered.refresh().metadata_location != before


def _of_one_file(path: str) -> Any:
    """The engine fails by an error of its own where it reads the first column of one file."""
    honest = Opened.live

    def failing(self: Opened, *given: Any) -> Any:
        if self.file.path == path:
            raise OverflowError("date value out of range")
        return honest(self, *given)

    return Opened, "live", failing


def _without_memory(error: Exception) -> Callable[[str], Any]:
    def made(_: str) -> Any:
        def failing(*_: Any) -> Any:
            raise error

        return write.FileWriter, "write", failing

    return made


def _unseen(path: str) -> Any:
    """DuckDB has too little memory for one of the files."""
    honest = Witness._fingerprint

    def failing(self: Witness, files: Any, hashed: bool) -> Any:
        if any(file.path == path for file in files):
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate 1.0 GiB")
        return honest(self, files, hashed)

    return Witness, "_fingerprint", failing


RUNS_THAT_FAIL = {
    "an error at one file": (_of_one_file, FAILED, False),
    "an error anywhere": (_without_memory(OverflowError("a date")), FAILED, True),
    "memory of the engine": (_without_memory(MemoryError("malloc failed")), OUT_OF_MEMORY, True),
    "memory of the witness": (_unseen, OUT_OF_MEMORY, False),
}


@pytest.mark.spark
@pytest.mark.parametrize("fault", RUNS_THAT_FAIL)
def test_what_an_execution_finds_out_is_not_planned_again(
    cli, with_spark, scattered, tmp_path, monkeypatch, fault
):
    """Each run would fail again: until files, version or memory change, plans leave them out."""
    make, reason, every = RUNS_THAT_FAIL[fault]
    policy, name = (
        policy_file(tmp_path / "p.yaml", scattered, **declared("day")),
        name_of(scattered),
    )
    assert cli("plan", "-f", policy, name, "--out", "plan.json")[0] == 0
    inputs = [p for a in json.loads(Path("plan.json").read_text())["actions"] for p in a["inputs"]]
    head = scattered.refresh().current_snapshot().snapshot_id
    with monkeypatch.context() as patched:
        patched.setattr(*make(inputs[0]))
        # Its threads move the rows, so that they meet the fault.
        code, _, err = cli("apply", "plan.json", "-f", policy, "--yes", "--engine", "Spark")
        assert code in (EXIT_INTERNAL, EXIT_UNAVAILABLE), err
    assert scattered.refresh().current_snapshot().snapshot_id == head
    cli("plan", "-f", policy, name, "--out", "again.json")
    again = json.loads(Path("again.json").read_text())
    left = {path for action in again["actions"] for path in action.get("inputs", ())}
    assert left.isdisjoint(inputs if every else inputs[:1])
    assert every or left >= set(inputs[1:])
    shown = " ".join(cli("explain", "-f", policy, name)[1].split())
    assert REFUSED_FILES in shown and REMEDIES[reason] in shown


def test_the_plan_shows_what_apply_would_refuse(cli, scattered, tmp_path):
    with scattered.transaction() as change:
        change.set_properties({"write.wap.enabled": "true"})
    scattered.manage_snapshots().create_branch(
        scattered.current_snapshot().snapshot_id, "audit"
    ).commit()
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    _, out, _ = cli("plan", "-f", policy, name_of(scattered))
    (refused,) = [line for line in out.splitlines() if line.startswith("Refused: ")]
    assert "branch audit" in refused
    _, out, _ = cli("status", "-f", policy)
    assert "branch audit" in " ".join(out.split())
    allowed = declared("day", safety={"allowLiveBranches": True})
    policy = policy_file(tmp_path / "p.yaml", scattered, **allowed)
    assert "Refused" not in cli("plan", "-f", policy, name_of(scattered))[1]


def test_the_plan_says_that_its_batches_are_checked_on_a_branch(cli, scattered, tmp_path):
    audit = {"branch": "trial", "check": "SELECT 1 FROM {table} WHERE false"}
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day", safety=audit))
    for output in ("table", "markdown"):
        _, out, _ = cli("plan", "-f", policy, "-o", output, name_of(scattered))
        assert "branch trial" in " ".join(out.split())


@pytest.mark.spark
def test_what_waits_on_a_branch_is_published_by_a_plan_that_a_person_saved(
    cli, scattered, tmp_path, with_spark
):
    results = {"branch": "candidate", "approval": "Required"}
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day", safety=results))
    head, rows = scattered.current_snapshot().snapshot_id, scattered.scan().to_arrow().num_rows
    apply = ("apply", name_of(scattered), "-f", policy, "--yes")
    code, out, _ = cli(*apply)
    assert code == 3 and "AwaitingApproval" in out and "candidate" in scattered.refresh().refs()
    (saving, publishing) = [line for line in out.splitlines() if "layoutctl" in line][-2:]
    assert cli(*apply)[0] == cli(*apply, "--auto-approve", "--until-converged")[0] == 3
    assert scattered.refresh().current_snapshot().snapshot_id == head
    code, out, _ = cli("status", "-f", policy)
    assert "AwaitingApproval" in out
    for line in (saving, publishing):
        code, out, err = cli(*shlex.split(line[line.index("layoutctl") :])[1:])
        assert code == 0, err
    assert "candidate" not in scattered.refresh().refs()
    assert scattered.current_snapshot().snapshot_id != head
    assert scattered.scan().to_arrow().num_rows == rows


def test_a_stale_plan_is_not_run(cli, scattered, tmp_path, said):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    assert cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")[0] == 0
    scattered.refresh().overwrite(scattered.scan().to_arrow())
    before = scattered.refresh().metadata_location
    code, _, err = cli("apply", "plan.json", "--yes")
    assert code == 1
    said(err)
    assert scattered.refresh().metadata_location == before


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (declared("day", budgets=[{"name": "z", "per": "24h", "maxRewriteBytes": "0"}]),
         "OverBudget"),
        (declared("day", suspend=True), "Suspended"),
    ],
)  # fmt: skip
def test_a_saved_plan_carries_the_limits_it_was_made_under(cli, scattered, tmp_path, spec, says):
    policy = policy_file(tmp_path / "p.yaml", scattered, **spec)
    assert cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")[0] == 0
    before = scattered.refresh().metadata_location
    code, out, _ = cli("apply", "plan.json", "--yes")
    assert code == 3
    assert says in out
    assert scattered.refresh().metadata_location == before


def test_the_printed_commands_carry_out_the_plan_although_its_catalog_came_by_f(
    cli, scattered, tmp_path, catalog_config
):
    documents = tmp_path / "my layouts"
    documents.mkdir()
    properties = {k: v for k, v in catalog_config.properties.items() if k != "type"}
    catalog = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "IcebergCatalog",
        "metadata": {"name": "rec"},
        "spec": {"type": "sql", "catalogName": "rec", "properties": properties},
    }
    (documents / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    policy_file(documents / "p.yaml", scattered, **declared("day", suspend=True))
    (tmp_path / "home" / ".pyiceberg.yaml").unlink()
    code, out, err = cli("plan", name_of(scattered), "-f", str(documents))
    assert code == 0, err
    words = {line.split(":")[0].strip(): shlex.split(line.split(":", 1)[1])[1:]
             for line in out.splitlines() if re.match(r" *(save|run):", line)}  # fmt: skip
    assert cli(*words["save"])[0] == 0
    code, out, err = cli(*words["run"], "--yes")
    assert (code, "Suspended" in out) == (3, True), err


def _status(cli, *arguments):
    code, out, err = cli("status", *arguments, "-o", "json")
    assert code == 0, err
    (row,) = json.loads(out)["items"]
    return row


def test_a_state_lasts_since_its_cause_and_not_since_somebody_looked(cli, scattered, tmp_path):
    name = name_of(scattered)
    written = scattered.refresh().current_snapshot().timestamp_ms
    files = {"minInputFiles": 100}
    resting = {"layout": {"clustering": {"mode": "None"}, "files": files}}
    idle = policy_file(tmp_path / "idle.yaml", scattered, **resting)
    row = _status(cli, name, "-f", idle)
    assert (row["state"], row["since"]) == ("Converged", utc(written))
    asked = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    row = _status(cli, name, "-f", asked)
    assert (row["reason"], row["since"]) == ("AwaitingApproval", utc(written))
    assert cli("plan", name, "-f", asked, "--out", "plan.json")[0] == 0
    created = json.loads(Path("plan.json").read_text())["createdAt"]
    assert _status(cli, name, "-f", asked)["since"] == created
    held = policy_file(tmp_path / "held.yaml", scattered, **declared("day", suspend=True))
    row = _status(cli, name, "-f", held)
    assert (row["reason"], row["since"]) == ("Suspended", None)
    assert cli("status", name, "-f", held)[1].splitlines()[1].split()[-1] == "-"


def test_apply_reports_its_snapshots_and_no_step_where_nothing_was_to_do(cli, scattered, tmp_path):
    files = {"minInputFiles": 100}
    resting = {"layout": {"clustering": {"mode": "None"}, "files": files}}
    idle = policy_file(tmp_path / "idle.yaml", scattered, **resting)
    code, out, err = cli("apply", name_of(scattered), "-f", idle, "--yes", "-o", "json")
    assert code == 0, err
    report, head = json.loads(out), str(scattered.refresh().current_snapshot().snapshot_id)
    assert (report["state"], report["steps"], report["snapshotId"]) == ("Converged", [], head)
    assert cli("apply", "-f", idle, "--yes", "--machine-gone")[0] == 1, "it names no table"
    _, _, err = cli("apply", name_of(scattered), "-f", idle, "--yes", "--machine-gone")
    assert "--machine-gone" in err
    held = policy_file(tmp_path / "held.yaml", scattered, **declared("day", suspend=True))
    code, out, _ = cli("apply", name_of(scattered), "-f", held, "--yes", "-o", "json")
    (step,) = json.loads(out)["steps"]
    assert (code, step["reason"], step["baseSnapshotId"]) == (3, "Suspended", head)
    assert step["committedSnapshotIds"] == []


def test_a_plan_that_stands_is_saved_with_the_policy_that_governs_it_now(cli, scattered, tmp_path):
    """Its id covers what is done, not whose budgets hold."""
    path, name = tmp_path / "p.yaml", name_of(scattered)
    policy_file(path, scattered, **declared("day"))
    code, out, _ = cli("plan", name, "-f", path, "--out", "first.json")
    assert code == 0
    assert "apply first.json" in out
    assert "--out" not in out
    assert f"layoutctl plan {name} -f {path} --out" in cli("plan", name, "-f", path)[1]
    limits = {"budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "1Ki"}]}
    policy_file(path, scattered, **declared("day", **limits))
    assert cli("plan", name, "-f", path, "--out", "second.json")[0] == 0
    first, second = (json.loads(Path(p).read_text()) for p in ("first.json", "second.json"))
    assert first["planId"] == second["planId"]
    before = scattered.refresh().metadata_location
    code, out, _ = cli("apply", "second.json", "--yes")
    assert code == 3
    assert "daily" in out
    assert scattered.refresh().metadata_location == before


def test_predictions_cannot_be_edited_below_what_needs_no_approval(cli, scattered, tmp_path):
    approval = {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "1Ki"}}
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day", approval=approval))
    cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")
    body = json.loads(Path("plan.json").read_text())
    body["actions"][0]["predicted"]["bytesIn"] = 1
    Path("plan.json").write_text(json.dumps(body))
    code, _, err = cli("apply", "plan.json")
    assert code == 1
    assert "digest" in err


def test_a_frozen_plan_holds_no_values_of_queries(cli, scattered, tmp_path, said):
    code, _, err = cli("plan", name_of(scattered), "--show-literals", "--out", "plan.json")
    assert code == 1
    said(err)
    assert not Path("plan.json").exists()


def test_an_edited_plan_is_refused(cli, scattered, tmp_path, said):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    cli("plan", name_of(scattered), "-f", policy, "--out", "plan.json")
    body = json.loads(Path("plan.json").read_text())
    body["actions"][0]["inputs"].pop()
    Path("plan.json").write_text(json.dumps(body))
    code, _, err = cli("apply", "plan.json", "--yes")
    assert code == 1
    said(err)


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"kind": "LayoutPlan"}', ""])
def test_garbage_is_not_a_plan(cli, tmp_path, content):
    Path("plan.json").write_text(content)
    code, _, err = cli("apply", "plan.json", "--yes")
    assert code == 1
    assert "plan" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "rec.cli.no_such_table"),
        ("plan", "rec.nowhere.t"),
        ("plan", "nothing"),
        ("plan",),
        ("plan", "-f", "missing.yaml"),
        ("apply", "missing.json"),
        ("status", "rec.cli.no_such_table"),
        ("history", "rec.cli.no_such_table"),
        ("explain", "rec.cli.no_such_table"),
        ("init", "rec.cli.no_such_table"),
        ("plan", "a.b.c", "--catalog", "other"),
        ("plan", "--no-such-option"),
        ("no-such-verb",),
    ],
)
def test_a_users_mistake_is_one_message_with_what_to_do(cli, scattered, arguments):
    code, _, err = cli(*arguments)
    assert code == 1
    assert "error: " in err or "no_such_table" in err


def test_a_table_that_cannot_be_planned_stalls_with_the_operators_reasons(
    cli, scattered, tmp_path, monkeypatch
):
    name, layouts = (
        name_of(scattered),
        policy_file(tmp_path / "p.yaml", scattered, **declared("nope")),
    )
    code, out, _ = cli("status", "-f", layouts, "-o", "json")
    (row,) = json.loads(out)["items"]
    assert (code, row["state"], row["reason"]) == (1, "Stalled", "KeyNotFound")
    assert "Stalled" in cli("status", "-f", layouts)[1]
    manifest = own_manifest(scattered)
    Path(manifest.removeprefix("file://")).unlink()
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "another"))
    (row,) = json.loads(cli("status", name, "-o", "json")[1])["items"]
    assert (row["state"], row["reason"]) == ("Stalled", "TableDamaged")


def test_a_state_that_cannot_be_used_is_not_reported_as_a_damaged_table(
    cli, scattered, tmp_path, monkeypatch, said
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYOUTCTL_STATE", str(tmp_path / "file" / "state"))
    code, out, err = cli("status", name_of(scattered))
    assert (code, out) == (1, "")
    assert "LAYOUTCTL_STATE" in err
    said(err)


def test_an_objective_that_fails_is_named_where_nothing_is_to_be_done(cli, scattered, tmp_path):
    spec = {
        "objectives": {"maxFileCount": 1},
        "layout": {"files": {"minInputFiles": 100}, "clustering": {"mode": "None"}},
    }
    layouts = policy_file(tmp_path / "p.yaml", scattered, **spec)
    code, out, _ = cli("plan", name_of(scattered), "-f", layouts, "--detailed-exitcode")
    assert code == 0
    assert re.search(r"^ +maxFileCount +\d+ .*\b1\b", out, re.M)
    (row,) = json.loads(cli("status", "-f", layouts, "-o", "json")[1])["items"]
    assert row["reason"] == "ObjectiveUnreachable"
    assert row["message"].startswith("maxFileCount: ")


def test_a_dead_catalog_is_worth_a_retry(cli, monkeypatch, said):
    monkeypatch.setenv("PYICEBERG_CATALOG__DEAD__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEAD__URI", "http://127.0.0.1:9")
    code, _, err = cli("plan", "dead.a.b", "--timeout", "5")
    assert code == 5
    said(err)


def test_a_corrupt_manifest_is_named(cli, scattered):
    manifest = own_manifest(scattered)
    Path(manifest.removeprefix("file://")).write_bytes(b"not avro")
    code, _, err = cli("plan", name_of(scattered))
    assert code in (1, 4)
    assert manifest.rsplit("/", 1)[1] in err


def test_init_prints_a_policy_that_validates(cli, scattered):
    code, out, _ = cli("init", name_of(scattered))
    assert code == 0
    Path("made.yaml").write_text(out)
    assert cli("validate", "made.yaml")[0] == 0
    assert cli("plan", name_of(scattered), "-f", "made.yaml")[0] == 0


def test_explain_shows_why_a_file_is_rewritten(cli, scattered, tmp_path, said):
    policy = policy_file(tmp_path / "p.yaml", scattered, **declared("day"))
    _, body, _ = cli("plan", name_of(scattered), "-f", policy, "-o", "json")
    action = json.loads(body)["actions"][0]
    path = action["inputs"][0]
    code, out, _ = cli("explain", name_of(scattered), "-f", policy, "--data-file", path)
    assert code == 0
    assert action["predicted"]["label"] in out
    code, _, err = cli("explain", name_of(scattered), "--data-file", "no-such-file")
    assert code == 1
    said(err)


@pytest.mark.parametrize(
    ("done", "state", "code"),
    [(True, "Converged", 0), (False, "Converged", 0), (False, "Pending", 5), (False, "Idle", 5),
     (False, "Waiting", 5)],
)  # fmt: skip
def test_a_conflict_that_left_nothing_to_do_is_not_a_failure(
    done: bool, state: str, code: int, monkeypatch: pytest.MonkeyPatch
):
    """Whoever replaced the rows meanwhile may have laid them out well, or begun a quiet period."""
    begun = 2 if state == "Waiting" else 1
    monkeypatch.setattr(apply_result, "_waiting", lambda proposal: begun if proposal is None else 1)
    state = "Converged" if state == "Waiting" else state
    run = SimpleNamespace(
        steps=[SimpleNamespace(result=SimpleNamespace(done=done, waiting=()))],
        until_converged=True,
        done_before=False,
    )  # fmt: skip
    result = SimpleNamespace(
        state=SimpleNamespace(state=state, reason=""), gate=SimpleNamespace(count=0),
        before=SimpleNamespace(pending=()), after=None,
    )  # fmt: skip
    assert apply_result.exit_code(cast(Any, run), cast(Any, result)) == code


@pytest.mark.parametrize(
    ("totals", "files"),
    [([{"name": "read", "now": 7, "after": 1}, {"name": "data files", "now": 7, "after": 3}], 3),
     ([{"name": "data files", "now": 7, "after": None}], None),
     ([{"name": "data files", "now": 7}], None), ([], None)],
)  # fmt: skip
def test_files_that_a_plan_does_not_predict_are_unknown(
    totals: list[dict[str, Any]], files: int | None
) -> None:
    """The files are counted after the commit: a document that says null must not fail there."""
    before = SimpleNamespace(plan=SimpleNamespace(evidence={"totals": totals}))
    assert apply_result._files_predicted(cast(Any, before)) == files
