"""Puts the live entries of some manifests into new ones, as Iceberg's RewriteManifests does."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.commit import fields, manifest, merging, summary
from reconciler.commit.manifest import DATA, DELETED, ManifestFile, ManifestWriter
from reconciler.commit.snapshot import PACKED, Make, MissingFilesError, SnapshotProducer
from reconciler.commit.table import Snapshot


def regrouped(inputs: Collection[str], group_of: Mapping[str, int]) -> Make:
    """Return what makes the snapshot. inputs: paths of the manifests. group_of: by data file, the
    group whose manifest is to hold it.

    Entries keep their snapshots and sequence numbers; no file is added or removed.
    """

    def make(producer: SnapshotProducer) -> Snapshot:
        head = producer.state.head(producer.change.branch)
        present = producer.table.manifests(head)
        data = [one for one in manifest.of_content(present, DATA) if one[fields.M_PATH] in inputs]
        missing = set(inputs) - {str(one[fields.M_PATH]) for one in data}
        if missing:
            raise MissingFilesError(sorted(missing))
        made, entries = _written(producer, data, group_of)
        kept = [one for one in present if one[fields.M_PATH] not in inputs]
        found = {
            **producer.change.summary,
            **summary.manifests(len(made), len(kept), len(data)),
            "entries-processed": str(entries),
            **summary.Counts().fields(0),
        }
        return producer.listed([*made, *kept], head, found)

    return make


def _written(
    producer: SnapshotProducer, data: Collection[ManifestFile], group_of: Mapping[str, int]
) -> tuple[list[ManifestFile], int]:
    """Return the new manifests, and the number of entries in them."""
    target = merging.settings(producer.state.properties).target
    open_: dict[tuple[int, int], ManifestWriter] = {}  # by group and spec id
    made, entries = [], 0
    some = list(data)
    for one, held in zip(some, producer.table.entries(some), strict=True):
        for entry in held:
            if entry.status == DELETED:
                continue
            spec_id = int(one[fields.M_SPEC])
            key = group_of.get(entry.file.path, 0), spec_id
            if key in open_ and len(open_[key].body) >= PACKED * target:
                made.append(producer.close(open_.pop(key)))
            if key not in open_:
                open_[key] = producer.writer(spec_id, DATA)
            open_[key].put(entry)
            entries += 1
    made += [producer.close(open_[key]) for key in sorted(open_)]
    return made, entries
