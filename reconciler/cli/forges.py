"""What GitHub and GitLab say of a pull request, by their REST APIs of versions 2022-11-28 and v4.

Only reads. The token is sent to the given server alone: a redirection to another is an error.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any

from reconciler.errors import UnavailableError, UserError
from reconciler.plan.review import Discussion, Remark, Review

PAGE = 100
"""Items of a page, the most that both servers give."""
MOST_PAGES = 100
DEVELOPER = 30
"""GitLab's access level of those who may push."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server answers."""

    content: Any
    """The body, from JSON; None if there is nothing at the path."""
    more: bool
    """Whether the server says that another page follows."""


def _slow(error: urllib.error.HTTPError) -> bool:
    """Return whether a refusal means too many requests: GitHub says that by 403, too."""
    return "Retry-After" in error.headers or error.headers.get("X-RateLimit-Remaining") == "0"


@dataclass(frozen=True)
class Forge(ABC):
    """A server with pull requests."""

    api: str
    """Address of the API, without a slash at its end."""
    token: str = field(repr=False)
    """Secret that the server knows the caller by."""
    repository: str
    """Owner and name on GitHub, path or number of the project on GitLab."""
    timeout: float = 30.0
    """Seconds that an answer may take."""

    def discussion(self, number: int) -> Discussion:
        """Return a pull request. Raises UserError if it does not exist, and UnavailableError."""
        with self._understood():
            return self._discussion(number)

    def may_write(self, user: str) -> bool:
        """Return whether a user may write to the repository, by what the server says now."""
        with self._understood():
            return self._may_write(user)

    @abstractmethod
    def _discussion(self, number: int) -> Discussion: ...

    @abstractmethod
    def _may_write(self, user: str) -> bool: ...

    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the token."""

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Translate what happens where an answer is not of the form that the API has."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"{type(error).__name__} {error}"
            raise self._failed(f"its answer has another form: {said}") from error

    def _get(self, path: str) -> Any:
        """Return an answer; None if there is nothing at this path."""
        return self._answer(path).content

    def _answer(self, path: str) -> _Answer:
        request = urllib.request.Request(f"{self.api}{path}", headers=dict(self.headers()))
        try:
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(request, timeout=self.timeout) as answer:
                links = answer.headers.get("Link", "")
                return _Answer(json.loads(answer.read()), 'rel="next"' in links)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return _Answer(None, False)
            if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and not _slow(error):
                raise UserError(
                    f"{self.api} refuses the token ({error.code})",
                    do="give a token that may read pull requests and members of the repository",
                ) from error
            raise self._failed(f"{error.code} {error.reason}") from error
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise self._failed(str(error)) from error

    def _failed(self, why: str) -> UnavailableError:
        return UnavailableError(f"{self.api} does not answer as it should", said=(why,))

    def _pages(self, path: str, query: str = "") -> Iterator[Any]:
        """Yield the items of all pages. A page may have fewer than were asked for and not be the
        last one: GitLab leaves out of it what the caller may not see."""
        for page in range(1, MOST_PAGES + 1):
            found = self._answer(f"{path}?{query}per_page={PAGE}&page={page}")
            if not isinstance(found.content, list):
                raise self._failed(f"no list at {path}")
            yield from found.content
            if len(found.content) < PAGE and not found.more:
                return
        raise self._failed(f"more than {MOST_PAGES} pages at {path}")

    def _missing(self, number: int) -> UserError:
        return UserError(
            f"{self.repository} has no pull request {number}, or the token may not see it",
            do="check --repository and --pull",
        )


class GitHub(Forge):
    def headers(self) -> Mapping[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def _discussion(self, number: int) -> Discussion:
        root = f"/repos/{self.repository}"
        pull = self._get(f"{root}/pulls/{number}")
        if pull is None:
            raise self._missing(number)
        return Discussion(
            str(pull["head"]["sha"]),
            pull["state"] == "open" or bool(pull.get("merged")),
            tuple(map(_github_remark, self._pages(f"{root}/issues/{number}/comments"))),
            _last_reviews(self._pages(f"{root}/pulls/{number}/reviews")),
        )

    def _may_write(self, user: str) -> bool:
        name = urllib.parse.quote(user, safe="")
        found = self._get(f"/repos/{self.repository}/collaborators/{name}/permission")
        return found is not None and found["permission"] in ("admin", "write")


def _github_remark(body: Mapping[str, Any]) -> Remark:
    user = body.get("user") or {}
    return Remark(
        str(user.get("login", "")), user.get("type") == "User", str(body.get("body") or ""),
        _time(body["created_at"]), _time(body["updated_at"]),
    )  # fmt: skip


def _last_reviews(bodies: Iterator[Any]) -> tuple[Review, ...]:
    """Return the last review of each person; the server lists them in order of time, and those that
    only comment change nothing."""
    last: dict[str, Review] = {}
    for body in bodies:
        user, state = body.get("user") or {}, body["state"]
        if state not in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            continue
        login = str(user.get("login", ""))
        last[login] = Review(
            login, user.get("type") == "User", state == "APPROVED",
            str(body.get("commit_id") or ""), _time(body["submitted_at"]),
        )  # fmt: skip
    return tuple(last.values())


class GitLab(Forge):
    def headers(self) -> Mapping[str, str]:
        return {"PRIVATE-TOKEN": self.token}

    @property
    def _root(self) -> str:
        return f"/projects/{urllib.parse.quote(self.repository, safe='')}"

    def _discussion(self, number: int) -> Discussion:
        root = f"{self._root}/merge_requests/{number}"
        merge = self._get(root)
        if merge is None:
            raise self._missing(number)
        approvals = self._get(f"{root}/approvals") or {}
        return Discussion(
            str(merge["sha"]),
            merge["state"] in ("opened", "merged", "locked"),
            tuple(
                _gitlab_remark(one) for one in self._pages(f"{root}/notes")
                if not one.get("system")
            ),
            tuple(
                Review(str(one["user"]["username"]), _is_person(one["user"]), True, "",
                       _time(one["approved_at"]))
                for one in approvals.get("approved_by") or ()
                if one.get("approved_at")  # older servers do not say when
            ),
        )  # fmt: skip

    def _may_write(self, user: str) -> bool:
        name = urllib.parse.quote(user, safe="")
        return any(
            one["username"] == user and one.get("state") == "active"
            and one.get("membership_state", "active") == "active"
            and int(one["access_level"]) >= DEVELOPER
            for one in self._pages(f"{self._root}/members/all", f"query={name}&")
        )  # fmt: skip


def _gitlab_remark(body: Mapping[str, Any]) -> Remark:
    author = body.get("author") or {}
    return Remark(
        str(author.get("username", "")), _is_person(author), str(body.get("body") or ""),
        _time(body["created_at"]), _time(body["updated_at"]),
    )  # fmt: skip


_TOKEN_USER = re.compile(r"(project|group)_\d+_bot")
"""Names of the users behind access tokens of projects and groups."""


def _is_person(user: Mapping[str, Any]) -> bool:
    return not user.get("bot") and not _TOKEN_USER.match(str(user.get("username", "")))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
