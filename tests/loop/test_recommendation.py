"""What a recommendation declares, and how it is shown, for tables too large for a test to write:
the files of a small simulated table claim many times their rows and bytes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from html import escape
from typing import Any

import jsonschema
import numpy as np
import pytest

from reconciler.advisor.pto.fallen import TOO_THIN
from reconciler.advisor.pto.objective import Costs
from reconciler.advisor.pto.partitionings import CommitFiles, Ingest
from reconciler.advisor.pto.recommend import RecommendInput, recommend
from reconciler.advisor.pto.trees import TREE_OF_CUTS
from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import ClusteringMode, DistributionMode, PartitioningMode
from reconciler.api.load import load
from reconciler.api.policy_edit import edited
from reconciler.catalog.deletes import apply_deletes
from reconciler.format import iec
from reconciler.loop.ports import RecordedQueries, Target
from reconciler.loop.recommend import Options, Recommended, unbounded
from reconciler.loop.recommendation_document import (
    RECOMMENDATION_SCHEMA,
    described,
    policy_changes,
    recommendation_document,
)
from reconciler.queries.coverage import Coverage
from reconciler.queries.demanded import MAX_QUERIES, demands
from reconciler.queries.predicate import fields_of
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.render import recommend_html, recommend_markdown, recommend_text
from reconciler.state.sketch import TableSample
from reconciler.table.block_ids import COLUMN
from reconciler.table.deletes import NO_DELETE_FILES
from reconciler.table.filetable import FileTable
from reconciler.table.observation import Observation
from reconciler.table.schema import PartitionSpec
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SCHEMA,
    arrived,
    claiming,
    range_workload,
    workload,
)
from tests.catalog.test_deletes import delete_files
from tests.cli import observations
from tests.said import Said

ROWS, FILES, MANY = 200_000, 10, 300
DEFAULTS, SAMPLED = Options(), 4_000
CHEAP = Costs("cheap", 16_384.0, 8_192.0, 2_048.0, "a test")
MONTH_MS = 30 * DAY
POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales}
spec:
  catalogRef: {name: rec}
  tables: {include: ["shop.sales"]}
"""
NOW = dt.datetime(2026, 11, 25, tzinfo=dt.UTC)


def mixed(seed: int = 3) -> Workload:
    """Ranges of days and of parts, which any file may hold, and ranges of ids, which arrive in
    order."""
    random = np.random.default_rng(seed)
    return workload(
        range_workload(random, DATE, 24, 20, 2_000),
        range_workload(random, PART, 12, 300, 100_000, start=500),
        range_workload(random, KEY, 4, 2_000, ROWS, start=900),
    )


