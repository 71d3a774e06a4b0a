"""What a proposal asks of the outside world: the catalog, the state store, data files' footers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.advisor.measure.credit import Credit
from reconciler.advisor.qdtree.woodblock import Training
from reconciler.api.catalog_config import CatalogConfig
from reconciler.loop.file_checks import Checked
from reconciler.loop.history import History
from reconciler.loop.training import Trees
from reconciler.plan.execution import Intent
from reconciler.plan.plan import Plan
from reconciler.queries.coverage import Coverage
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.shape import Workload
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.observation import RECENT_MS, Observation
from reconciler.table.orphans import Orphans, Search
from reconciler.table.refusals import Refusal
from reconciler.table.replica import SeenReplica
from reconciler.table.sample import RowGroups, RowSample


@dataclass(frozen=True, slots=True)
class Target:
    """A table to plan for."""

    catalog: CatalogConfig
    """The catalog that has the table."""
    identifier: tuple[str, ...]
    """Levels of the table's name; the last one is the name itself."""
    recent_ms: int = RECENT_MS
    """Milliseconds back from now in which changes by other writers are looked for."""
    memory_bytes: int = 0
    """Memory of an executor by the policy, in bytes; 0 if none is named."""


@dataclass(frozen=True)
class RecordedQueries:
    """The known queries on a table."""

    workload: Workload
    """The queries by shape. A query for the first rows of an order counts as a range of values of
    the present files."""
    coverage: Coverage
    """How much of the table's reading they explain."""
    recorded: Workload
    """The queries as logged: past rewrites and replays are judged by them."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Our work on a table that has begun or may begin."""

    plans: tuple[Plan, ...] = ()
    """The plans that were proposed last, one for each policy that the table had."""
    attempts: tuple[Intent, ...] = ()
    """The attempts whose result is not recorded yet."""


class Ports(Protocol):
    """The I/O of a proposal: the catalog, the state store and the data files' footers."""

    def observe(self, target: Target) -> Observation: ...

    def recorded_queries(self, observation: Observation) -> RecordedQueries: ...

    def footers(self, target: Target, observation: Observation, files: Int64) -> RowGroups: ...

    def sketch(
        self, target: Target, observation: Observation, files: Int64, columns: Sequence[int]
    ) -> RowSample: ...

    def open_price(self, table_uuid: str) -> OpenPrice:
        """Return the price of opening a file; sketches may have measured it."""
        ...

    def sketched(self, table_uuid: str, paths: Sequence[str]) -> Collection[str]:
        """Return those of the data files that have a stored sketch."""
        ...

    def trained(self, table_uuid: str, wanted: Sequence[Training]) -> Trees:
        """Return the trees that Woodblock finds, or has found; it may take minutes."""
        ...

    def refusals(self, target: Target, observation: Observation) -> Mapping[str, Refusal]:
        """Return the files of the table that earlier runs and looks refused, by path, as far as
        this version and the target's memory would find the same."""
        ...

    def check_files(
        self, target: Target, observation: Observation, paths: Sequence[str]
    ) -> Checked:
        """Return which of these files are refused because of what their footers say."""
        ...

    def history(self, table_uuid: str) -> History:
        """Return what was done to the table, without what that has saved."""
        ...

    def credits(
        self, observation: Observation, queries: RecordedQueries, history: History
    ) -> Mapping[str, Credit]:
        """Return what later queries did not read because of past rewrites, by plan id."""
        ...

    def replaced(self, observation: Observation, history: History) -> tuple[FileTable, ...]:
        """Return the files of other writers that past rewrites replaced, as far as the ledger keeps
        them."""
        ...

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None: ...

    def work(self, table_uuid: str) -> OpenWork: ...

    def put_plan(self, plan: Plan) -> None: ...

    def orphans(
        self,
        target: Target,
        table_uuid: str,
        search: Search,
        now_ms: int,
        under_way: Collection[str],
    ) -> Orphans:
        """Return files of the table that nothing refers to, if a listing is due. under_way:
        directories of attempts."""
        ...

    def unused_specs(self, target: Target, candidates: Collection[int]) -> frozenset[int]:
        """Return those of the partition specs that no snapshot uses."""
        ...

    def replica(self, target: Target, name: str) -> SeenReplica:
        """Return the table of this name beside the table, as far as it can be looked at."""
        ...
