"""The CI recipe, run: its scripts with the real layoutctl, curl and jq, and a GitHub of our own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.github_api import TOKEN, GitHubHandler
from tests.said import Said

RECIPE = Path(__file__).parents[2] / "docs" / "operations" / "ci"
MARKER = "<!-- layoutctl:plan"
OF_OURS = "steps.head.outputs.repository == github.repository"
"""The condition of a step that a pull request from a fork must not reach."""

needs_tools = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="the recipe needs curl and jq"
)


HIDDEN = "text of a comment that the caller may not see"


class GitHub:
    """Comments of one pull request, over HTTP, 100 a page; `failing`: answers 500 to writes. place,
    one: paths of all comments, and of one."""

    place = "/repos/data/layouts/issues/7/comments"
    one = "/repos/data/layouts/issues/comments"

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.failing = False
        self.writes = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """What the script needs to find this server."""
        return {
            "GITHUB_API_URL": self.url,
            "GITHUB_TOKEN": TOKEN,
            "COMMENT_USER": "ci",
            "GITHUB_REPOSITORY": "data/layouts",
            "PULL_REQUEST": "7",
        }

    def say(self, body: str, user: str = "ci") -> None:
        number = 1000 + len(self.comments)
        names = {"user": {"login": user}, "author": {"username": user}}
        self.comments.append({"id": number, "body": body, **names})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class GitLab(GitHub):
    """Notes of a merge request."""

    place = one = "/projects/5/merge_requests/7/notes"

    def environment(self) -> dict[str, str]:
        return {
            "CI_API_V4_URL": self.url,
            "GITLAB_TOKEN": TOKEN,
            "COMMENT_USER": "ci",
            "CI_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7",
        }


def _handler(github: GitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(GitHubHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            page = int(parse_qs(parts.query)["page"][0])
            assert parts.path == github.place
            found = github.comments[(page - 1) * 100 : page * 100]
            self.answer(200, [one for one in found if one["body"] != HIDDEN])

        def do_POST(self) -> None:
            self._write(self._body(), None)

        def do_PATCH(self) -> None:
            found = re.fullmatch(rf"{github.one}/(\d+)", self.path)
            assert found
            self._write(self._body(), int(found[1]))

        do_PUT = do_PATCH

        def _body(self) -> str:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            return str(json.loads(raw)["body"])

        def _write(self, body: str, number: int | None) -> None:
            github.writes += 1
            if github.failing:
                self.answer(422, {"message": "no"})
                return
            if number is None:
                github.say(body)
            else:
                (comment,) = [c for c in github.comments if c["id"] == number]
                comment["body"] = body
            self.answer(200, {})

    return Handler


@pytest.fixture(params=[GitHub, GitLab])
def github(request: pytest.FixtureRequest) -> Iterator[GitHub]:
    server: GitHub = request.param()
    yield server
    server.stop()


def comment(github: GitHub, file: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **github.environment(), "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        ["sh", str(RECIPE / "comment.sh"), str(file)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.md"
    path.write_text(f'{MARKER} p-1 -->\n## 3 tables, "quoted" \\ and `code`\n\n| a | é |\n')
    return path


@needs_tools
def test_the_first_run_makes_one_comment_with_the_very_text(github: GitHub, plan: Path) -> None:
    done = comment(github, plan)
    assert done.returncode == 0, done.stderr
    assert [c["body"] for c in github.comments] == [plan.read_text()]


@needs_tools
@pytest.mark.parametrize("others", [0, 1, 99, 100, 230])
def test_later_runs_replace_it_however_much_was_reported_before(
    github: GitHub, plan: Path, others: int
) -> None:
    for number in range(others):
        github.say(f"remark {number}: see {MARKER} above" if number % 2 else "")
    github.say(HIDDEN)
    github.say(f"{MARKER} p-0 -->\nforged", "mallory")
    github.say(f"{MARKER} p-0 -->\nolder")
    github.say("thanks")
    assert comment(github, plan).returncode == 0
    assert comment(github, plan).returncode == 0
    marked = [c["body"] for c in github.comments if c["body"].startswith(MARKER)]
    assert marked == [f"{MARKER} p-0 -->\nforged", plan.read_text()]
    assert len(github.comments) == others + 4


@needs_tools
def test_a_text_without_the_marker_is_never_sent(
    github: GitHub, tmp_path: Path, said: Said
) -> None:
    file = tmp_path / "plan.md"
    file.write_text("error: catalog is down\n")
    done = comment(github, file)
    assert done.returncode == 1
    said(done.stderr)
    assert github.writes == 0


@needs_tools
def test_a_refusal_of_the_server_fails_the_step(github: GitHub, plan: Path) -> None:
    github.failing = True
    assert comment(github, plan).returncode != 0
    assert github.comments == []


# plan.sh


POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales}
spec:
  catalogRef: {name: lake}
  tables: {include: ["sales.*"]}
"""


