"""How the report looks: one style sheet, for screens of either brightness and for paper."""

from typing import Final

STYLE: Final = """
:root {
  --paper: #fcfcfb; --card: #ffffff; --ink: #1b1f24; --soft: #5c6670; --line: #e2e5e8;
  --good: #1a7f4b; --bad: #b3261e; --warn: #a15c00; --accent: #2457a8;
  --good-wash: #e8f5ee; --bad-wash: #fdecea; --warn-wash: #fff4e0;
  --s0: #2457a8; --s1: #2a9d8f; --s2: #e09f3e; --s3: #8e5ea2; --s4: #6a994e;
  --s5: #bc4b51; --s6: #4d908e; --s7: #577590;
  --replica: #d9dee4; --insync: #8fb8e8; --lead: #2457a8; --eligible: #e9c46a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --card: #1c2126; --ink: #e6e9ec; --soft: #9aa5b1; --line: #333a42;
    --good: #5fcf97; --bad: #ff8a80; --warn: #f0b35a; --accent: #82b1ff;
    --good-wash: #14301f; --bad-wash: #3a1916; --warn-wash: #33260d;
    --replica: #3a424b; --insync: #3f6ea8; --lead: #82b1ff; --eligible: #b08c2e;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1140px; margin: 0 auto; padding: 28px 24px 80px; }
h1 { font-size: 22px; margin: 0 0 2px; }
h2 { font-size: 18px; margin: 40px 0 6px; padding-top: 14px; border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 26px 0 4px; }
p { margin: 4px 0 12px; max-width: 82ch; }
.soft, .sub { color: var(--soft); }
code, .code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
.verdict { border-radius: 10px; padding: 18px 22px; margin: 18px 0 16px; }
.verdict b { font-size: 20px; display: block; }
.verdict.clean { background: var(--good-wash); color: var(--good); }
.verdict.violations { background: var(--bad-wash); color: var(--bad); }
.verdict.unknown { background: var(--warn-wash); color: var(--warn); }
.verdict span { color: var(--ink); }
.facts { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; }
@media (max-width: 640px) { .facts { grid-template-columns: repeat(2, 1fr); } }
.fact {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px;
}
.fact b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; }
.fact span { color: var(--soft); font-size: 13px; }
table { border-collapse: collapse; width: 100%; margin: 8px 0 14px; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.hit td { background: var(--bad-wash); }
.severity {
  font-size: 12px; font-weight: 600; border-radius: 4px; padding: 1px 7px; white-space: nowrap;
}
.CRITICAL { background: var(--bad-wash); color: var(--bad); }
.ERROR { background: var(--warn-wash); color: var(--warn); }
.WARNING { background: var(--line); color: var(--soft); }
details { margin: 6px 0; } summary { cursor: pointer; }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; margin: 10px 0 16px; overflow-x: auto;
}
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg text.name { fill: var(--ink); }
.grid { stroke: var(--line); } .zero { stroke: var(--soft); }
.grew { fill: var(--good); } .shrank { fill: var(--bad); }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.s4 { fill: var(--s4); } .s5 { fill: var(--s5); } .s6 { fill: var(--s6); } .s7 { fill: var(--s7); }
.none { fill: var(--bad); }
.replica { fill: var(--replica); } .insync { fill: var(--insync); } .lead { fill: var(--lead); }
.eligible { fill: var(--eligible); } .recovering { fill: var(--warn); }
.active { fill: var(--good); opacity: .75; } .fenced { fill: var(--bad); opacity: .7; }
.shutting { fill: var(--warn); opacity: .75; } .gone { fill: var(--replica); }
.violation { stroke: var(--bad); stroke-width: 2.5; }
.change { stroke: var(--ink); stroke-width: 1; opacity: .55; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft);
  margin: 2px 0 8px;
}
.legend i {
  display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px;
}
@media print { body { font-size: 12px; } details { display: block; } }
"""
