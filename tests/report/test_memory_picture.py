"""The memory plan as text and as SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from mgx_core.report import memory_page, memory_svg, memory_text
from mgx_core.targets.memory import plan_memory

SVG = "{http://www.w3.org/2000/svg}"


def test_text_states_peak_bound_and_the_largest(program, plugins):
    main = program().get_main_module()
    plan = plan_memory(main)
    text = memory_text(plan, main)
    assert f"arena peak   {plan.peak} bytes" in text
    assert f"lower bound  {plan.lower_bound} bytes" in text
    assert f"ratio        {plan.peak / plan.lower_bound:.3f}" in text
    assert plan.lower_bound == 2048  # two tensors of 8 x 32 floats are alive at once
    sizes = re.findall(r"^ +([0-9.]+) KiB  at (\d+)", text, re.MULTILINE)
    assert [s for s, _ in sizes] == ["1.0", "1.0"]
    assert "from matmul" in text


def test_text_is_cut_short(program, plugins):
    main = program().get_main_module()
    assert "in 1 more" in memory_text(plan_memory(main), main, largest=1)


def test_each_buffer_is_a_rectangle_to_scale(program, plugins):
    main = program().get_main_module()
    plan = plan_memory(main)
    root = ElementTree.fromstring(memory_svg(plan, main))
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class") == "buffer"]
    assert len(groups) == len(plan.buffers) > 2
    tips = [g.find(f"{SVG}title").text for g in groups]
    for buffer, group, tip in zip(sorted(plan.buffers, key=lambda b: b.first), groups, tips, strict=True):
        assert f"({buffer.bytes} bytes) at {buffer.offset}" in tip
        tallest = max(float(g.find(f"{SVG}rect").get("height")) for g in groups)
        height = float(group.find(f"{SVG}rect").get("height"))
        assert abs(height / tallest - buffer.bytes / max(b.bytes for b in plan.buffers)) < 0.02
    words = " ".join(t.strip() for t in root.itertext())
    assert "arena peak" in words
    assert "lower bound" in words


def test_an_empty_plan_has_a_diagram(plugins):
    from mgx_core import Module, Shape

    main = Module("main")
    main.add_return([main.add_parameter("x", Shape("float32", [2]))])
    plan = plan_memory(main)
    ElementTree.fromstring(memory_svg(plan, main))
    assert memory_text(plan, main).startswith("arena peak   0 bytes")


def test_the_page_has_both(program, plugins):
    main = program().get_main_module()
    page = memory_page(plan_memory(main), main, "<m>")
    assert "<h1>&lt;m&gt;</h1>" in page
    assert "arena peak   " in page
    assert page.count("<svg") == 1
