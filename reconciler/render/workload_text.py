"""Shows what an import of queries found, and the recorded queries of each table, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.format import count, plural
from reconciler.queries.shape import STALE_MS
from reconciler.render.terminal import UNLIMITED, clip, commands, flow, tabulate, wrapped
from reconciler.table.times import DAY_MS

MOST_UNKNOWN = 10
"""Unknown columns that the text names; the document has all."""

NOTES = {
    "iceberg-scans": "scan reports have no values: they give the columns and the weights of"
    " queries, and the key, but no ranges",
    "duckdb": "a profile has no time: that of its file was taken",
}
"""What a format lacks, by its name."""


def render_import(body: dict[str, Any], width: int) -> str:
    rows = [("LOG", "READ", "KEPT", "SKIPPED", "EARLIER")]
    rows += [
        (item["path"], *(count(item[k]) for k in ("read", "kept", "skipped", "earlier")))
        for item in body["files"]
    ]
    lines = tabulate(rows, "lrrrr", width)
    if body["tables"]:
        lines += ["", *tabulate(_table_rows(body["tables"]), "lrl", width)]
    if body["skipped"]:
        skipped = [
            (reason, count(number), _where(body["files"], reason))
            for reason, number in body["skipped"].items()
        ]
        lines += ["", *tabulate([("SKIPPED", "", ""), *skipped], "lrl", width, least=24)]
    if body["fullScans"]:
        scans = [
            (reason, count(number), body["examples"].get(reason, ""))
            for reason, number in body["fullScans"].items()
        ]
        head = ("COUNTED AS READING THE WHOLE TABLE", "", "")
        lines += ["", *tabulate([head, *scans], "lrl", width)]
    if body["unknownColumns"]:
        named = [
            (item["table"], item["column"][:60], count(item["conditions"]))
            for item in body["unknownColumns"][:MOST_UNKNOWN]
        ]
        head = ("CONDITIONS IGNORED", "UNKNOWN COLUMN", "QUERIES")
        lines += ["", *tabulate([head, *named], "llr", width)]
        more = len(body["unknownColumns"]) - len(named)
        lines += [f"and {more:,} more columns"] if more else []
    if body["since"]:
        lines += ["", f"queries from {body['since']} to {body['until']}"]
    return "\n".join([*lines, *_remarks(body, width), "", *_next_after_import(body, width)])


def _remarks(body: dict[str, Any], width: int) -> list[str]:
    """Return what the counts do not show: what was read as which format, further events of queries,
    times without a zone."""
    forms = sorted({item["format"] for item in body["files"]} - {"sql"})
    found = [f"read as {', '.join(forms)}"] if forms else []
    found += [NOTES[form] for form in forms if form in NOTES]
    repeated = sum(item["repeated"] for item in body["files"])
    if repeated:
        what = plural(repeated, "line is a further event", "lines are further events")
        found.append(f"{what} of queries that are counted once")
    for item in body["files"]:
        found += [_of_another(item, form, number) for form, number in item["otherFormats"].items()]
        if item["damaged"]:
            found.append(
                f"{item['path']} is damaged from some place on: copy it and import it again;"
                " what was recorded is not counted again"
            )
    if body["withoutValues"]:
        what = plural(body["withoutValues"], "query has", "queries have")
        found.append(
            f"{what} placeholders instead of values, and only the columns count:"
            " export the log with the values, if it may have them"
        )
    times = body["timesWithoutZone"]
    if times["count"]:
        what = plural(times["count"], "time has", "times have")
        found.append(f"{what} no zone and were read as {times['readAs']} (--timezone)")
    return ["", *(line for text in found for line in wrapped(text, width))] if found else []


def _of_another(item: dict[str, Any], form: str, number: int) -> str:
    """Return how to read the records of a log that are of another system than the first."""
    what = plural(number, f"record of {item['path']} is", f"records of {item['path']} are")
    return f"{what} of the format {form}: --format {form} reads them from the same file"


def _table_rows(tables: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the logged queries, and the number of executions they represent if it differs."""
    return [("TABLE", "QUERIES", "")] + [
        (
            item["table"],
            count(item["queries"]),
            f"weight {count(item['weight'])}" if item["weight"] != item["queries"] else "",
        )
        for item in tables
    ]


