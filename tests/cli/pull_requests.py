"""Pull requests over HTTP, as GitHub serves them, and a checkout to open them from."""

from __future__ import annotations

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.github_api import TOKEN, GitHubHandler

PLACE = "/repos/data/layouts/pulls"


class Pulls:
    """opened: bodies of the requests that opened one."""

    def __init__(self) -> None:
        self.opened: list[dict[str, Any]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def environment(self) -> dict[str, str]:
        return {
            "GITHUB_API_URL": f"http://127.0.0.1:{self.server.server_address[1]}",
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_REPOSITORY": "data/layouts",
            "NO_PROXY": "127.0.0.1",
        }


def _handler(pulls: Pulls) -> type[BaseHTTPRequestHandler]:
    class Handler(GitHubHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            (head,) = parse_qs(parts.query)["head"]
            found = [item for item in pulls.opened if f"data:{item['head']}" == head]
            self.answer(200 if parts.path == PLACE else 404, found)

        def do_POST(self) -> None:
            assert self.path == PLACE
            pulls.opened.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(201, {"html_url": "https://github.test/data/layouts/pull/1"})

    return Handler


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=ci", "-c", "user.email=ci@test")
    return subprocess.run(
        ["git", *identity, *words], cwd=directory, capture_output=True, text=True, check=True
    ).stdout


def checkout(directory: Path, name: str, text: str) -> Path:
    """A clone of a new repository whose layouts/`name` has the text."""
    origin, clone = directory / "origin", directory / "clone"
    origin.mkdir(parents=True)
    git(origin, "init", "--quiet", "--bare", "--initial-branch=main")
    git(directory, "clone", "--quiet", str(origin), str(clone))
    (clone / "layouts").mkdir()
    (clone / "layouts" / name).write_text(text)
    git(clone, "config", "user.name", "ci")
    git(clone, "config", "user.email", "ci@test")
    git(clone, "checkout", "--quiet", "-B", "main")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "policies")
    git(clone, "push", "--quiet", "origin", "main")
    return clone
