"""`layoutctl review` against servers that answer as GitHub's and GitLab's documented APIs do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reconciler.plan.review import MARKER
from reconciler.state.shared_backend import DEFAULT_NAMESPACE
from reconciler.state.shared_state import SharedStore
from tests.cli.in_process import Cli
from tests.cli.test_plan_apply import cli, declared, name_of, policy_file

__all__ = ["cli"]

TOKEN = "token-that-is-secret"
HEAD = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
SHOWN_BY = "layouts-bot"


class Forge:
    """answers: by path, the whole list or object. asked: paths, in order. raw: (status, headers,
    body) by path, instead of an answer. hidden: ids of items that the caller may not see."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.raw: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.hidden: set[int] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


def _handler(forge: Forge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            forge.asked.append(parts.path)
            mine = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            mine = mine or self.headers.get("PRIVATE-TOKEN") == TOKEN
            found, headers = forge.answers.get(parts.path), {}
            if isinstance(found, list):
                query = parse_qs(parts.query)
                size, page = int(query["per_page"][0]), int(query.get("page", ["1"])[0])
                if page * size < len(found):
                    headers = {"Link": f'<{forge.url}{parts.path}?page={page + 1}>; rel="next"'}
                found = found[(page - 1) * size : page * size]
                found = [one for one in found if one.get("id") not in forge.hidden]
            status = 401 if not mine else 404 if found is None else 200
            raw = json.dumps(found if status == 200 else {"message": "no"}).encode()
            status, headers, raw = forge.raw.get(parts.path, (status, headers, raw))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(raw)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    made = Forge()
    for name in ("GITHUB_API_URL", "CI_API_V4_URL"):
        monkeypatch.setenv(name, made.url)
    for name in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.setenv(name, TOKEN)
    yield made
    made.server.shutdown()
    made.server.server_close()


def times(minute: int) -> dict[str, str]:
    when = f"2026-11-27T09:{minute:02d}:00Z"
    return {"created_at": when, "updated_at": when}


def on_github(forge: Forge, text: str, command: str, role: str) -> None:
    root, bot = "/repos/data/layouts", {"login": SHOWN_BY, "type": "Bot"}
    ada = {"login": "ada", "type": "User"}
    old = [{"id": n, "user": ada, "body": "hm", **times(1)} for n in range(120)]
    forge.answers = {
        f"{root}/pulls/7": {"head": {"sha": HEAD}, "state": "open", "merged": False},
        f"{root}/issues/7/comments": [
            *old, {"id": 200, "user": bot, "body": text, **times(10)},
            {"id": 201, "user": ada, "body": command, **times(11)},
        ],
        f"{root}/pulls/7/reviews": [],
        f"{root}/collaborators/ada/permission": {"permission": role, "role_name": role},
    }  # fmt: skip


def on_gitlab(forge: Forge, text: str, command: str, role: str) -> None:
    root, ada = "/projects/data%2Flayouts", {"id": 2, "username": "ada", "state": "active"}
    level = {"write": 30, "read": 20}[role]
    forge.answers = {
        f"{root}/merge_requests/7": {"sha": HEAD, "state": "opened"},
        f"{root}/merge_requests/7/notes": [
            {"id": 1, "author": ada, "body": "mentioned", "system": True, **times(1)},
            {"id": 2, "author": {"username": SHOWN_BY}, "body": text, "system": False, **times(10)},
            {"id": 3, "author": ada, "body": command, "system": False, **times(11)},
        ],
        f"{root}/merge_requests/7/approvals": {"approved_by": []},
        f"{root}/members/all": [{**ada, "access_level": level}],
    }


SERVERS = {"github": on_github, "gitlab": on_gitlab}


class Scene:
    """A plan of a pull request's head, saved as `plan -o json` prints it."""

    def __init__(self, cli: Cli, table: Any, tmp_path: Path) -> None:
        policy = policy_file(tmp_path / "p.yaml", table, **declared("day"))
        body = cli("plan", "-f", policy, "-o", "json")[1]
        (tmp_path / "plans.json").write_text(body)
        self.cli, self.id = cli, str(json.loads(body)["planId"])
        self.shown = f"{MARKER} -->\n{self.id}"

    def review(self, server: str, head: str = HEAD) -> tuple[int, str, str]:
        return self.cli(
            "review", server, "--plans", "plans.json", "--repository", "data/layouts",
            "--pull", "7", "--head", head, "--shown-by", SHOWN_BY,
        )  # fmt: skip

    def approved(self, config: Any) -> bool:
        return SharedStore(config, DEFAULT_NAMESPACE).approved(self.id, "default/p")


@pytest.fixture
def scene(cli: Cli, scattered: Any, tmp_path: Path) -> Scene:
    assert name_of(scattered)
    return Scene(cli, scattered, tmp_path)


@pytest.mark.parametrize("server", SERVERS)
def test_a_persons_command_becomes_the_approval_in_the_shared_state(
    scene: Scene, forge: Forge, catalog_config: Any, server: str
) -> None:
    answer, command = SERVERS[server], f"/layoutctl approve {scene.id}"
    answer(forge, scene.shown, command, "read")
    assert scene.review(server)[0] == 3
    answer(forge, scene.shown, "/layoutctl approve p-" + "0" * 20, "write")
    assert scene.review(server)[0] == 3
    answer(forge, scene.shown, command, "write")
    assert scene.review(server, head="f" * 40)[0] == 3
    assert not scene.approved(catalog_config)
    code, out, _ = scene.review(server)
    assert code == 0 and scene.id in out and TOKEN not in out
    assert scene.approved(catalog_config)


def test_a_review_on_github_counts_until_it_is_taken_back(
    scene: Scene, forge: Forge, catalog_config: Any
) -> None:
    on_github(forge, scene.shown, "thanks", "write")
    given = {"user": {"login": "ada", "type": "User"}, "commit_id": HEAD}
    first = {**given, "state": "APPROVED", "submitted_at": "2026-11-27T09:12:00Z"}
    back = {**given, "state": "CHANGES_REQUESTED", "submitted_at": "2026-11-27T09:13:00Z"}
    reviews = "/repos/data/layouts/pulls/7/reviews"
    for found in ([], [first, back], [{**first, "commit_id": "f" * 40}]):
        forge.answers[reviews] = found
        assert scene.review("github")[0] == 3
    assert not scene.approved(catalog_config)
    forge.answers[reviews] = [first, {**back, "state": "COMMENTED"}]
    assert scene.review("github")[0] == 0
    assert scene.approved(catalog_config)


def test_an_approval_on_gitlab_counts_if_it_came_after_the_plan(
    scene: Scene, forge: Forge, catalog_config: Any
) -> None:
    on_gitlab(forge, scene.shown, "thanks", "write")
    approvals = "/projects/data%2Flayouts/merge_requests/7/approvals"
    for late, code in (("09:09", 3), ("09:12", 0)):
        one = {"user": {"username": "ada"}, "approved_at": f"2026-11-27T{late}:00.000Z"}
        forge.answers[approvals] = {"approved_by": [one]}
        assert scene.review("gitlab")[0] == code
    assert scene.approved(catalog_config)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_does_not_answer_approves_nothing(
    scene: Scene, forge: Forge, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    assert scene.review(server)[0] == 1  # there is no such pull request
    for name in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.setenv(name, "wrong")
    code, out, err = scene.review(server)
    assert code == 1 and "wrong" not in out + err
    for name in ("GITHUB_API_URL", "CI_API_V4_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert scene.review(server)[0] == 5


@pytest.mark.parametrize("server", SERVERS)
def test_a_page_from_which_the_server_hides_something_is_not_the_last_one(
    scene: Scene, forge: Forge, catalog_config: Any, server: str
) -> None:
    SERVERS[server](forge, scene.shown, f"/layoutctl approve {scene.id}", "write")
    notes = next(one for path, one in forge.answers.items() if path.endswith(("notes", "comments")))
    notes[:0] = [{**notes[0], "id": 1000 + n} for n in range(200)]
    forge.hidden = {1007, 1108}
    assert scene.review(server)[0] == 0
    assert scene.approved(catalog_config)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (500, {}, b"<html>"),
        (429, {"Retry-After": "60"}, b"{}"),
        (403, {"X-RateLimit-Remaining": "0"}, b"{}"),
        (404, {}, b"{}"),
        (200, {}, b"<html>down</html>"),
        (200, {}, b"[" * 100_000),
        (200, {}, b'{"message": "try later"}'),
        (200, {}, b"[null]"),
        (200, {}, b'[{"body": "x", "created_at": "yesterday", "state": "APPROVED"}]'),
        (200, {"Content-Length": "9000"}, b"[]"),
    ],
)
@pytest.mark.parametrize("path", ["issues/7/comments", "pulls/7/reviews"])
def test_an_answer_that_cannot_be_understood_is_no_approval_and_no_crash(
    scene: Scene, forge: Forge, path: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    on_github(forge, scene.shown, f"/layoutctl approve {scene.id}", "write")
    forge.raw[f"/repos/data/layouts/{path}"] = (status, headers, body)
    assert scene.review("github")[0] == 5


def test_a_comment_cannot_speak_to_the_log_of_a_ci_system(scene: Scene, forge: Forge) -> None:
    on_github(forge, scene.shown, "/layoutctl approve ::error::\x1b[2Jgone", "read")
    code, out, err = scene.review("github")
    assert code == 3 and "\x1b" not in out + err
    assert not any(line.startswith("::") for line in (out + err).splitlines())


def test_a_member_of_gitlab_whose_membership_waits_has_no_right(scene: Scene, forge: Forge) -> None:
    on_gitlab(forge, scene.shown, f"/layoutctl approve {scene.id}", "write")
    members = "/projects/data%2Flayouts/members/all"
    (ada,) = forge.answers[members]
    others = [{"username": f"ada{n}", "state": "active", "access_level": 40} for n in range(120)]
    forge.answers[members] = [*others, {**ada, "membership_state": "awaiting"}]
    assert scene.review("gitlab")[0] == 3
    forge.answers[members] = [*others, {**ada, "membership_state": "active"}]
    assert scene.review("gitlab")[0] == 0
