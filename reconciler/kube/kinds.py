"""The kinds of Kubernetes objects that the reconciler reads or writes, and their URL paths."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.version import GROUP, VERSION

OPERATOR_MANAGER = "layout-reconciler"
"""Field manager of everything that the operator writes."""
CLI_MANAGER = "layoutctl"
"""Field manager of everything that a person writes through `layoutctl`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object, and how its URL is made."""

    group: str
    """The API group, "" for the core group."""
    version: str
    """The API version within the group."""
    kind: str
    """The kind's name in documents."""
    plural: str
    """The kind's name in URLs."""
    namespaced: bool = True
    """Whether its objects have a namespace."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Return the URL path of one object or of a collection; namespace None: over all
        namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


POLICY = Kind(GROUP, VERSION, "TableLayoutPolicy", "tablelayoutpolicies")
TABLE_LAYOUT = Kind(GROUP, VERSION, "TableLayout", "tablelayouts")
CATALOG = Kind(GROUP, VERSION, "IcebergCatalog", "icebergcatalogs")
JOB = Kind("batch", "v1", "Job", "jobs")
POD = Kind("", "v1", "Pod", "pods")
SECRET = Kind("", "v1", "Secret", "secrets")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
