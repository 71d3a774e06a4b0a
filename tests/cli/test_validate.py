"""`layoutctl validate` and `layoutctl schema` as a person or a pipeline calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.said import Said

GOOD = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales}
spec:
  catalogRef: {name: warehouse}
  tables: {include: [sales.lineitem]}
"""
BAD = GOOD.replace("lineitem", "orders") + "  layout:\n    clustering:\n      mode: WorkloadAwre\n"


def layoutctl(
    *arguments: str, cwd: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reconciler.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=stdin, timeout=60)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "a.yaml").write_text(GOOD)
    return tmp_path


def test_valid_documents_are_one_quiet_line(here: Path) -> None:
    done = layoutctl("validate", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 policy valid in 1 file\n", "")


def test_problems_go_to_stderr_with_an_excerpt_and_exit_1(here: Path) -> None:
    (here / "layouts" / "b.yaml").write_text(BAD.replace("name: sales}", "name: b}"))
    done = layoutctl("validate", "layouts", cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    first, line, hint = done.stderr.splitlines()[:3]
    assert first.split(": ")[:3] == ["error", "layouts/b.yaml:9", "spec.layout.clustering.mode"]
    assert '"WorkloadAwre"' in first and line.endswith("mode: WorkloadAwre")
    assert hint.index("^") == line.index("WorkloadAwre") and "WorkloadAware" in hint
    assert "Traceback" not in done.stderr


def test_warnings_do_not_fail_and_are_counted(here: Path, said: Said) -> None:
    (here / "layouts" / "a.yaml").write_text(GOOD + "  engine: {maxConcurrentJobs: 3}\n")
    done = layoutctl("validate", "-f", "layouts/a.yaml", cwd=here)
    assert (done.returncode, done.stdout) == (0, "1 policy valid in 1 file; 1 warning\n")
    said(done.stderr)


def test_a_catalog_that_is_not_configured_is_a_warning(
    here: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("", "lake"), ("__TYPE", "rest"), ("__URI", "http://127.0.0.1:1")):
        monkeypatch.setenv(f"LAYOUTCTL_CATALOG{name}", value)
    done = layoutctl("validate", cwd=here)
    assert (done.returncode, done.stdout) == (0, "1 policy valid in 1 file; 1 warning\n")
    said(done.stderr)
    monkeypatch.setenv("LAYOUTCTL_CATALOG", "warehouse")
    done = layoutctl("validate", cwd=here)
    assert (done.stdout, done.stderr) == ("1 policy valid in 1 file\n", "")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_machine_readable_results(here: Path, form: str, said: Said) -> None:
    (here / "layouts" / "b.yaml").write_text(BAD.replace("name: sales}", "name: b}"))
    done = layoutctl("validate", "layouts", "-o", form, cwd=here)
    body = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert (body["apiVersion"], body["kind"]) == (
        "layout.lakehouse.dev/v1alpha1",
        "ValidationResult",
    )
    assert body["valid"] is False
    assert [document["name"] for document in body["documents"]] == ["sales"]
    (problem,) = body["problems"]
    words = (problem.pop("message"), problem.pop("hint"))
    assert problem == {
        "severity": "error", "file": "layouts/b.yaml", "line": 9, "column": 13,
        "field": "spec.layout.clustering.mode",
    }  # fmt: skip
    said("\n".join(words))


def test_standard_input_is_read(here: Path) -> None:
    done = layoutctl("validate", "-", cwd=here, stdin=BAD)
    assert done.returncode == 1 and done.stderr.startswith("error: <stdin>:9: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nowhere"], "nowhere"),
        (["validate", "-o", "xml"], "xml"),
        (["validate", "--nonsense"], "nonsense"),
        (["schema", "Deployment"], "Deployment"),
    ],
)
def test_wrong_calls_exit_1_with_one_message(
    here: Path, arguments: list[str], message: str
) -> None:
    done = layoutctl(*arguments, cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr and "Traceback" not in done.stderr


def test_without_paths_and_without_a_directory_it_says_what_to_do(
    tmp_path: Path, said: Said
) -> None:
    done = layoutctl("validate", cwd=tmp_path)
    assert done.returncode == 1
    said(done.stderr)


@pytest.mark.parametrize("kind", ["TableLayoutPolicy", "tlp", "tablelayoutpolicies"])
def test_schema_prints_json_schema_by_any_name_of_a_kind(tmp_path: Path, kind: str) -> None:
    done = layoutctl("schema", kind, cwd=tmp_path)
    body = json.loads(done.stdout)
    assert done.returncode == 0 and body["title"] == "TableLayoutPolicy"
    assert body["properties"]["spec"]["additionalProperties"] is False


def test_validate_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom reconciler.api.load import read\nimport reconciler.cli.validate\n"
        "heavy = {'jsonschema', 'pyiceberg', 'pyarrow', 'pyspark', 'numpy', 'sqlglot', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("arguments", ["--help", "plan --help", "schema"])
def test_a_reader_that_goes_away_is_no_error(arguments: str) -> None:
    command = f"{sys.executable} -m reconciler.cli.main {arguments}"
    shell = f"{command} | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
