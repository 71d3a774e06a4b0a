"""10,000 documents of wild values through the API server and the operator's reconciles.

Run with `python -m bench.fuzz [DOCUMENTS] [SEED]`. tests/operator/test_fuzz.py is the short form.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section
from reconciler.kube.api import Api
from reconciler.kube.kinds import NAMESPACE
from tests.cluster import binaries
from tests.cluster.cluster import Cluster
from tests.operator.fuzz import fuzz

NAME = "fuzz"


def main(documents: int, seed: int) -> None:
    programs = binaries.directory("kube")
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as directory,
        Cluster(Path(directory), programs) as cluster,
    ):
        cluster.install_crds()
        api = Api.from_environment(str(cluster.kubeconfig))
        api.create(NAMESPACE, None, {"metadata": {"name": NAME}})
        started = time.monotonic()
        found = fuzz(api, str(cluster.kubeconfig), NAME, documents, seed)
        seconds = time.monotonic() - started
    for line in (*found.silent[:20], *found.crashes[:20]):
        print(line)
    for reason, count in found.reasons.most_common():
        print(f"{count:6d} {reason}")
    rows = [
        ("what", "goal", "measured"),
        ("accepted by the API server", "-", str(found.accepted)),
        ("refused by it", "-", str(found.refused)),
        ("accepted and without a condition", "0", str(len(found.silent))),
        ("reconciles that failed, answers that were not verdicts", "0", str(len(found.crashes))),
        ("reconciles of the busiest key", "-", str(found.busiest)),
        ("of these in 10 s after all had settled", "at most 3", str(found.still_busy)),
        ("different conditions and reasons", "-", str(len(found.reasons))),
        ("time", "-", f"{seconds:.0f} s"),
    ]
    note = "Seeded documents of the CRDs' own schemas, one in ten broken; the catalog is simulated."
    print(write_section("Wild documents", f"python -m bench.fuzz {documents} {seed}", rows, note))


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    main(*(numbers + [10_000, 20261121][len(numbers) :]))