def recommended(
    work: Workload, *, times: int = MANY, commit_files: float = 0.0, deletes: bool = False,
    options: Options = DEFAULTS, rho: float = 4.0, by_spark: str = "its rows hold a type of Spark",
    without_bounds: frozenset[int] = frozenset(),
) -> Recommended:  # fmt: skip
    """The recommendation for 10 files of 560 kB x `times`, whose days and parts are anywhere."""
    random = np.random.default_rng(3)
    table = arrived(random, ROWS, ROWS // FILES, days=2_000, jitter=2_000)
    seen = _observed(claiming(table.file_table(), times), deletes=deletes)
    sample = table.sample(np.arange(FILES), SAMPLED)
    ingest = Ingest(files=commit_files)
    wanted = demands(work, SCHEMA, MONTH_MS)
    given = RecommendInput(
        table_view(seen.files, None, sample, 128 << 20), PartitionSpec(0), wanted, CHEAP, rho,
        MONTH_MS, ingest, options.method, options.seed,
        options.keep_partitioning, (("the first half of the log", wanted[:1]),),
        by_spark=by_spark, unbounded=without_bounds,
    )  # fmt: skip
    return Recommended(
        Target(CatalogConfig("warehouse", "sql", {}), seen.identifier), seen,
        RecordedQueries(work, Coverage(1.0, "bytes"), work), options,
        TableSample(sample, 1 << 20, 0, FILES, 0), PRIOR_THROUGHPUT, given, recommend(given), NOW,
    )  # fmt: skip


def _observed(files: FileTable, *, deletes: bool) -> Observation:
    seen = replace(observations.lineitem(1, 1), files=files, identifier=("shop", "sales"))
    if not deletes:
        return seen
    late = int(files.sequence.max()) + 1
    found = apply_deletes(
        files, delete_files({"content": 2, "sequence": late, "records": 40}), files.specs
    )
    return replace(seen, files=found.files, delete_files=found.deletes, deletes=found.load)


@pytest.fixture(scope="module")
def partitioned() -> Recommended:
    """A partition spec is recommended: to a table with an equality delete, whose commits write 8
    files."""
    return recommended(mixed(), commit_files=8.0, deletes=True)


@pytest.fixture(scope="module")
def kept() -> Recommended:
    """The same table; its partitioning is to stay."""
    return recommended(mixed(), options=Options(keep_partitioning=True))


def test_a_chosen_partitioning_is_declared_with_what_its_writers_need(partitioned):
    body = recommendation_document(partitioned)
    jsonschema.validate(body, RECOMMENDATION_SCHEMA)
    (field,) = body["policy"]["partitioning"]["fields"]
    assert field["column"] == "part" and field["transform"].startswith("truncate[")
    partitions = 100_000 // int(field["transform"].removeprefix("truncate[").rstrip("]"))
    assert partitioned.recommendation.chosen.commit == CommitFiles(8.0 * partitions, partitions)
    assert body["policy"]["files"]["distributionMode"] == "Hash"


def test_the_policy_with_a_chosen_partitioning_is_one_that_the_reader_accepts(
    partitioned, tmp_path
):
    body = recommendation_document(partitioned)
    (tmp_path / "sales.yaml").write_text(edited(POLICY, 0, policy_changes(body["policy"])))
    documents = load([tmp_path / "sales.yaml"])
    layout = documents.policies[0].spec.layout
    (field,) = layout.partitioning.fields
    assert (layout.partitioning.mode, field.column) == (PartitioningMode.DECLARED, "part")
    assert layout.files.distribution_mode is DistributionMode.HASH


UNSORTED = {"clustering": {"mode": "WorkloadAware"}, "files": {"targetSize": "64Mi"}}


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("{mode: None}", ClusteringMode.NONE),
        ("{mode: Declared, keys: [part]}", ClusteringMode.WORKLOAD_AWARE),
        ("{mode: WorkloadAware}", ClusteringMode.WORKLOAD_AWARE),
    ],
)
def test_a_layout_without_a_key_takes_keys_out_and_leaves_none_switched_off(
    written: str, mode: ClusteringMode, tmp_path
):
    path = tmp_path / "sales.yaml"
    path.write_text(f"{POLICY.rstrip()}\n  layout:\n    clustering: {written}\n")
    present = load([path]).policies[0].spec.layout.clustering.mode
    path.write_text(edited(path.read_text(), 0, policy_changes(UNSORTED, present)))
    layout = load([path]).policies[0].spec.layout
    assert (layout.clustering.mode, layout.clustering.keys) == (mode, ())
    assert layout.files.target_bytes == 64 << 20


def test_a_migration_that_would_wait_is_a_warning_with_its_reason(partitioned):
    def waiting(made: Recommended) -> list[str]:
        found = recommendation_document(made)["warnings"]
        return [text for text in found if text.startswith("the migration waits: ")]

    (text,) = waiting(partitioned)
    assert "1 equality delete" in text
    seen = partitioned.observation
    clean = replace(seen, delete_files=NO_DELETE_FILES)
    assert waiting(replace(partitioned, observation=clean)) == []


def test_a_partitioning_that_is_to_stay_is_the_only_candidate(partitioned, kept):
    body = recommendation_document(kept)
    assert body["chosen"] and "partitioning" not in body["policy"]
    assert all(not layout["partitioning"] for layout in body["layouts"])
    assert "distributionMode" not in body["policy"]["files"]
    best = partitioned.recommendation.chosen
    assert kept.recommendation.chosen.total > best.total, "it was not the best one"


def test_why_each_candidate_fell_is_said_the_cheapest_first(partitioned):
    fell = recommendation_document(partitioned)["fell"]
    costs = [float(item["why"].split()[1]) for item in fell if item["why"] != TOO_THIN]
    assert costs == sorted(costs) and costs[0] >= 0.0 and len(fell) > 20


def test_a_baseline_that_the_sample_cannot_judge_is_left_out_with_the_reason():
    """The expert's row groups of a table of 45 GiB have fewer than ten sampled rows."""
    made = recommended(mixed(), times=16_000, options=Options(keep_partitioning=True))
    body = recommendation_document(made)
    assert "expert" not in {it["name"] for it in body["layouts"]}
    (unjudged,) = (it["what"] for it in body["fell"] if it["why"] == TOO_THIN)
    assert "expert" in unjudged


def test_a_sample_too_thin_for_every_candidate_recommends_nothing(said: Said):
    made = recommended(mixed(), times=900_000, options=Options(keep_partitioning=True))
    found = made.recommendation
    assert found.chosen is None and found.others == () and found.labelled == 0 < found.candidates
    assert found.sampled_rows < 10.0 and found.sampled == SAMPLED * FILES
    body = recommendation_document(made)
    jsonschema.validate(body, RECOMMENDATION_SCHEMA)
    assert body["policy"] is None and [it["name"] for it in body["layouts"]] == ["today"]
    said(body["keep"])
    assert escape(body["keep"]) in recommend_html.render(body)


