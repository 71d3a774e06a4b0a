"""A plan says what becomes of the statistics that engines collected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from reconciler.loop.local_actor import LocalActor
from reconciler.render.markdown_sections import details
from tests.loop.test_step import DECLARED, actor, step_of

__all__ = ["actor"]


def test_a_plan_says_that_statistics_stay(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("analyzed", files=3)
    step = step_of(catalog_config, "analyzed", **DECLARED)
    assert "statistics" not in step.propose(actor).plan.evidence
    head = table.refresh().current_snapshot().snapshot_id
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1",
        snapshot_id=head, sequence_number=1, fields=[1], properties={"ndv": "7"},
    )  # fmt: skip
    listed = StatisticsFile(
        snapshot_id=head, statistics_path=f"{table.location()}/metadata/a.stats",
        file_size_in_bytes=4, file_footer_size_in_bytes=4, blob_metadata=[blob],
    )  # fmt: skip
    with table.update_statistics() as update:
        update.set_statistics(listed)
    document = step.propose(actor).plan.document()
    said = document["evidence"]["statistics"]
    assert "1 column" in said
    assert any(said in part for part in details(document, 5))
