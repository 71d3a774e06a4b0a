"""Condition types and reasons: the constants of status, JSON output and messages, with remedies.

Every reason has a meaning and a remedy; `status`, `explain`, the operator and the reference page
print exactly these texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.errors import (
    AccessDeniedError,
    KeyNotFoundError,
    TableDamagedError,
    TableNotFoundError,
    UserError,
)


class ConditionType(StrEnum):
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    CONVERGED = "Converged"
    APPROVED = "Approved"
    WITHIN_BUDGET = "WithinBudget"
    WORKLOAD_FRESH = "WorkloadFresh"
    BETTER_LAYOUT_KNOWN = "BetterLayoutKnown"


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    # Ready
    OBSERVED = "Observed"
    CATALOG_REACHABLE = "CatalogReachable"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_VALUE = "UnknownValue"
    CATALOG_NOT_FOUND = "CatalogNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"
    ACCESS_DENIED = "AccessDenied"
    NO_TABLE_MATCHES = "NoTableMatches"
    NAMESPACE_UNREADABLE = "NamespaceUnreadable"
    NEW_GENERATION = "NewGeneration"
    # Converged, in the order in which the first that applies is given
    SUSPENDED = "Suspended"
    CATALOG_UNAVAILABLE = "CatalogUnavailable"
    PAUSED = "Paused"
    OWNED_ELSEWHERE = "OwnedElsewhere"
    OTHER_OPTIMIZER = "OtherOptimizer"
    CATALOG_POLICY = "CatalogPolicy"
    AWAITING_APPROVAL = "AwaitingApproval"
    OUTSIDE_WINDOW = "OutsideWindow"
    OVER_BUDGET = "OverBudget"
    CONCURRENCY_LIMIT = "ConcurrencyLimit"
    BACK_OFF = "BackOff"
    REWRITE_RUNNING = "RewriteRunning"
    TABLES_PENDING = "TablesPending"
    OBJECTIVE_UNREACHABLE = "ObjectiveUnreachable"
    NOTHING_TO_DO = "NothingToDo"
    # Stalled
    VERIFICATION_FAILED = "VerificationFailed"
    ROLLED_BACK = "RolledBack"
    CONFLICT_LOOP = "ConflictLoop"
    NO_EFFECT = "NoEffect"
    LIVE_BRANCHES = "LiveBranches"
    AUDIT_FAILED = "AuditFailed"
    UNSUPPORTED_TABLE = "UnsupportedTable"
    KEY_NOT_FOUND = "KeyNotFound"
    NOT_ACTED_ON = "NotActedOn"
    TABLE_NOT_FOUND = "TableNotFound"
    TABLE_DAMAGED = "TableDamaged"
    FOREIGN_JOB = "ForeignJob"
    JOB_NOT_STARTED = "JobNotStarted"
    JOB_FAILED = "JobFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    # Approved
    APPROVED_BY_DOCUMENT = "ApprovedByDocument"
    APPROVED_BY_PERSON = "ApprovedByPerson"
    APPROVED_BY_SIZE = "ApprovedBySize"
    AUTOMATIC = "Automatic"
    PLAN_CHANGED = "PlanChanged"
    PLAN_EXPIRED = "PlanExpired"
    # WithinBudget
    FITS = "Fits"
    INVALID_BUDGET = "InvalidBudget"
    # WorkloadFresh
    FRESH = "Fresh"
    STALE = "Stale"
    NO_QUERIES = "NoQueries"
    LOW_COVERAGE = "LowCoverage"
    IMPORT_FAILED = "ImportFailed"
    NO_SOURCES = "NoSources"
    # BetterLayoutKnown
    LAYOUT_RECOMMENDED = "LayoutRecommended"
    LAYOUT_DECLARED = "LayoutDeclared"
    LAYOUT_KEPT = "LayoutKept"
    NOT_RECOMMENDED_YET = "NotRecommendedYet"
    RECOMMENDATION_FAILED = "RecommendationFailed"


@dataclass(frozen=True, slots=True)
class Explanation:
    """types: conditions that have the reason. remedy: "" if there is nothing to do."""

    types: tuple[ConditionType, ...]
    cause: str
    remedy: str = ""


_READY, _STALLED = ConditionType.READY, ConditionType.STALLED
_CONVERGED, _APPROVED = ConditionType.CONVERGED, ConditionType.APPROVED
_BUDGET, _WORKLOAD = ConditionType.WITHIN_BUDGET, ConditionType.WORKLOAD_FRESH
_BETTER = ConditionType.BETTER_LAYOUT_KNOWN

EXPLANATIONS: dict[Reason, Explanation] = {
    Reason.OBSERVED: Explanation(
        (_READY,), "The spec is accepted, its references resolve and its tables are observed."
    ),
    Reason.CATALOG_REACHABLE: Explanation((_READY,), "The catalog answers."),
    Reason.INVALID_SPEC: Explanation(
        (_READY, _STALLED),
        "The spec breaks a rule that the API server does not check.",
        "Run layoutctl validate on the document and correct what it names.",
    ),
    Reason.UNKNOWN_VALUE: Explanation(
        (_READY, _STALLED),
        "The stored object has a value that this version does not know, perhaps from a newer one.",
        "Upgrade the operator, or set a value that the CRD of its version lists.",
    ),
    Reason.CATALOG_NOT_FOUND: Explanation(
        (_READY, _STALLED),
        "There is no IcebergCatalog of that name in the namespace of the policy.",
        "Create it, or correct spec.catalogRef.name.",
    ),
    Reason.SECRET_NOT_FOUND: Explanation(
        (_READY, _STALLED),
        "The Secret that spec.secretRef names is missing, or holds a key that is not allowed.",
        "Create it in the catalog's namespace with keys of the allow-list only.",
    ),
    Reason.ACCESS_DENIED: Explanation(
        (_READY, _STALLED),
        "The catalog or the storage refused the credentials.",
        "Correct the Secret or the rights of the service account.",
    ),
    Reason.NAMESPACE_UNREADABLE: Explanation(
        (_READY,),
        "The operator may not read this namespace, so that nothing in it is reconciled.",
        "Restore the operator's Role and RoleBinding in the namespace (docs/operations/rbac.md); "
        "it is asked again within five minutes.",
    ),
    Reason.NO_TABLE_MATCHES: Explanation(
        (_READY,),
        "The catalog answers, and no table matches spec.tables.",
        "Compare the patterns with layoutctl observe; names do not start with the catalog.",
    ),
    Reason.NEW_GENERATION: Explanation(
        (ConditionType.RECONCILING, _CONVERGED),
        "The operator has not yet evaluated the new generation of the spec.",
    ),
    Reason.SUSPENDED: Explanation(
        (_CONVERGED,),
        "spec.suspend is set: nothing new starts.",
        "layoutctl resume NAME, or set spec.suspend to false where the document is kept.",
    ),
    Reason.CATALOG_UNAVAILABLE: Explanation(
        (_READY, _CONVERGED),
        "The catalog does not answer, so the last observation is not trusted.",
        "Check that it runs and can be reached; the operator retries.",
    ),
    Reason.OWNED_ELSEWHERE: Explanation(
        (_CONVERGED, _STALLED),
        "Another reconciler has claimed the table, or another policy matches it first.",
        "Remove the table from one of the two. If the owner in the message no longer exists, "
        "annotate the IcebergCatalog with layout.lakehouse.dev/takeOver=OWNER.",
    ),
    Reason.PAUSED: Explanation(
        (_CONVERGED,),
        "The table property layout.paused is set: nothing is done to the table.",
        "Remove the property when the reason that it gives has passed.",
    ),
    Reason.OTHER_OPTIMIZER: Explanation(
        (_CONVERGED,),
        "Another program rewrites the files of the table. The message says by what this is known.",
        "Switch the other one off for the table. If both are meant to work on it, set "
        "spec.safety.allowOtherOptimizers.",
    ),
    Reason.CATALOG_POLICY: Explanation(
        (_CONVERGED,),
        "A policy of the catalog forbids work on the table. The message names the policy.",
        "Nothing, if that is meant. Otherwise change the policy in the catalog; it is seen within "
        "an hour.",
    ),
    Reason.AWAITING_APPROVAL: Explanation(
        (_CONVERGED, _APPROVED),
        "A plan is waiting for approval.",
        "Read it with layoutctl plan TABLE; approve it with layoutctl approve PLAN, or without "
        "the operator run it with layoutctl apply TABLE.",
    ),
    Reason.OUTSIDE_WINDOW: Explanation(
        (_CONVERGED, _BUDGET),
        "A scheduled budget allows nothing at this time.",
        "Wait for the window, or change the schedule.",
    ),
    Reason.OVER_BUDGET: Explanation(
        (_CONVERGED, _BUDGET),
        "The next action exceeds the rest of a budget, or the ledger cannot be read.",
        "Wait until past work leaves the rolling window, or raise the budget.",
    ),
    Reason.CONCURRENCY_LIMIT: Explanation(
        (_CONVERGED,),
        "The number of running jobs has reached spec.engine.maxConcurrentJobs of the policy, or "
        "the operator's own limit.",
        "Wait, or raise the limit.",
    ),
    Reason.BACK_OFF: Explanation(
        (_CONVERGED,),
        "The last attempt failed or met a conflict; the operator waits before the next one.",
        "Wait; the message has the time and the cause.",
    ),
    Reason.REWRITE_RUNNING: Explanation((_CONVERGED,), "A rewrite is running."),
    Reason.TABLES_PENDING: Explanation(
        (_CONVERGED,), "Work is planned and admitted, and has not started yet."
    ),
    Reason.OBJECTIVE_UNREACHABLE: Explanation(
        (_CONVERGED,),
        "Nothing profitable is left, and an objective still fails or cannot be judged.",
        "Relax the objective, or remove what the message names: rows under equality deletes are "
        "not counted until they are converted or applied (spec.deletes.compaction).",
    ),
    Reason.NOTHING_TO_DO: Explanation(
        (_CONVERGED,),
        "No action is worth its cost now and every objective is met. The message has the end of "
        "the quiet period if work waits for it; the operator plans again then.",
    ),
    Reason.VERIFICATION_FAILED: Explanation(
        (_STALLED,),
        "The rows written differed from the rows read. Nothing was committed.",
        "Report it with the output of layoutctl history TABLE; do not retry on this version.",
    ),
    Reason.ROLLED_BACK: Explanation(
        (_STALLED,),
        "A person rolled back a commit of the reconciler, which is taken as a veto.",
        "Change the policy, or exclude the table.",
    ),
    Reason.CONFLICT_LOOP: Explanation(
        (_STALLED,),
        "Other writers keep replacing the files of the plan. It is tried again every hour; work "
        "that does not conflict, such as the maintenance of delete files, goes on.",
        "Raise spec.layout.files.quietPeriod, or run in a window without other writers.",
    ),
    Reason.NO_EFFECT: Explanation(
        (_STALLED,),
        "The same work was planned again after it had been done.",
        "Report it with the output of layoutctl history TABLE.",
    ),
    Reason.LIVE_BRANCHES: Explanation(
        (_STALLED,),
        "The table has unpublished branches or staged snapshots. After a rewrite of main they "
        "could not be fast-forwarded.",
        "Publish or drop them, or set spec.safety.allowLiveBranches.",
    ),
    Reason.AUDIT_FAILED: Explanation(
        (_STALLED,),
        "The query of spec.safety.check returned rows on the branch that holds a rewrite, or could "
        "not be run. Nothing of that batch was committed to main.",
        "See whether the query is right, and change it; if it is right, report the rewrite.",
    ),
    Reason.UNSUPPORTED_TABLE: Explanation(
        (_STALLED,),
        "This version does not rewrite what the table has: files other than Parquet, or "
        "encryption; or the policy asks for merge-on-read on format version 1.",
        "Exclude it, or remove what the message names.",
    ),
    Reason.KEY_NOT_FOUND: Explanation(
        (_STALLED,),
        "A declared key is not a column of the table, or its type cannot be ordered.",
        "Correct spec.layout.clustering.keys; layoutctl observe TABLE lists the columns.",
    ),
    Reason.NOT_ACTED_ON: Explanation(
        (_STALLED,),
        "The policy asks for Automatic approval and sets a field that this version ignores.",
        "Remove the field that layoutctl validate names, or use Manual approval.",
    ),
    Reason.TABLE_NOT_FOUND: Explanation(
        (_STALLED,), "The table no longer exists.", "Restore it, or remove it from the policy."
    ),
    Reason.TABLE_DAMAGED: Explanation(
        (_STALLED,),
        "A manifest or data file that the table references is missing or unreadable.",
        "Restore the file that the message names, or roll the table back.",
    ),
    Reason.FOREIGN_JOB: Explanation(
        (_STALLED,),
        "A Job with this table's name or label was not created for this TableLayout's plan.",
        "Find out who created the Job that the message names, and delete it.",
    ),
    Reason.JOB_NOT_STARTED: Explanation(
        (_CONVERGED, _STALLED),
        "The job's pod does not start because of its image, its configuration, its service account "
        "or missing capacity.",
        "Run kubectl describe on the Job that the message names, and correct spec.jobs of the "
        "IcebergCatalog or spec.engine of the policy. A change of either restarts the work at "
        "once; otherwise an image is retried every hour.",
    ),
    Reason.JOB_FAILED: Explanation(
        (_STALLED,),
        "The job failed with an error that a retry does not fix.",
        "Do what the message says; a change of the policy, Secret or table restarts the work.",
    ),
    Reason.OUT_OF_MEMORY: Explanation(
        (_STALLED,),
        "The job ran out of memory twice, the second time with 1.5 times the memory.",
        "Raise the memory of spec.engine.driver and spec.engine.executors.",
    ),
    Reason.APPROVED_BY_DOCUMENT: Explanation(
        (_APPROVED,), "The plan's id is in spec.approval.approvedPlans."
    ),
    Reason.APPROVED_BY_PERSON: Explanation((_APPROVED,), "A person approved this plan."),
    Reason.APPROVED_BY_SIZE: Explanation(
        (_APPROVED,), "The plan is below spec.approval.automaticUpTo."
    ),
    Reason.AUTOMATIC: Explanation((_APPROVED,), "spec.approval.mode is Automatic."),
    Reason.PLAN_CHANGED: Explanation(
        (_APPROVED,),
        "The approved plan is no longer valid; a new one is proposed.",
        "Read the difference in the message, then approve the new plan: layoutctl approve PLAN.",
    ),
    Reason.PLAN_EXPIRED: Explanation(
        (_APPROVED,),
        "The approved plan is older than spec.approval.planTTL.",
        "Read the current plan, then run layoutctl approve PLAN.",
    ),
    Reason.FITS: Explanation((_BUDGET,), "The plan fits all active budgets."),
    Reason.INVALID_BUDGET: Explanation(
        (_BUDGET,),
        "A budget has an invalid schedule or time zone, and therefore allows nothing.",
        "Run layoutctl validate on the policy and correct what it names.",
    ),
    Reason.FRESH: Explanation((_WORKLOAD,), "The last recorded query is at most 30 days old."),
    Reason.STALE: Explanation(
        (_WORKLOAD,),
        "The last recorded query is older than 30 days.",
        "Import newer logs with layoutctl workload import.",
    ),
    Reason.NO_QUERIES: Explanation(
        (_WORKLOAD, _BETTER),
        "No query is recorded.",
        "Import a log with layoutctl workload import.",
    ),
    Reason.LOW_COVERAGE: Explanation(
        (_WORKLOAD,),
        "The recorded queries explain less than half of the bytes read.",
        "See what was skipped with layoutctl workload show.",
    ),
    Reason.IMPORT_FAILED: Explanation(
        (_WORKLOAD,),
        "A source of query logs could not be read.",
        "Correct the source that the message names in spec.workload.sources of the catalog.",
    ),
    Reason.NO_SOURCES: Explanation(
        (_WORKLOAD,),
        "The catalog names no query logs, so plans do not take queries into account.",
        "Add spec.workload.sources to the IcebergCatalog.",
    ),
    Reason.LAYOUT_RECOMMENDED: Explanation(
        (_BETTER,),
        "For the recorded queries another layout is predicted to cost less than the present one, "
        "its rewrite included. The operator does not act on it.",
        "Read it with layoutctl recommend TABLE --from-cluster; --out FILE writes it into the "
        "policy for review.",
    ),
    Reason.LAYOUT_DECLARED: Explanation(
        (_BETTER,), "The policy already declares the layout that was recommended."
    ),
    Reason.LAYOUT_KEPT: Explanation(
        (_BETTER,), "No layout that was considered is better than the present one."
    ),
    Reason.NOT_RECOMMENDED_YET: Explanation(
        (_BETTER,),
        "No recommend job has ended yet. Another job, a window or a budget may hold it back.",
    ),
    Reason.RECOMMENDATION_FAILED: Explanation(
        (_BETTER,),
        "The recommend job failed. The table's own work is not affected.",
        "Do what the message says; the job is retried, after an error of its input when the table "
        "or its queries have changed.",
    ),
}

CONVERGED_ORDER: tuple[Reason, ...] = (
    Reason.SUSPENDED,
    Reason.CATALOG_UNAVAILABLE,
    Reason.PAUSED,
    Reason.OWNED_ELSEWHERE,
    Reason.OTHER_OPTIMIZER,
    Reason.CATALOG_POLICY,
    Reason.AWAITING_APPROVAL,
    Reason.OUTSIDE_WINDOW,
    Reason.OVER_BUDGET,
    Reason.CONCURRENCY_LIMIT,
    Reason.BACK_OFF,
    Reason.REWRITE_RUNNING,
    Reason.TABLES_PENDING,
    Reason.OBJECTIVE_UNREACHABLE,
)
"""The reason why a table is not Converged is the first of these that applies.