def _where(files: Sequence[dict[str, Any]], reason: str) -> str:
    """Return "line 3, 17, 31 ...", with the log's name if there are several."""
    places = []
    for item in files:
        found = item["skippedLines"].get(reason, [])
        if found:
            numbers = ", ".join(f"{number}" for number in found)
            lines = f"{'line' if len(found) == 1 else 'lines'} {numbers}"
            places.append(f"{item['path']}: {lines}" if len(files) > 1 else lines)
    return "; ".join(places)


def _next_after_import(body: dict[str, Any], width: int) -> list[str]:
    if body["tables"]:
        name = body["tables"][0]["table"]
        following = [f"layoutctl workload show {name}", f"layoutctl plan {name}"]
        return commands(following, width, indent="")
    earlier = sum(item["earlier"] for item in body["files"])
    if earlier:
        following = ["layoutctl workload show"]
        said = f"nothing new: all {earlier:,} were imported before"
        return [said, *commands(following, width, indent="")]
    return ["nothing was recorded"]


def render_show(body: dict[str, Any], width: int) -> str:
    lines: list[str] = []
    for item in body["items"]:
        lines += [*_table_lines(item, width), ""]
    if body["skipped"]:
        rows = [(reason, f"{number:,}") for reason, number in body["skipped"].items()]
        lines += tabulate([("SKIPPED, ALL IMPORTS", ""), *rows], "lr", width)
    return "\n".join(lines).rstrip("\n")


def _table_lines(item: dict[str, Any], width: int) -> list[str]:
    if "error" in item:
        return wrapped(f"{item['table']}   {item['error']}", width, indent="  ")
    if not item["shapes"]:
        following = ["layoutctl workload import --dialect trino FILE"]
        return [*flow([item["table"], "no queries imported"], width), *commands(following, width)]
    queries = plural(item["queries"], "query", "queries")
    if item["recorded"] != item["queries"]:
        queries += f" ({plural(item['recorded'], 'entry', 'entries')} of the log, by weight)"
    facts = [item["table"], f"{queries} of {plural(len(item['shapes']), 'shape')}"]
    lines = flow([*facts, f"{item['since']} to {item['until']}"], width)
    lines += wrapped(f"explains {item['coveragePercent']} % of {item['coverageBasis']}", width)
    if item["stale"]:
        stale = f"warning: no query of the last {STALE_MS // DAY_MS} days; Automatic approval waits"
        lines += wrapped(stale, width, indent="  ")
    lines += ["", *_shape_lines(item["shapes"], width)]
    if item["skipped"]:
        rows = [(f"  {reason}", f"{number:,}") for reason, number in item["skipped"].items()]
        lines += ["", *tabulate([("  SKIPPED", ""), *rows], "lr", width)]
    return lines


def _columns(shape: dict[str, Any]) -> list[str]:
    """Return how many columns the shape's queries read, if not all of them read the same."""
    if shape["columnSets"] == 1:
        return []
    return [f"{shape['columnSets']:,} sets of columns, {shape['columnsMean']:.1f} on average"]


def _shape_lines(shapes: Sequence[dict[str, Any]], width: int) -> list[str]:
    """Return one row per shape; a very long condition ends in an ellipsis (-v shows all of it)."""
    rows = [["WEIGHT", "SHARE", "PER DAY", "LAST SEEN", "CONDITION"]]
    for shape in shapes:
        flags = (("moving", shape["moving"]), ("values unknown", shape["valuesUnknown"]))
        marks = ", ".join([*(text for text, on in flags if on), *_columns(shape)])
        text = shape["condition"] if width == UNLIMITED else clip(shape["condition"], 160)
        rows.append([
            count(shape["weight"]),
            f"{shape['sharePercent']:.0f} %",
            f"{shape['ratePerDay']:,.1f}",
            shape["lastSeen"][:10],
            text + (f"  ({marks})" if marks else ""),
        ])  # fmt: skip
    return tabulate(rows, "rrrll", width, indent="  ")
