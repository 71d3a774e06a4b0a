"""The border to REST catalogs: their servers set only what is listed, their answers are bounded,
and they name no class that authenticates.

Importing it takes long, so that `opening` does it only for such a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import Capability, Endpoint, HttpMethod, RestCatalog, TableResponse
from pyiceberg.catalog.rest import auth as rest_auth
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from requests import HTTPError

from reconciler.api import served_properties as served
from reconciler.catalog import answers, blob_types, vended
from reconciler.catalog.border import file_io, permitted, refuse
from reconciler.catalog.network import current_reach, on_behalf
from reconciler.table.catalog_policies import NO_BOUNDS, CatalogBounds, bounds_of

if TYPE_CHECKING:
    from pyiceberg.typedef import Identifier

POLICIES = Endpoint(http_method=HttpMethod.GET, path="/polaris/v1/{prefix}/applicable-policies")
"""Apache Polaris' endpoint for the policies that apply to a table."""
MOST_PAGES = 20
"""Pages of policies that are read: a table has one of each type."""
REFUSALS = (403, 404, 405, 501)
"""Answers by which a server says that this client gets no policies."""
AUTHORIZED_BY = ("auth", "token", "credential")
"""Properties from which pyiceberg makes the Authorization header."""
_create_auth_manager = rest_auth.AuthManagerFactory.create


class GuardedRestCatalog(RestCatalog):
    """A REST catalog whose server sets only what api.served_properties lists."""

    def __init__(self, name: str, **properties: Any):
        self._own = dict(properties)
        self.bounded: Callable[[Callable[[], Any]], Any] = lambda call: call()
        """Carries out a call that asks for keys, within the time that the catalog has."""
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        merged = self.properties
        sent = {key: merged[key] for key in merged if self._own.get(key) != merged[key]}
        origin = str(self._own["uri"])
        self.properties = {**self._own, **served.catalog_config(sent, origin)}
        self.uri = self.properties["uri"]

    def _create_session(self) -> Any:
        """Send no Authorization where nothing names one: pyiceberg 0.12 would send "Bearer None",
        in the place of a header that the catalog's properties set."""
        if any(self.properties.get(name) for name in AUTHORIZED_BY):
            return super()._create_session()
        given = self.properties
        self.properties = {**given, "auth": {"type": "noop"}}
        try:
            return super()._create_session()
        finally:
            self.properties = given

    @property
    def has_policies(self) -> bool:
        """Whether the server says that it keeps policies for tables."""
        return POLICIES in self._supported_endpoints

    def bounds_of(self, identifier: tuple[str, ...]) -> CatalogBounds:
        """Return the bounds by the policies that apply to the table. Raises whatever an answer is
        an error of, save that this client gets none."""
        place = POLICIES.path.format(prefix=self.properties.get("prefix", "")).replace("//", "/")
        asked = {"namespace": "\x1f".join(identifier[:-1]), "target-name": identifier[-1]}
        found: list[Any] = []
        with answers.one_listing():
            for _ in range(MOST_PAGES):
                answer = self._session.get(self.uri.rstrip("/") + place, params=asked)
                if answer.status_code in REFUSALS:
                    why = f"the catalog answers {answer.status_code} to the question for policies"
                    return replace(NO_BOUNDS, unread=why)
                if not answer.ok:
                    _handle_non_200_response(HTTPError(response=answer), {})
                page = answer.json()
                found += page.get("applicable-policies") or ()
                if not page.get("next-page-token"):
                    return bounds_of(found)
                asked["pageToken"] = str(page["next-page-token"])
        raise ValueError(f"more than {MOST_PAGES} pages of policies")

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        with answers.one_listing():
            found: list[Identifier] = super().list_tables(namespace)
            return found

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        with answers.one_listing():
            found: list[Identifier] = super().list_namespaces(namespace)
            return found

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Table:
        config, io = self._accepted(table_response, identifier_tuple)
        return Table(
            identifier=identifier_tuple,
            metadata_location=table_response.metadata_location,
            metadata=table_response.metadata,
            io=io,
            catalog=self,
            config=config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: Any
    ) -> StagedTable:
        _, io = self._accepted(table_response, None)
        return StagedTable(
            identifier=identifier_tuple,
            metadata_location=table_response.metadata_location,
            metadata=table_response.metadata,
            io=io,
            catalog=self,
        )

    def _accepted(
        self, response: TableResponse, identifier: tuple[str, ...] | None
    ) -> tuple[dict[str, str], FileIO]:
        """Return the table's config and its FileIO, from the listed properties of the server's
        answer. identifier: None for a table that is not there yet, whose keys stay."""
        location = response.metadata_location
        config = served.table_config(response.config, self.uri)
        own = self._resolve_storage_credentials(response.storage_credentials, location)
        keys = {**config, **served.table_config(own, self.uri)}
        io = self._load_file_io(keys, location)
        if identifier is None or not vended.vends(io, keys):
            return config, io
        before, reach = dict(io.properties), current_reach()

        def ask() -> dict[str, Any]:
            new = self.bounded(partial(self.keys_of, identifier, location))
            return vended.renewed(before, new)

        def make(given: Mapping[str, Any]) -> FileIO:
            with on_behalf(reach):  # whichever thread asks
                return file_io(given, location)

        return config, vended.VendedFileIO(vended.Keys(before, ask), make)

    def keys_of(self, identifier: tuple[str, ...], location: str | None) -> dict[str, Any]:
        """Return new keys for the table's files: by loadCredentials where the server has it, else
        by loading the table anew. location: of its metadata.

        Raises whatever the server's answer is an error of; ValueError if there are no keys in it.
        """
        if Capability.V1_LOAD_CREDENTIALS in self._supported_endpoints:
            given = served.table_config(self.load_credentials(identifier, location or ""), self.uri)
            keys = vended.only_keys(given)
            if keys:
                return keys
        return vended.only_keys(vended.handed_out(self.load_table(identifier).io))

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        merged = {**self.properties, **(properties or {})}
        if self._auth_manager:
            merged[rest_auth.AUTH_MANAGER] = self._auth_manager
        return file_io(merged, location)


def _guarded_auth_manager(class_or_name: str, config: dict[str, Any]) -> Any:
    registered = class_or_name in rest_auth.AuthManagerFactory._registry
    if not registered and not permitted(class_or_name):
        raise refuse(class_or_name)
    return _create_auth_manager(class_or_name, config)


answers.bound_answers()
blob_types.accept_any(TableResponse, CommitTableResponse)
rest_auth.AuthManagerFactory.create = staticmethod(_guarded_auth_manager)  # type: ignore[method-assign]
