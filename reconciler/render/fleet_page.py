"""The style and the script of a fleet's page, which are written into it.

The script makes the heads of the table of tables buttons that sort, takes its rows after the first
out of the page until they are asked for, and searches names. It reads `data-v` of a cell, which is
its number unrounded.
"""

from __future__ import annotations

FOLDED = 200
"""Rows that the page shows at first, so that a fleet of thousands is drawn at once."""

CSS = (
    """
body{font:15px/1.45 system-ui,sans-serif;color:#1b1b1b;background:#fff;margin:0}
main{max-width:76rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .3rem}
.note{color:#555;margin:0 0 .6rem;max-width:60rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.5rem;margin:1rem 0}
dl div{border:1px solid #ddd;border-radius:.4rem;padding:.4rem .7rem}
dt{color:#555;font-size:.8rem}dd{margin:0;font-size:1.05rem;font-weight:600}
dd small{display:block;font-weight:400;color:#555}
.tools{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin:.4rem 0}
.tools[hidden]{display:none}
input,button{font:inherit}.tools input,.tools button{padding:.35rem .6rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.87rem;width:100%}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}
thead th{background:#f3f3f3;vertical-align:bottom;white-space:normal}
tbody th{font-weight:500;background:#fff;overflow-wrap:anywhere;white-space:normal;min-width:9rem}
th.text,td.text,tbody th{text-align:left}td.text{white-space:normal;overflow-wrap:anywhere}
tbody th,thead th:first-child{position:sticky;left:0}
thead th button{border:0;background:none;padding:0;font-weight:600;text-align:inherit;
color:#0b4a86;cursor:pointer;min-height:1.6rem}
th[aria-sort=ascending] button::after{content:" \\25B2"}
th[aria-sort=descending] button::after{content:" \\25BC"}
tbody tr:hover th,tbody tr:hover td{background:#eef4fb}
:focus-visible{outline:3px solid #0b4a86;outline-offset:1px}
.bar{display:block;height:.5rem;min-width:1px}.spent{background:#b3541e}.saved{background:#2f6f4f}
td:has(.bar){min-width:8rem}
.box{border:1px solid #b3541e;border-left-width:.4rem;padding:.4rem .8rem;margin:1.5rem 0}
@media(max-width:40rem){main{padding:0 .5rem}th,td{padding:.35rem .4rem}
thead th button,.tools input,.tools button{min-height:2.75rem}
tbody th{min-width:7rem;max-width:10rem}}
@media print{.tools{display:none}}
"""
    + f"@media(scripting:enabled){{#tables:not(.live) tbody tr:nth-child(n+{FOLDED + 1})"
    + """
{display:none}}
"""
)
"""Rows that the script will fold are not laid out while the page loads; without scripts all are."""

SCRIPT = """
(() => {
  const table = document.getElementById("tables");
  if (!table) return;
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const folded = +table.dataset.folded, find = document.getElementById("find");
  const all = document.getElementById("all"), said = document.getElementById("said");
  const rows = [...body.rows].map(row => ({row, name: row.cells[0].textContent.toLowerCase()}));
  let order = rows, open = false;
  const key = (item, at) => {
    if (at === 0) return item.name;
    const v = item.row.cells[at].dataset.v;
    return v === undefined ? null : +v;
  };
  const text = items => items.length.toLocaleString("en");
  const show = () => {
    const wanted = find.value.trim().toLowerCase();
    const found = order.filter(item => item.name.includes(wanted));
    const shown = open ? found : found.slice(0, folded);
    body.replaceChildren(...shown.map(item => item.row));
    all.hidden = found.length <= folded;
    all.textContent = open ? `Show the first ${folded}` : `Show all ${text(found)}`;
    said.textContent = `${text(shown)} of ${text(rows)} shown`;
  };
  const sort = at => {
    const head = heads[at];
    const was = head.getAttribute("aria-sort");
    const up = was ? was === "descending" : at === 0;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const sign = up ? 1 : -1;
    order = rows.map(item => [key(item, at), item]).sort(([a], [b]) =>
      a === b ? 0 : a === null ? 1 : b === null ? -1 : a < b ? -sign : sign).map(pair => pair[1]);
    show();
    said.textContent += `, by ${head.textContent}, ${up ? "ascending" : "descending"}`;
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(at));
    head.replaceChildren(button);
  });
  find.addEventListener("input", show);
  all.addEventListener("click", () => { open = !open; show(); });
  document.querySelector(".tools").hidden = false;
  table.classList.add("live");
  show();
})();
"""
