"""State tables in a namespace of the user's own catalog: for `--shared` and for the operator.

They are created at the first write, with a message. Every failure is reported as unavailable:
without a readable ledger nothing may start. Files that no commit references are left alone, because
they may belong to a writer that is about to commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.failures import said
from reconciler.catalog.load import connect, within
from reconciler.catalog.not_found import describe
from reconciler.errors import ReconcilerError, UnavailableError, UserError
from reconciler.state.state_tables import properties_of
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    from pyiceberg.table import Table

DEFAULT_NAMESPACE = ("layout_reconciler",)
"""The default of IcebergCatalog's spec.system.namespace."""

HOME_TABLE = "records"
"""The table whose location is that of the shared state."""

WRITE_SECONDS = 180.0
"""A commit is repeated for up to 120 s when others commit first."""

READ_MARGIN = 4.0
"""A read of the whole ledger may take longer than one catalog call."""

Result = TypeVar("Result")


class SharedBackend:
    """A namespace of a catalog. on_created: called when the first table is created there."""

    def __init__(
        self,
        config: CatalogConfig,
        namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        timeout: float = 30.0,
        on_created: Callable[[str], None] | None = None,
    ):
        self.config, self.namespace, self.timeout = config, namespace, timeout
        self._on_created = on_created
        self._catalog: Any = None

    def load(self, name: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            table: Table = self._open().load_table((*self.namespace, name))
            return table
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def create(self, name: str, schema: Any, spec: Any) -> Table:
        catalog = self._open()
        self._create_namespace(catalog)
        first = self._on_created is not None and not catalog.list_tables(self.namespace)
        table: Table = catalog.create_table_if_not_exists(
            (*self.namespace, name), schema, partition_spec=spec, properties=properties_of(name)
        )
        if first and self._on_created is not None:
            self._on_created(
                f'created "{quoted_name(self.namespace)}" in catalog {describe(self.config)}: '
                "the reconciler keeps its shared state there"
            )
        return table

    def known_home(self) -> str | None:
        """Return the location of the table that was created first; None before the first write."""
        table = self.load(HOME_TABLE)
        return None if table is None else table.location()

    def home(self) -> str:
        """As `known_home`; create the table if it is missing."""
        from reconciler.state.shared_records import RECORDS
        from reconciler.state.table_columns import unpartitioned

        found = self.read(self.known_home)
        if found is not None:
            return found
        schema, spec = unpartitioned(RECORDS)
        return self.write(lambda: self.create(HOME_TABLE, schema, spec).location())

    def read(self, work: Callable[[], Result]) -> Result:
        return within(lambda: self._guarded(work, "read"), self.timeout * READ_MARGIN, self.config)

    def write(self, work: Callable[[], Result]) -> Result:
        return within(
            lambda: self._guarded(work, "written"), max(self.timeout, WRITE_SECONDS), self.config
        )

    def remove_orphans(self, table: Table, referenced: set[str]) -> None:
        """Remove nothing: another writer's next commit may reference what nothing references
        yet."""

    def _guarded(self, work: Callable[[], Result], verb: str) -> Result:
        from pyiceberg.exceptions import ForbiddenError, UnauthorizedError

        try:
            return work()
        except ReconcilerError:
            raise
        except (UnauthorizedError, ForbiddenError) as error:
            raise self._error(UserError, verb, error, "check the token and its rights") from error
        except Exception as error:
            todo = "check the catalog and its object store, then try again"
            raise self._error(UnavailableError, verb, error, todo) from error

    def _error(
        self, kind: type[ReconcilerError], verb: str, error: Exception, todo: str
    ) -> ReconcilerError:
        return kind(
            f'the shared state in "{quoted_name(self.namespace)}" of catalog '
            f"{describe(self.config)} cannot be {verb}",
            details=(said(error, self.config),),
            do=todo,
        )

    def _open(self) -> Any:
        if self._catalog is None:
            self._catalog = connect(self.config, self.timeout)
        return self._catalog

    def _create_namespace(self, catalog: Any) -> None:
        """Create the namespace level by level; another writer may be creating the same one."""
        for depth in range(1, len(self.namespace) + 1):
            levels = self.namespace[:depth]
            try:
                catalog.create_namespace_if_not_exists(levels)
            except Exception:
                if not catalog.namespace_exists(levels):
                    raise
