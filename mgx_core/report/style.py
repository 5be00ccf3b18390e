"""Style sheet (light and dark) and the table-filtering script of the report."""

from __future__ import annotations

from typing import Final

__all__ = ["PAGE", "SCRIPT", "VARIABLES"]

_LIGHT: Final = (
    "--bg:#f4f5f8;--card:#fff;--text:#1c2130;--soft:#5f6880;--line:#e1e4ec;--accent:#4457d6;--tint:#eef0fd;--good:#17855a;"
    "--bad:#cc3d3d;--warn:#a86400;--fill:84%;--tone:55%;--edge:52%;--product:#4457d6;--group:#8a3fc7;--reduce:#c2681a;--move:#5d7a8c;"
    "--control:#bf3a6b;--plain:#17855a;--ends:#5f6880;"
)
_DARK: Final = (
    "--bg:#11141c;--card:#191d28;--text:#e4e7f0;--soft:#97a0b8;--line:#2b3140;--accent:#8d9bff;--tint:#232841;--good:#4fc794;"
    "--bad:#ff7b7b;--warn:#e5ad4c;--fill:32%;--tone:34%;--edge:56%;--product:#8d9bff;--group:#c691f5;--reduce:#f0a35c;--move:#8fb0c4;"
    "--control:#f288ae;--plain:#4fc794;--ends:#97a0b8;"
)
VARIABLES: Final = (
    ":root{color-scheme:light dark;--sans:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "--mono:ui-monospace,'SF Mono',Menlo,'DejaVu Sans Mono',monospace;" + _LIGHT + "}"
    "@media(prefers-color-scheme:dark){:root{" + _DARK + "}}"
)

