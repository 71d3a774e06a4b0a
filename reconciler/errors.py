"""All errors for users, and the exit codes of `layoutctl`.

An error says what is wrong, where, why, and what to do next. Foreign exceptions are translated once
into one of these, where the foreign library is called; the CLI prints `render()` and never a
traceback. The exit codes are a contract: see docs/reference/cli.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reconciler.format import printable

EXIT_OK = 0
EXIT_USER = 1
EXIT_CHANGES = 2  # only `plan --detailed-exitcode`
EXIT_BLOCKED = 3
EXIT_INTERNAL = 4
EXIT_UNAVAILABLE = 5
EXIT_INTERRUPTED = 130
_SIGNATURE = re.compile(r"""([?&]sig=)[^&\s"']+""", re.IGNORECASE)
"""The secret part of a shared access signature in an address of Azure's storage."""


def first_line(said: BaseException | str, most: int = 300) -> str:
    """Return the first line of a foreign message, cut to a readable length; its type if it is
    empty. Signatures of addresses are left out: a client of Azure repeats the key that it has."""
    lines = str(said).strip().splitlines()
    if lines:
        return _SIGNATURE.sub(r"\1***", lines[0])[:most]
    return "" if isinstance(said, str) else type(said).__name__


class ReconcilerError(Exception):
    """Base of all errors meant for people.

    what: one line with its subject in it, lower case, no full stop.
    details: further lines (why, what was found instead).
    do: the next step or command; None only where there is nothing a person can do.
    said: what an engine said, which may hold values of rows. It is printed on the terminal and in
    the log of a job, for those who may read the table, and stored nowhere.
    """

    exit_code = EXIT_INTERNAL

    def __init__(
        self,
        what: str,
        *,
        details: tuple[str, ...] = (),
        do: str | None = None,
        said: tuple[str, ...] = (),
    ):
        super().__init__(what)
        self.what = what
        self.details = details
        self.do = do
        self.said = said

    def render(self) -> str:
        """Return the text printed on stderr, without colour and without a trailing newline."""
        lines = [f"error: {printable(self.what)}"]
        lines += [f"  {printable(line)}" for line in (*self.said, *self.details)]
        if self.do:
            lines.append(f"  do: {printable(self.do)}")
        return "\n".join(lines)


class UserError(ReconcilerError):
    """Something the user can correct: a document, a name, an option, an environment."""

    exit_code = EXIT_USER


class UnsupportedError(UserError):
    """The table, or a file of it, is of a kind that this version refuses to rewrite."""


class UnusableLogError(UserError):
    """A file that is no query log, or is not written in the dialect that was named."""


def unsupported_format(table: str, version: int | str) -> UnsupportedError:
    """table: the subject of the sentence."""
    return UnsupportedError(
        f"{table} has Iceberg format version {version}; this version handles 1 to 3",
        details=("The table was left as it was.",),
        do="leave it out of the policy (tables.exclude), or use a newer layoutctl",
    )


class AccessDeniedError(UserError):
    """The catalog or the storage refused the credentials, or their rights are too small."""


class RefusedAddressError(UserError):
    """An address or a location that the operator must not connect to."""


class RedirectedError(RefusedAddressError):
    """What a catalog answered leads to such an address; what names the catalog is right."""


class TableNotFoundError(UserError):
    """The catalog answers, but has no such table or namespace."""


class TableDamagedError(UserError):
    """A file that the table's metadata refers to is missing or damaged."""


class FileMissingError(TableDamagedError):
    """A file that the table's metadata refers to does not exist, by the metadata that was read.

    Another writer may have replaced it since: load the table again before it is called damage.
    """


class StateError(UserError):
    """The state directory, or the tables of the shared state, cannot be used."""


class KeyNotFoundError(UserError):
    """A clustering key of the policy is not a column of the table, or its column has no order."""


class StalePlanError(UserError):
    """The plan no longer matches the table: plan again and continue."""


class RefusedInputsError(StalePlanError):
    """Inputs of the plan are recorded as refused (`table.refusals`): a new plan leaves them out."""


class BlockedError(ReconcilerError):
    """Nothing is wrong, but approval, a budget, a window or an owner prevents the work."""

    exit_code = EXIT_BLOCKED


class VetoError(BlockedError):
    """A state that a person or another tool gave the table forbids the work until it is changed."""


class RolledBackError(VetoError):
    """A person rolled back a commit of the plan: the plan is not carried out again."""


class PausedError(VetoError):
    """A property of the table stops every action on it."""


class LiveBranchesError(VetoError):
    """The table has branches or staged snapshots that could not be published after a rewrite of
    main."""


class AuditFailedError(VetoError):
    """The policy's check returned rows, or could not be run: the batch was not committed."""


class UnavailableError(ReconcilerError):
    """A dependency did not answer; the same call may work later."""

    exit_code = EXIT_UNAVAILABLE


class InternalError(ReconcilerError):
    """A state that should not occur; the table was not changed by the step that found it."""

    exit_code = EXIT_INTERNAL


class InterruptedByUser(ReconcilerError):
    """SIGINT or SIGTERM: stopped at a commit boundary, nothing half-done is left."""

    exit_code = EXIT_INTERRUPTED


class VerificationError(InternalError):
    """The rows written differ from the rows read. Nothing was committed; the table stalls."""


class ConflictError(ReconcilerError):
    """Another writer changed inputs of an action. Not a failure: plan again and continue."""

    exit_code = EXIT_UNAVAILABLE


class MemoryExhaustedError(UnavailableError):
    """There was too little memory, in the driver or in an executor; more of it may help.

    path: of the file that took it, "" if it is not known.
    """

    def __init__(
        self, what: str, *, details: tuple[str, ...] = (), do: str | None = None, path: str = ""
    ):
        super().__init__(what, details=details, do=do)
        self.path = path


class UnknownCommitError(UnavailableError):
    """A commit was sent and its outcome is unknown. Nothing may be cleaned up until it is known."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding in a document: `layoutctl validate` lists all of them at once."""

    file: str
    """Name of the file."""
    line: int
    """Line in the file, from 1; 0 if it is unknown."""
    column: int
    """Column in the line, from 1; 0 if it is unknown."""
    field: str
    """Path of the field, such as spec.budgets[0].per."""
    message: str
    """What is wrong."""
    hint: str = ""
    """What to write instead, "" if nothing can be suggested."""
    severity: str = "error"
    """"error" fails the validation, "warning" does not."""


class InvalidDocuments(UserError):
    """One or more documents are invalid; carries every problem found."""

    def __init__(self, problems: tuple[Problem, ...], rendered: str):
        number = len(problems)
        super().__init__(f"{number} {'problem' if number == 1 else 'problems'} in the documents")
        self.problems = problems
        self._rendered = rendered

    def render(self) -> str:
        return self._rendered