def test_if_every_partitioning_is_refused_the_present_one_is_declared_in_another_order(monkeypatch):
    monkeypatch.setattr("reconciler.advisor.pto.partitionings.MOST_PARTITIONS", 1)
    made = recommended(mixed(), times=1)
    found = made.recommendation
    assert {layout.spec for layout in (found.chosen, *found.others)} == {PartitionSpec(0)}
    assert len(found.refused) >= 10 and all(item.why for item in found.refused)
    assert "partitioning" not in recommendation_document(made)["policy"]


def test_who_loses_and_other_evidence_are_said(partitioned, kept, said: Said):
    """Ids arrive in order, so any other order is worse for those who look for them."""
    body = recommendation_document(partitioned)
    chosen = partitioned.recommendation.chosen
    (worse,) = (partitioned.given.demands[number] for number in chosen.worse)
    assert fields_of(worse.predicate) == (KEY,)
    (loser,) = next(it["worse"] for it in body["layouts"] if it["name"] == body["chosen"])
    assert loser["bytesAfter"] > 1.01 * loser["bytesNow"] and loser["queries"] == 4
    early, half = recommendation_document(kept)["sensitivity"]
    assert early["costsMorePercent"] > 0.0 == half["costsMorePercent"]
    assert early["layout"] != half["layout"] == described(kept.recommendation.chosen, SCHEMA)
    shown = {**body, "sensitivity": [early, half]}
    said(recommend_text.render(_short(shown), 100, verbose=False))
    said(recommend_markdown.render(_short(shown)))
    page = recommend_html.render(shown)
    assert recommend_text.costs_more(early) in page and recommend_text.costs_more(half) in page
    hardly = {**early, "costsMorePercent": 0.04}
    assert recommend_text.costs_more(hardly) == recommend_text.costs_more(half)
    assert [recommend_text.differs(it) for it in (early, hardly, half)] == [True, False, False]


def test_keeping_what_there_is_is_said_everywhere(said: Said):
    """A rewrite that costs a thousand million times a reading never pays."""
    made = recommended(mixed(), options=Options(keep_partitioning=True), rho=1e9)
    body = recommendation_document(made)
    assert body["chosen"] is None and body["policy"] is None and body["savesPercent"] == 0.0
    assert body["keep"] == made.recommendation.keep
    assert escape(body["keep"]) in recommend_html.render(body)
    said(recommend_text.render(_short(body), 80, verbose=False))
    said(recommend_markdown.render(_short(body)))


def test_a_large_log_is_thinned_and_that_is_said(kept, said: Said):
    random = np.random.default_rng(5)
    work = workload(range_workload(random, DATE, 2_400, 20, 100_000))
    wanted = demands(work, SCHEMA, MONTH_MS)
    given = replace(kept.given, demands=wanted)
    large = replace(kept, given=given, queries=replace(kept.queries, workload=work))
    large = replace(large, recommendation=replace(kept.recommendation, chosen=None, others=()))
    body = recommendation_document(large)
    assert body["workload"]["queries"] == 2_400
    assert body["workload"]["simulatedQueries"] == MAX_QUERIES == 2_000
    assert sum(float(demand.weight.sum()) for demand in large.given.demands) == 2_400.0
    for simulated in (MAX_QUERIES, 1):
        work = {**body["workload"], "simulatedQueries": simulated}
        shown = recommend_text.render({**body, "workload": work}, 100, verbose=False)
        said(next(line for line in shown.splitlines() if line.startswith("Workload:")))


def test_a_layout_that_costs_as_much_as_the_chosen_one_is_said_to_cost_the_same(
    partitioned, said: Said
):
    body = recommendation_document(partitioned)
    chosen = next(it for it in body["layouts"] if it["name"] == body["chosen"])["totalCostBytes"]
    shown = {}
    for factor in (1.0, 0.9961, 1.0039, 1.0061):
        layouts = [
            {**item, "totalCostBytes": factor * chosen} if item["name"] == "expert" else item
            for item in body["layouts"]
        ]
        shown[factor] = _headline({**body, "layouts": layouts})
    assert shown[1.0] == shown[0.9961] == shown[1.0039] != shown[1.0061]
    said(shown[1.0])


def test_the_headline_says_how_the_most_frequent_queries_fare(partitioned, said: Said):
    body = recommendation_document(partitioned)
    said(_headline(body))
    most = max(body["shapes"], key=lambda item: item["queries"])
    slower = {**most, "bytesAfter": 2 * most["bytesNow"]}
    layouts = [
        {**item, "worse": [slower]} if item["name"] == body["chosen"] else item
        for item in body["layouts"]
    ]
    said(_headline({**body, "layouts": layouts}))


