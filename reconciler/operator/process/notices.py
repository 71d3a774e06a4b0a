"""Tells people that a watched namespace cannot be read: an event, and Ready of its policies."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reconciler.api.conditions import Reason
from reconciler.kube.api import Api
from reconciler.kube.errors import ApiError
from reconciler.kube.kinds import LEASE, POLICY
from reconciler.operator.index import Index
from reconciler.operator.policy.status import PolicyView, policy_status
from reconciler.operator.ports import Problem


@dataclass(frozen=True, slots=True)
class Notices:
    """Writes them."""

    api: Api
    """The API server."""
    index: Index
    """Holds the namespace's objects as they were last seen."""
    namespace: str
    """The operator's own."""
    lease: str
    """Name of its Lease, to which the event belongs."""

    def broken(self, namespace: str, why: str) -> None:
        """Tell that the namespace is set aside. What cannot be written is left out."""
        text = f"namespace {namespace} cannot be read and is set aside: {why}"
        lease = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self.namespace, "name": self.lease, "uid": ""},
        }
        self.api.event(lease, Reason.NAMESPACE_UNREADABLE.value, text, "Warning")
        for body in self.index.policies(namespace):
            meta = body["metadata"]
            problem = Problem(Reason.NAMESPACE_UNREADABLE.value, why, stalls=False)
            status = policy_status(
                body["status"], PolicyView((), 0, {}, False, problem),
                int(meta.get("generation") or 0), dt.datetime.now(dt.UTC),
            )  # fmt: skip
            try:
                self.api.put_status(
                    POLICY, namespace, meta["name"], status, meta["resourceVersion"]
                )
            except ApiError:
                continue
