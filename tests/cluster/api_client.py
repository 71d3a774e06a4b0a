"""The few calls that the test kubelet makes to the API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_RETRY_SECONDS = 0.3
_LONGEST_LINE = 16 * 2**20  # an object with its managed fields is one line of a watch


class Refused(Exception):
    """The server answered that the request is wrong."""


class Unavailable(Exception):
    """The server cannot answer now."""


class Api:
    """A session with a bearer token. Objects that are gone, or no longer as expected, give None."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        self.server = server
        self._session = aiohttp.ClientSession(
            server,
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cafile=str(ca)), limit=32
            ),
            timeout=aiohttp.ClientTimeout(total=30),
            read_bufsize=_LONGEST_LINE,
        )

    async def get(self, path: str) -> Any:
        return await self._call("GET", path)

    async def post(self, path: str, body: object) -> Any:
        return await self._call("POST", path, body)

    async def patch(self, path: str, body: object, kind: str = MERGE) -> Any:
        return await self._call("PATCH", path, body, kind)

    async def delete(self, path: str, body: object) -> Any:
        return await self._call("DELETE", path, body)

    async def watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Any]]:
        """(type, object) of what changed since `version`, until the server ends the watch."""
        parameters = {
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": "300",
        }
        forever = aiohttp.ClientTimeout(total=None, sock_read=330)
        async with self._session.get(path, params=parameters, timeout=forever) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    async def close(self) -> None:
        await self._session.close()

    async def _call(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> Any:
        """Tries until the server answers: what the kubelet has to say outlasts an outage."""
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError, TimeoutError, Unavailable):
                return await self._once(method, path, body, kind)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _once(self, method: str, path: str, body: object, kind: str) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=content, headers=headers) as answer:
            if answer.status in (404, 409):
                return None
            if answer.status == 429 or answer.status >= 500:
                raise Unavailable
            if answer.status >= 400:
                raise Refused(f"{method} {path}: {answer.status} {(await answer.text())[:500]}")
            return await answer.json()