def _headline(body: dict[str, Any]) -> str:
    return recommend_text.render(body, 100, verbose=False).partition("\n\n")[2].partition("\n\n")[0]


def test_what_is_shown_to_be_read_is_what_the_choice_was_made_by(partitioned):
    """The log has less than ten days, and the horizon thirty."""
    body = recommendation_document(partitioned)
    text = recommend_text.render(body, 1_000, verbose=False)
    for item in body["layouts"]:
        ahead, recorded = item["readAhead"], item["read"]
        assert ahead["bytes"] > 2.5 * recorded["bytes"]
        assert ahead["low"] <= ahead["bytes"] <= ahead["high"]
        assert iec(ahead["bytes"]) in text
        assert item["readingCostBytes"] >= ahead["bytes"]


WITH_KEYS = """  layout:
    clustering: {mode: Declared, keys: [part, day], curve: Hilbert}
"""


def test_a_tree_that_is_clearly_better_than_every_key_is_declared(tmp_path):
    """Ranges of three columns, in files of a size that shows it; the policy named a
    curve."""
    work = mixed()
    made = recommended(work, by_spark="")
    found = made.recommendation
    assert found.chosen is not None and found.chosen.ordering.tree is not None
    assert "% more" in found.fell[0][1]  # the best key, by all queries
    body = recommendation_document(made)
    jsonschema.validate(body, RECOMMENDATION_SCHEMA)
    rows = found.chosen.leaf_rows
    assert body["policy"]["clustering"] == {"mode": "QdTree", "qdTree": {"leastRows": rows}}
    assert "tree of" in recommend_text.render(body, 100, verbose=False)
    path = tmp_path / "sales.yaml"
    path.write_text(edited(POLICY + WITH_KEYS, 0, policy_changes(body["policy"])))
    clustering = load([path]).policies[0].spec.layout.clustering
    assert (clustering.mode, clustering.keys) == (ClusteringMode.QD_TREE, ())
    assert clustering.qd_tree is not None and clustering.qd_tree.least_rows == rows
    path.write_text(edited(path.read_text(), 0, policy_changes(UNSORTED)))
    back = load([path]).policies[0].spec.layout.clustering
    assert (back.mode, back.qd_tree) == (ClusteringMode.WORKLOAD_AWARE, None)


def test_where_spark_writes_no_tree_is_a_candidate_and_the_reason_is_said(kept):
    body = recommendation_document(kept)
    (why,) = (item["why"] for item in body["refused"] if item["what"] == TREE_OF_CUTS)
    assert "Spark" in why
    assert all(item["curve"] != "QdTree" for item in body["layouts"])


def test_the_column_of_block_ids_cuts_no_tree_and_is_no_key():
    """Its ids name the leaves of the present tree: queries that were routed have conditions on
    it."""
    seen = _observed(claiming(arrived(np.random.default_rng(3), 1_000, 100).file_table(), MANY),
                     deletes=False)  # fmt: skip
    assert unbounded(seen) == frozenset()
    metadata = replace(seen.metadata, properties={COLUMN: str(PART)}, tops={"part": (PART, "int")})
    owned = unbounded(replace(seen, metadata=metadata))
    assert owned == {PART}
    made = recommended(mixed(), by_spark="", without_bounds=owned)
    chosen = made.recommendation.chosen
    assert chosen is not None
    assert PART not in {column.field_id for column in chosen.ordering.key}
    tree = chosen.ordering.tree
    assert tree is None or PART not in tree.columns


def _short(body: dict[str, Any]) -> dict[str, Any]:
    """The document with the first entries of its long lists."""
    return {**body, **{key: body[key][:4] for key in ("layouts", "fell", "refused")}}


def test_columns_without_a_stored_size_are_named(kept: Recommended) -> None:
    """A manifest need not have sizes of columns; footers that were read do not replace them."""

    def said_with(sizes: dict[int, np.ndarray]) -> list[str]:
        files = replace(kept.observation.files, column_sizes=sizes)
        made = replace(kept, observation=replace(kept.observation, files=files))
        body = recommendation_document(made)
        jsonschema.validate(body, RECOMMENDATION_SCHEMA)
        return [text for text in body["warnings"] if "manifests" in text]

    every = dict(kept.observation.files.column_sizes)
    assert said_with(every) == []
    (one,) = said_with({**every, DATE: np.where(np.arange(FILES) == 3, -1, every[DATE])})
    (rest,) = said_with({})
    name = {field.field_id: f'"{field.name}"' for field in SCHEMA.fields}
    assert name[DATE] in one and name[KEY] not in one
    assert name[KEY] in rest
