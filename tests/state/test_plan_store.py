"""Published plans: found by id, never overwritten, refused when altered."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from pathlib import Path

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import UnavailableError, UserError
from reconciler.plan.plan import Plan
from reconciler.state.plan_store import PlanStore
from tests.said import Said
from tests.state.test_shared_state import UUID, new_catalog, planned


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    return new_catalog(tmp_path)


@pytest.fixture
def store(config: CatalogConfig, tmp_path: Path) -> PlanStore:
    return PlanStore(config, f"file://{tmp_path}/published/")


def later(plan: Plan) -> Plan:
    """The same actions, predicted and made later."""
    return dataclasses.replace(
        plan, created=plan.created + dt.timedelta(hours=1), evidence={"trust": "newer"}
    )


def test_a_plan_lies_under_its_table_id_and_digest(store: PlanStore, tmp_path: Path) -> None:
    plan = planned()
    uri = store.put(plan)
    digest = plan.digest().removeprefix("sha256:")
    assert uri == f"file://{tmp_path}/published/{UUID}/{plan.id}-{digest}.json"
    assert uri == store.uri_of(plan)
    assert store.get(uri, plan.digest()) == plan
    assert json.loads(Path(uri.removeprefix("file://")).read_text()) == plan.document()


def test_publishing_again_writes_nothing(store: PlanStore) -> None:
    path = Path(store.put(planned()).removeprefix("file://"))
    path.chmod(0o400)
    before = path.stat().st_mtime_ns
    assert store.put(planned()).endswith(path.name)
    assert path.stat().st_mtime_ns == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_another_body_under_the_name_is_set_aside_and_the_plan_is_published(
    store: PlanStore,
) -> None:
    path = Path(store.put(planned()).removeprefix("file://"))
    for garbage in (b"{}", b"\x00" * 3_000_000):
        path.write_bytes(garbage)
        uri = store.put(planned())
        assert store.get(uri, planned().digest()) == planned()
        aside = path.with_name(path.name + ".unreadable")
        assert aside.read_bytes() == garbage[: 1 << 20]
        assert sorted(path.parent.iterdir()) == sorted([path, aside])
    assert store.find(UUID, planned().id) == planned()
    os.utime(aside, (1, 1))
    assert store.expire(dt.timedelta(days=30)) == 1 and path.exists()


def test_an_altered_plan_is_refused(store: PlanStore, said: Said) -> None:
    plan = planned()
    uri = store.put(plan)
    path = Path(uri.removeprefix("file://"))
    body = json.loads(path.read_text())
    body["policy"] = "another"
    path.write_text(json.dumps(body))
    with pytest.raises(UserError) as raised:
        store.get(uri, plan.digest())
    said(raised.value)
    assert plan.digest() in raised.value.render()
    assert store.find(UUID, plan.id) is None


def test_a_digest_of_another_plan_is_refused(store: PlanStore, said: Said) -> None:
    uri = store.put(planned(1))
    with pytest.raises(UserError) as refused:
        store.get(uri, planned(2).digest())
    said(refused.value)


def test_a_missing_plan_says_what_to_do(store: PlanStore, said: Said) -> None:
    with pytest.raises(UserError) as raised:
        store.get(store.uri_of(planned()), planned().digest())
    said(raised.value)
    assert "--publish" in raised.value.render()


def test_a_plan_is_found_by_id_and_the_newest_of_its_documents(store: PlanStore) -> None:
    first, second = planned(1), planned(2)
    assert store.find(UUID, first.id) is None
    store.put(first)
    store.put(second)
    assert store.find(UUID, first.id) == first
    store.put(later(first))
    assert store.find(UUID, first.id) == later(first)
    assert store.find(UUID, "p-" + "0" * 20) is None
    assert store.find("another-table", first.id) is None


def test_old_plans_expire_except_kept_ones_and_other_objects(
    store: PlanStore, tmp_path: Path
) -> None:
    old, kept, new = planned(1), planned(2), planned(3)
    paths = [Path(store.put(plan).removeprefix("file://")) for plan in (old, kept, new)]
    other = paths[0].with_name("notes.json")
    other.write_text("{}")
    for path in (paths[0], paths[1], other):
        os.utime(path, (1, 1))
    assert store.expire(dt.timedelta(days=30), keep={kept.id}) == 1
    assert [path.exists() for path in paths] == [False, True, True]
    assert other.exists()


def test_without_a_uri_plans_lie_beside_the_state_tables(
    config: CatalogConfig, tmp_path: Path
) -> None:
    created: list[str] = []
    store = PlanStore(config, on_created=created.append)
    assert store.find(UUID, planned().id) is None
    assert created == []
    uri = store.put(planned())
    assert len(created) == 1
    assert f"{tmp_path}/warehouse/" in uri
    assert "/plans/" in uri
    again = PlanStore(config)
    assert again.find(UUID, planned().id) == planned()
    assert again.get(uri, planned().digest()) == planned()


def test_a_place_that_cannot_be_written_is_one_clear_message(
    config: CatalogConfig, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError) as raised:
        PlanStore(config, f"file://{tmp_path}/file/plans").put(planned())
    said(raised.value)
    assert "spec.system.plans.uri" in raised.value.render()


def test_an_unknown_scheme_is_the_user_s_error(config: CatalogConfig, said: Said) -> None:
    with pytest.raises(UserError) as refused:
        PlanStore(config, "gopher://plans").put(planned())
    said(refused.value)


def test_the_body_holds_the_exact_digest(store: PlanStore) -> None:
    import hashlib

    uri = store.put(planned())
    body = Path(uri.removeprefix("file://")).read_bytes()
    assert f"-{hashlib.sha256(body).hexdigest()}.json" in uri
