"""A recommendation as text for a terminal, from its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import count, cpu, duration, iec, plural
from reconciler.plan.money import beside, money_text
from reconciler.render.terminal import commands, tabulate, wrapped

Document = Mapping[str, Any]

NAMES = {"expert": "the expert's layout", "default": "the default layout"}
"""Layouts that people would declare without a recommendation."""

FEW = 8
"""Entries of a list that are shown without -v."""


def render(body: Document, width: int, *, verbose: bool, following: Sequence[str] = ()) -> str:
    """Return the text. following: commands to run next."""
    lines = [
        *_head(body, width),
        "",
        *_verdict(body, width),
        "",
        *_table(body, width),
        *_losers(body, width),
        *_policy(body),
        *_considered(body, width, verbose),
        *_sensitivity(body, width),
    ]
    for warning in body["warnings"]:
        lines += ["", *wrapped(f"warning: {warning}", width, indent="  ")]
    if following:
        lines += ["", *commands(following, width)]
    return "\n".join(lines)


def simulated(body: Document) -> str:
    """Return how many candidates were simulated, and how many sizes beside theirs."""
    of = f"{count(body['labelled'])} of {count(body['candidates'])} candidates simulated"
    return f"{of}, and {plural(body['finer'], 'more size')} of the best" if body["finer"] else of


def _head(body: Document, width: int) -> list[str]:
    work, sample, costs = body["workload"], body["sample"], body["objective"]
    texts = [
        f"{body['table']}   recommended by {body['method']}: {simulated(body)}",
        f"Workload: {plural(work['queries'], 'query', 'queries')}, {work['days']:g} days to "
        f"{work['until'][:10]}, {plural(work['shapes'], 'shape')}{_thinned(work)}, explains "
        f"{work['coveragePercent']} % of {work['coverageBasis']}",
        f"Sample: {count(sample['rows'])} rows of {plural(sample['files'], 'file')} "
        f"({sample['filesSampledBefore']} sampled before, the oldest {sample['takenAt']}), "
        f"{iec(sample['bytesRead'])} of {iec(sample['budgetBytes'])} read, "
        f"{sample['rowsPerSmallestRowGroup']:.0f} rows per smallest row group",
        f"Costs: {costs['costs']} ({costs['costsSource']}); a file {iec(costs['fileBytes'])} "
        f"and its footer, a row group {iec(costs['rowGroupBytes'])} + "
        f"{iec(costs['rowGroupColumnBytes'])} per column; rewriting 1 byte counts as "
        f"reading {costs['rho']:g}; over {duration(costs['horizonSeconds'])}",
    ]
    return [line for text in texts for line in wrapped(text, width, indent="  ")]


def _thinned(work: Document) -> str:
    """Return how many queries represent all, if similar ones were merged."""
    simulated = work.get("simulatedQueries", work["queries"])
    stand = plural(simulated, "query stands", "queries stand")
    return f", {stand} for all" if simulated < work["queries"] else ""


def _verdict(body: Document, width: int) -> list[str]:
    if body["chosen"] is None:
        return wrapped(f"Keep what you have: {body['keep']}.", width)
    chosen = _named(body, body["chosen"])
    group = chosen["rowGroup"]
    opened, before = (it["readAhead"]["filesOpened"] for it in (chosen, _named(body, "today")))
    instead = "as today" if opened == before else f"instead of {count(before)}"
    costs = 100.0 * (
        1.0 - chosen["totalCostBytes"] / max(_named(body, "today")["totalCostBytes"], 1)
    )
    over = duration(body["objective"]["horizonSeconds"])
    verb = "Declare" if body["policy"] else "To compare with"
    return wrapped(
        f"{verb}: {chosen['what']}, files of {iec(chosen['targetBytes'])}, row groups of "
        f"{iec(group['bytes'])} ({count(group['rows'])} rows). The queries of the next {over} read "
        f"{saves(body)}, and open {plural(opened, 'file')} {instead}. Its rewrite included, it "
        f"costs {costs:.0f} % less than today.{_slower(body)}{_moving(body)}{_beside(body)}",
        width,
    )


def saves(body: Document) -> str:
    """Return how much less the queries over the horizon read than today: `46.1 % less`."""
    today, chosen = (_named(body, name)["readAhead"]["bytes"] for name in ("today", body["chosen"]))
    share = round(100.0 * (1.0 - chosen / max(today, 1)), 1)
    return f"{abs(share):g} % {'less' if share >= 0 else 'more'}"


def _slower(body: Document) -> str:
    """Return which queries read more than today, if any do, and how much more the most frequent of
    them read."""
    worse = _named(body, body["chosen"])["worse"]
    if not worse:
        return ""
    most = max(worse, key=lambda item: item["queries"])
    first = most["queries"] >= max(item["queries"] for item in body["shapes"])
    more = f"{most['bytesAfter'] / max(most['bytesNow'], 1):.1f} times as much"
    if first:
        return f" But the most frequent shape, {most['text']}, reads {more}."
    share = sum(item["queries"] for item in worse) / max(body["workload"]["queries"], 1)
    return (
        f" But {_percent(share)} of the queries read more: the most frequent of them, "
        f"{most['text']}, {more}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _beside(body: Document) -> str:
    """Return what the layouts that people would declare cost beside the chosen one."""
    chosen = _named(body, body["chosen"])["totalCostBytes"]
    others = [
        f"{NAMES[item['name']]} {_more(item['totalCostBytes'], chosen)}"
        for item in body["layouts"]
        if item["name"] in NAMES
    ]
    return f" Beside it, {' and '.join(others)}." if others else ""


def _more(cost: float, chosen: float) -> str:
    share = round(100.0 * (cost / max(chosen, 1.0) - 1.0))
    return f"costs {abs(share)} % {'more' if share > 0 else 'less'}" if share else "costs the same"


def _moving(body: Document) -> str:
    if not any(item.get("moving") for item in body["shapes"]):
        return ""
    return " Ranges that move with time count as at the end of the log, as if rows kept arriving."


def _named(body: Document, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(item for item in body["layouts"] if item["name"] == name)
    return found


def _table(body: Document, width: int) -> list[str]:
    ahead = duration(body["objective"]["horizonSeconds"])
    rows = [
        [
            "LAYOUT",
            f"READ / NEXT {ahead.upper()}",
            "LOW - HIGH",
            "FILES",
            "ROW GROUPS",
            "REWRITE",
            "CPU",
            "",
        ]
    ]
    for item in body["layouts"]:
        read = item["readAhead"]
        today = item["name"] == "today"
        span = "-" if today else f"{iec(read['low'])} - {iec(read['high'])}"
        groups = "-" if item["rowGroups"] is None else count(item["rowGroups"])
        rows.append([
            f"{item['name']}: {item['what']}", priced(item, "readAhead", read["bytes"]), span,
            count(item["files"]), groups, priced(item, "rewrite", item["rewrite"]["bytes"]),
            cpu(item["rewrite"]["cpuSeconds"]),
            "on the front" if item["paretoFront"] else "",
        ])  # fmt: skip
    notes = wrapped(
        f"on the front: no other candidate both reads and rewrites less. REWRITE includes what is "
        f"ingested over {ahead}; CPU is that of the rewrite. READ is of column chunks; footers "
        f"of opened files, which a plan counts as read, add {_footers(body)}.",
        width, first="  ", indent="  ",
    )  # fmt: skip
    return [*tabulate(rows, "lrrrrrrl", width, indent="  "), *notes]


def priced(item: Document, key: str, size: float) -> str:
    """Return bytes, with what they cost in money where the catalog has prices."""
    money = item.get("money")
    return beside(iec(size), money_text(money[key], money["currency"]) if money else "")


def _footers(body: Document) -> str:
    today = f"{iec(_named(body, 'today')['readAhead']['footerBytes'])} today"
    if body["chosen"] is None:
        return today
    return f"{today}, {iec(_named(body, body['chosen'])['readAhead']['footerBytes'])} then"


def _losers(body: Document, width: int) -> list[str]:
    if body["chosen"] is None:
        return []
    worse = _named(body, body["chosen"])["worse"]
    if not worse:
        return ["", "Nobody loses: no recorded shape reads 1 % more than today."]
    rows = [["WHO LOSES", "QUERIES", "NOW", "AFTER"]]
    rows += [
        [item["text"], count(item["queries"]), iec(item["bytesNow"]), iec(item["bytesAfter"])]
        for item in worse[:FEW]
    ]
    more = [f"  and {len(worse) - FEW} more"] if len(worse) > FEW else []
    return ["", *tabulate(rows, "lrrr", width, indent="  "), *more]


def _policy(body: Document) -> list[str]:
    if not body["policy"]:
        return []
    from reconciler.api.policy_edit import block

    tree: dict[tuple[str | int, ...], Any] = {
        ("spec", "layout", part): value for part, value in body["policy"].items()
    }
    return ["", "POLICY", *(f"  {line}" for line in block(tree).splitlines())]


def _considered(body: Document, width: int, verbose: bool) -> list[str]:
    lines: list[str] = []
    for title, key in (("NOT CHOSEN", "fell"), ("NOT SIMULATED", "refused")):
        entries = body[key]
        shown = entries if verbose else entries[:FEW]
        if not entries:
            continue
        rows = [[item["what"], item["why"]] for item in shown]
        lines += ["", title, *tabulate(rows, "ll", width, indent="  ", least=36)]
        if len(shown) < len(entries):
            lines.append(f"  and {len(entries) - len(shown)} more with -v")
    return lines


def costs_more(item: Document) -> str:
    """Return how much more the choice by other evidence costs by all of it."""
    return f"costs {item['costsMorePercent']:.1f} % more" if differs(item) else "costs the same"


def differs(item: Document) -> bool:
    """Whether the choice by other evidence costs more by all of it, as far as is shown."""
    return bool(round(item["costsMorePercent"], 1))


def _sensitivity(body: Document, width: int) -> list[str]:
    if not body["sensitivity"]:
        return []
    rows = [
        [f"by {item['evidence']}", item["layout"], costs_more(item)] for item in body["sensitivity"]
    ]
    return [
        "",
        "WITH OTHER EVIDENCE, THE CHOICE WOULD BE",
        *tabulate(rows, "lll", width, indent="  "),
    ]