PAGE: Final = """
:root[data-theme=light]{color-scheme:light;LIGHT}
:root[data-theme=dark]{color-scheme:dark;DARK}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 var(--sans)}
main{max-width:1240px;margin:0 auto;padding:28px 20px 64px}
header{display:flex;align-items:baseline;gap:14px;flex-wrap:wrap}
h1{font-size:26px;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
header p{margin:0;color:var(--soft)}
header button{margin-left:auto;align-self:center}
nav{position:sticky;top:0;z-index:2;background:var(--bg);padding:10px 0;margin:10px 0 6px;border-bottom:1px solid var(--line)}
nav a{color:var(--soft);text-decoration:none;margin-right:18px;font-weight:500}nav a:hover{color:var(--accent)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 22px 20px;margin:18px 0;
scroll-margin-top:56px}
h2{font-size:18px;margin:0 0 4px}h3{font-size:15px;margin:18px 0 6px}
.note{color:var(--soft);margin:0 0 12px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(168px,1fr));gap:12px;margin:18px 0}
.fact{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}
.fact b{display:block;font-size:24px;font-weight:650;letter-spacing:-.02em;line-height:1.25}
.fact span{color:var(--soft);font-size:13px}.fact i{display:block;font-style:normal;color:var(--soft);font-size:13px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{text-align:left;color:var(--soft);font-weight:600;border-bottom:1px solid var(--line);padding:6px 10px 6px 0;
position:sticky;top:0;background:var(--card)}
td{border-bottom:1px solid var(--line);padding:5px 10px 5px 0;vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}tr:target td{background:var(--tint)}tbody tr:hover td{background:var(--tint)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code,.m{font-family:var(--mono);font-size:12.5px}
.wrap{max-height:560px;overflow:auto;border-top:1px solid var(--line)}
.graph{max-height:720px;overflow:auto;border:1px solid var(--line);border-radius:10px;background:var(--bg);padding:8px}
.two{display:grid;grid-template-columns:1fr 1fr;gap:20px;align-items:start}
@media(max-width:860px){.two{grid-template-columns:1fr}}
.badge{display:inline-block;border-radius:99px;padding:0 9px;font-size:12px;font-weight:600;line-height:20px;
white-space:nowrap;background:var(--tint);color:var(--accent)}
.badge.host{background:color-mix(in srgb,var(--warn) 16%,transparent);color:var(--warn)}
.badge.ok{background:color-mix(in srgb,var(--good) 14%,transparent);color:var(--good)}
.badge.failed{background:color-mix(in srgb,var(--bad) 14%,transparent);color:var(--bad)}
.dot{display:inline-block;width:9px;height:9px;border-radius:3px;margin-right:7px;background:var(--plain)}
.dot.product{background:var(--product)}.dot.group{background:var(--group)}.dot.reduce{background:var(--reduce)}
.dot.move{background:var(--move)}.dot.control{background:var(--control)}.dot.edge,.dot.literal{background:var(--ends)}
.soft{color:var(--soft)}td.m{min-width:108px}.wrap td:nth-child(2){min-width:180px}
details{margin:2px 0}summary{cursor:pointer;color:var(--accent)}
details pre{margin:6px 0;padding:10px 12px;background:var(--bg);border-radius:8px;overflow:auto;font:12.5px/1.5 var(--mono)}
input,button{font:inherit;color:var(--text);background:var(--bg);border:1px solid var(--line);border-radius:8px;
padding:5px 11px}
button{cursor:pointer}input{width:min(340px,100%);margin:4px 0 10px}
input:focus-visible,button:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--accent);
outline-offset:2px}
svg.bars{display:block;width:100%;height:auto;font:13px var(--sans)}
svg.bars text{fill:var(--text)}svg.bars .s{fill:var(--soft)}svg.bars .h{font-weight:650}
svg.bars .track{fill:var(--line);opacity:.55}svg.bars .bar{fill:var(--accent)}svg.bars .quiet{fill:var(--soft);opacity:.6}
svg.bars .good{fill:var(--good)}svg.bars .warn{fill:var(--warn)}svg.bars .group{fill:var(--group)}
svg.bars .product{fill:var(--product)}svg.bars .reduce{fill:var(--reduce)}svg.bars .move{fill:var(--move)}
svg.bars .plain{fill:var(--plain)}svg.bars .control{fill:var(--control)}svg.bars .edge,svg.bars .literal{fill:var(--ends)}
svg.layers{font:12px var(--mono);display:block;margin:0 auto}
svg.layers rect{fill:var(--card);stroke-width:1.5;stroke:var(--plain)}
svg.layers .product rect{stroke:var(--product)}svg.layers .group rect{stroke:var(--group);stroke-width:2.4}
svg.layers .reduce rect{stroke:var(--reduce)}
svg.layers .move rect{stroke:var(--move)}svg.layers .control rect{stroke:var(--control)}
svg.layers .edge rect{stroke:var(--ends);fill:var(--bg)}svg.layers .host rect{stroke-dasharray:5 3;stroke:var(--warn)}
svg.layers text{fill:var(--text);text-anchor:middle}svg.layers .sub{fill:var(--soft);font-size:10.5px}
svg.layers path{fill:none;stroke:var(--soft);stroke-width:1.1;opacity:.7}svg.layers marker path{fill:var(--soft);stroke:none}
svg.layers a:hover rect,svg.layers g:hover>rect{fill:var(--tint)}
@media print{nav,input,header button{display:none}.wrap,.graph{max-height:none}}
""".replace("LIGHT", _LIGHT).replace("DARK", _DARK)

SCRIPT: Final = """
document.querySelectorAll("input[data-filter]").forEach(function (box) {
  var rows = document.querySelectorAll("#" + box.dataset.filter + " tbody tr");
  box.addEventListener("input", function () {
    var words = box.value.toLowerCase().split(/\\s+/);
    rows.forEach(function (row) {
      var text = row.textContent.toLowerCase();
      row.hidden = !words.every(function (w) { return text.indexOf(w) >= 0; });
    });
  });
});
document.getElementById("theme").addEventListener("click", function () {
  var root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  var now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});
"""
