"""Random policies, and the catalog's document."""

from __future__ import annotations

from typing import Any

from bench.wild_tables.columns import leaves
from bench.wild_tables.table import Wild
from reconciler.api.catalog_config import CatalogConfig

API = "layout.lakehouse.dev/v1alpha1"
MODES = ("Keep", "Auto", "CopyOnWrite", "MergeOnRead")


def catalog_document(config: CatalogConfig) -> dict[str, Any]:
    given = {key: value for key, value in config.properties.items() if key != "type"}
    spec = {"type": config.type, "catalogName": config.name, "properties": given}
    return {
        "apiVersion": API,
        "kind": "IcebergCatalog",
        "metadata": {"name": config.name},
        "spec": spec,
    }


def policy_document(wild: Wild) -> dict[str, Any]:
    chance = wild.chance
    layout: dict[str, Any] = {"clustering": clustering(wild)}
    layout["files"] = {"minInputFiles": 2, "quietPeriod": "0s"}
    if chance.random() < 0.7:
        layout["files"]["targetSize"] = chance.choice(("5Ki", "50Ki", "1Mi"))
    if chance.random() < 0.5:
        layout["files"]["rowGroupSize"] = chance.choice(("2Ki", "20Ki"))
    if chance.random() < 0.3:
        layout["files"]["distributionMode"] = chance.choice(("None", "Hash", "Range"))
    spec: dict[str, Any] = {
        "catalogRef": {"name": wild.bench.config.name},
        "tables": {"include": [f"jobs.{wild.name}"]},
        "objectives": {"maxSmallFilePercent": 0, "maxDeletedRowsPercent": 0},
        "layout": layout,
        "deletes": {
            "compaction": chance.choice(("Major", "Major", "Auto", "Disabled")),
            "mode": chance.choice(MODES if wild.version > 1 else MODES[:-1]),
        },
        "safety": {
            "verify": chance.choice(("Full", "Sampled", "Counts")),
            "allowLiveBranches": True,
        },
    }
    if chance.random() < 0.4:
        keep = {"olderThan": "0s", "retainLast": chance.randint(1, 4)}
        spec["maintenance"] = {"expireSnapshots": keep}
    wild.log.append(f"policy {spec}")
    return {
        "apiVersion": API,
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "wild"},
        "spec": spec,
    }


def clustering(wild: Wild) -> dict[str, Any]:
    chance = wild.chance
    if chance.random() < 0.2:
        return {"mode": "None"}
    some = [one.name.replace("|", ".") for one in leaves(wild.columns) if "." not in one.name]
    keys = chance.sample(some, min(len(some), chance.randint(1, 3)))
    curve = "Hilbert" if len(keys) > 1 and chance.random() < 0.6 else "Lexicographic"
    return {
        "mode": "Declared",
        "keys": keys,
        "curve": curve,
        "applyToWrites": chance.random() < 0.3,
    }