def run_plan(directory: Path, *base: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a directory with layouts/, with a SQLite catalog there."""
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["sh", str(RECIPE / "plan.sh"), "layouts", "out", *base],
        cwd=directory,
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "LAYOUTCTL_STATE": str(directory / "state"),
            "LAYOUTCTL_CACHE": str(directory / "cache"),
            "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{directory}/catalog.db",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"file://{directory}/warehouse",
            **environment,
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def small_files(directory: Path, count: int = 12) -> None:
    """A table sales.orders of many small files."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse"
    )
    catalog.create_namespace("sales")
    rows = pa.table({"id": pa.array(range(1000), pa.int64())})
    table = catalog.create_table("sales.orders", rows.schema)
    for _ in range(count):
        table.append(rows)


def test_the_plan_begins_with_the_line_that_the_comment_is_found_by(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "sales.yaml").write_text(POLICY)
    small_files(tmp_path)
    done = run_plan(tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "plan.md").read_text()
    assert text.startswith(MARKER)
    assert "sales.orders" in text


def test_the_comment_says_what_the_change_does_against_its_base(tmp_path: Path) -> None:
    for name in ("layouts", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sales.yaml").write_text(POLICY)
    small_files(tmp_path)
    verdicts = []
    for base in ("base", "nowhere"):
        done = run_plan(tmp_path, base)
        assert done.returncode == 0, done.stderr
        comment = (tmp_path / "out" / "plan.md").read_text()
        verdicts += re.findall(r"^\*\*Against the base:\*\* (\w+)", comment, re.M)
    assert verdicts == ["same", "new"]
    (tmp_path / "base" / "sales.yaml").write_text("kind: [")
    assert run_plan(tmp_path, "base").returncode == 1


def test_a_wrong_document_fails_the_step_before_anything_is_planned(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "sales.yaml").write_text(POLICY.replace("include", "inculde"))
    done = run_plan(tmp_path)
    assert done.returncode == 1
    assert "sales.yaml:6" in done.stdout + done.stderr
    assert not (tmp_path / "out" / "plan.md").exists()


# The workflow


def test_the_workflow_runs_the_scripts_and_guards_the_credential() -> None:
    workflow = yaml.safe_load((RECIPE / "github-actions.yaml").read_text())
    nightly = yaml.safe_load((RECIPE / "github-recommend.yaml").read_text())
    approving = yaml.safe_load((RECIPE / "github-approve.yaml").read_text())
    steps = [step for each in (workflow, nightly, approving) for job in each["jobs"].values()
             for step in job["steps"]]  # fmt: skip
    scripts = {
        found for step in steps for found in re.findall(r"ci/(\S+\.sh)", step.get("run", ""))
    }
    assert scripts == {path.name for path in RECIPE.glob("*.sh")}
    for job in workflow["jobs"].values():
        if "secrets." in json.dumps(job):
            assert "head.repo.full_name == github.repository" in job["if"]
    shown = workflow["jobs"]["plan"]["steps"][-1]  # also if one table could not be planned
    assert "!cancelled()" in shown["if"] and "out/plan.md" in shown["if"]
    for step in approving["jobs"]["approve"]["steps"]:
        if "secrets." in json.dumps(step) or "head" in str(step.get("with", {}).get("path")):
            assert step["if"] == OF_OURS
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request" not in nightly[True]  # YAML reads the key `on` as true