A reason of Stalled comes right after OwnedElsewhere, which is one itself.
"""


def first_reason(applying: set[Reason]) -> Reason:
    """Return the reason of Converged if `applying` prevent it; NothingToDo if none does."""
    return next((reason for reason in _ALL_IN_ORDER if reason in applying), Reason.NOTHING_TO_DO)


def _in_order() -> tuple[Reason, ...]:
    place = CONVERGED_ORDER.index(Reason.OWNED_ELSEWHERE) + 1
    stalls = (reason for reason, entry in EXPLANATIONS.items() if _STALLED in entry.types)
    return tuple(dict.fromkeys((*CONVERGED_ORDER[:place], *stalls, *CONVERGED_ORDER[place:])))


_ALL_IN_ORDER = _in_order()


_STALLED_BY: tuple[tuple[type[UserError], Reason], ...] = (
    (KeyNotFoundError, Reason.KEY_NOT_FOUND),
    (AccessDeniedError, Reason.ACCESS_DENIED),
    (TableNotFoundError, Reason.TABLE_NOT_FOUND),
    (TableDamagedError, Reason.TABLE_DAMAGED),
)


def stalled_by(error: UserError) -> Reason:
    """Return the reason of Stalled if planning a table was refused."""
    found = (reason for kind, reason in _STALLED_BY if isinstance(error, kind))
    return next(found, Reason.UNSUPPORTED_TABLE)
