"""What test servers of GitHub's and GitLab's APIs share: a token, and answers in JSON."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

TOKEN = "token-that-is-secret"


class GitHubHandler(BaseHTTPRequestHandler):
    """Answers 401 to requests without the token."""

    def answer(self, status: int, content: Any) -> None:
        given = self.headers["Authorization"], self.headers["PRIVATE-TOKEN"]
        if given not in ((f"Bearer {TOKEN}", None), (None, TOKEN)):
            status, content = 401, {}
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
