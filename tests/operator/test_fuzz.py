"""Whatever the API server accepts ends with a condition and a reason, and in no hot loop."""

from __future__ import annotations

from reconciler.kube.api import Api
from tests.cluster.cluster import Cluster
from tests.operator.fuzz import fuzz

DOCUMENTS, SEED = 80, 20261121
"""`bench.fuzz` takes 10,000."""


def test_wild_documents_end_with_a_condition_and_rest(cluster: Cluster, namespace: str) -> None:
    cluster.install_crds()
    api = Api.from_environment(str(cluster.kubeconfig))
    found = fuzz(api, str(cluster.kubeconfig), namespace, DOCUMENTS, SEED, rest=5)
    assert found.accepted > DOCUMENTS / 4 and found.refused > DOCUMENTS / 20, found
    assert not found.crashes, found.crashes[:5]
    assert not found.silent, found.silent[:5]
    assert found.busiest <= 60 and found.still_busy <= 3, found
    assert len(found.reasons) >= 8, found.reasons
