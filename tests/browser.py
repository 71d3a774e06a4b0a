"""A real browser without a window, which acts on a page and says what became of it.

Chromium runs a script after the page's own and hands back the document; the script's answer is in
it as JSON. Nothing but Chromium itself is needed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ANSWER = re.compile(r'<pre id="answer">(.*?)</pre>', re.DOTALL)


def browser() -> str:
    """The path of the browser; skips the test where none is installed."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium")
    return found


def asked(page: str, script: str, directory: Path, *, width: int = 1200) -> Any:
    """Return what the script returns in the page. script: the body of a function."""
    program = browser()
    act = (
        "<script>const answer = (() => {" + script + "})();"
        'const pre = document.createElement("pre"); pre.id = "answer";'
        "pre.textContent = JSON.stringify(answer); document.body.append(pre);</script>"
    )
    path = directory / "asked.html"
    path.write_text(page.replace("</body>", act + "</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={directory / 'profile'}", f"--window-size={width},900",
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(unescape(ANSWER.findall(done.stdout)[-1]))
