"""The HTML report: well-formed, self-contained, complete, with all names of the model escaped."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from mgx_core import dim
from mgx_core.errors import ParameterError, StoreError
from mgx_core.report.formatting import escaped, size_text, time_text

VOID = {"meta", "input", "br", "link"}


class Page(HTMLParser):
    """Checks that tags are closed in order; collects ids, links, and the text by section."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.outside, self.sections, self.titles = [], [], [], [], {}, []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.scripts += tag == "script"
        if "id" in given:
            self.ids.append(given["id"])
        for key in ("href", "src"):
            if key in given:
                (self.links if given[key].startswith("#") else self.outside).append(given[key])
        assert not [k for k in given if k.startswith("on")]
        if tag not in VOID:
            self.open.append((tag, given.get("id")))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "title":
            self.titles.append(data)
        for tag, id in self.open:
            if tag == "section":
                self.sections[id] = self.sections.get(id, "") + data + "|"


def checked(text):
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.links) <= {"#" + i for i in page.ids}
    assert page.outside == []
    assert page.scripts == 1
    assert "url(http" not in text
    assert "@import" not in text
    return page


def test_a_compiled_program(program, target, tmp_path):
    made = program()
    made.compile(target)
    text = made.report(tmp_path / "out.html", "model <1>")
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == text
    page = checked(text)
    assert page.titles[0] == "model <1> \u2013 mgx report"
    assert set(page.sections) == {"stages", "launches", "memory", "graph", "settings"}
    instance = made.executable.instances()[0]
    for record in (*made.executable.records, *instance.records):
        assert record.name in page.sections["stages"]
        assert f"{record.before} \u2192 {record.after}" in page.sections["stages"]
    counts = [c for r in made.executable.records for c in r.rules]
    assert {c.rule for c in counts if c.fired} >= {"fuse-elementwise", "fuse-epilogue"}
    for count in counts:
        assert f"|{count.rule}|" in page.sections["stages"]
        assert count.why in page.sections["stages"]
    launches = page.sections["launches"]
    assert "fast argmax" in launches
    assert "reference topk" in launches
    assert "sorting is for others" in launches
    assert "1 on the host because the target declined them" in launches
    for source in ("matmul", "squash", "best", "soft", "where"):
        assert source in launches
    assert f"({instance.plan.peak} bytes)" in page.sections["memory"]
    assert size_text(instance.plan.lower_bound) in page.sections["memory"]
    assert text.count('<g class="buffer">') == len(instance.plan.buffers) > 0
    for option in made.executable.options.__dataclass_fields__:
        assert option in page.sections["settings"]


def test_names_of_the_model_are_text(program, target):
    made = program()
    made.compile(target)
    text = made.report(name="</title><b>")
    assert "alert" in text
    assert "<script>alert" not in text
    assert checked(text).titles[0] == "</title><b> \u2013 mgx report"


def test_a_page_that_cannot_be_written(program, tmp_path):
    with pytest.raises(StoreError, match=r"none/page\.html' cannot be written: No such file or directory"):
        program().report(tmp_path / "none" / "page.html")
    with pytest.raises(ParameterError, match="report takes the path of a file, got a value of type bytes"):
        program().report(b"page.html")


def test_one_that_is_not_compiled(program, plugins):
    page = checked(program().report())
    assert set(page.sections) == {"memory", "graph", "settings"}
    assert "before kernels are selected" in page.sections["memory"]
    assert "softmax" in page.sections["graph"]


def test_one_with_symbolic_extents(program, target):
    made = program(dim.symbol("n", 1, 64))
    made.compile(target)
    assert "has not run yet" in checked(made.report()).sections["launches"]
    made.run({"x": np.ones((3, 16), np.float32)})
    assert "float32[3, 32]" in checked(made.report()).sections["launches"]


def test_groups_are_folded_into_the_table(program, target):
    made = program()
    made.compile(target)
    groups = [i for i in made.executable.module if i.modules]
    assert groups
    page = checked(made.report())
    assert f"{len(groups)} groups:" in page.sections["graph"]
    for ins in groups:
        assert ins.modules[0].name in page.sections["graph"]


def test_large_graphs_become_tables_only(program, target):
    from mgx_core import Program, Shape, op

    made = Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4]))
    for _ in range(300):
        x = main.add(op("tanh"), x)
    main.add_return([x])
    text = made.report()
    checked(text)
    assert 'class="layers"' not in text
    assert text.count("<b>tanh</b>") == 300


def test_the_diagram_draws_every_box_and_line(program, plugins):
    made = program()
    text = made.report()
    (picture,) = [part.split("</svg>")[0] for part in text.split('<svg class="layers"')[1:]]
    main = made.get_main_module()
    boxes = [i for i in main if not i.is_literal]
    assert picture.count("<rect") == len(boxes)
    lines = sum(1 for i in boxes for read in set(i.inputs) if not read.is_literal)
    assert picture.count("marker-end") == lines


def test_words():
    assert size_text(0) == "0 B"
    assert size_text(1536) == "1.5 KiB"
    assert size_text(200 * 1024**2) == "200 MiB"
    assert time_text(0.0000125) == "12 \u00b5s"
    assert time_text(0.25) == "250.0 ms"
    assert escaped('a<b>"&\x07\ud800') == "a&lt;b&gt;&quot;&amp;\\x07\\ud800"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
def test_a_browser_shows_it(program, target, tmp_path):
    made = program()
    made.compile(target)
    image = pytest.importorskip("PIL.Image")
    page, picture = tmp_path / "r.html", tmp_path / "r.png"
    made.report(page)
    probe = """<script>
var bad = document.documentElement.scrollWidth > innerWidth ? ["too wide"] : [];
document.querySelectorAll("section, svg").forEach(function (e) {
  var b = e.getBoundingClientRect();
  if (!e.closest("details:not([open])") && (b.width < 50 || b.height < 20)) bad.push(e.className.baseVal || e.id);
});
var box = document.querySelector("input[data-filter=launches-table]");
box.value = "fast ARGMAX"; box.dispatchEvent(new Event("input"));
var left = document.querySelectorAll("#launches-table tbody tr:not([hidden])").length;
document.title = "probe bad=" + bad.join(",") + " left=" + left;
</script></body>"""
    (tmp_path / "probe.html").write_text(page.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    browser += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,1800"]
    shot = [*browser, "--hide-scrollbars", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(shot, check=True, capture_output=True, timeout=120)
    with image.open(picture) as opened:
        shown = np.asarray(opened.convert("RGB"))
    assert shown.shape == (1800, 1300, 3)
    colors, counts = np.unique(shown[::3, ::3].reshape(-1, 3), axis=0, return_counts=True)
    assert len(colors) > 50
    assert counts.max() < 0.9 * counts.sum()
    dump = [*browser, "--dump-dom", (tmp_path / "probe.html").as_uri()]
    found = subprocess.run(dump, check=True, capture_output=True, timeout=120, text=True).stdout
    assert "<title>probe bad= left=1</title>" in found
