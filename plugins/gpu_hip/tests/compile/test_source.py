"""Kernel source: preparation for the compiler, and parsing."""

from __future__ import annotations

import re

import pytest

from mgx_gpu_hip.compile.source import PARTS, PRELUDE, any_wave, complete, kernels, max_threads, prelude, signature

TEXT = """
DEV float twice(float x) { return x * 2; }
KERNEL(256) first(const float* RESTRICT x, half_t *y, u32 n, i64 step, double eps, bool flag) { }
KERNEL(128, 2)
second(
  u8* out) { }
KERNEL(64) CLUSTER(8) third(u8* out) { }
"""


def test_kernels_and_their_parameters():
    assert kernels(TEXT) == ["first", "second", "third"]
    assert max_threads(TEXT, "third") == 64
    first = signature(TEXT, "first")
    assert [p.name for p in first] == ["x", "y", "n", "step", "eps", "flag"]
    assert "".join(p.code for p in first) == "PPIqd?"
    assert [p.const for p in first] == [True, False, True, True, True, True]
    assert first[1].type == "half_t*"
    assert signature(TEXT, "second")[0].type == "u8*"


def test_unknown_kernels_and_types_are_refused():
    with pytest.raises(KeyError, match="fourth"):
        signature(TEXT, "fourth")
    with pytest.raises(ValueError, match=r"got 'vec<float, 4> v'|got 'vec<float'"):
        signature("KERNEL(64) k(vec<float, 4> v) {}", "k")


def test_the_prelude_is_whole():
    text = complete(TEXT)
    assert "#include" not in text and "#pragma once" not in text
    assert text.count("namespace soft {") == 1
    assert text.endswith(TEXT + "\n")


def test_the_matrix_part_comes_where_it_is_used():
    assert "struct frag_c" not in complete(TEXT)
    assert "struct frag_c" in complete(TEXT + "DEV void f(frag_c& c) {}")
    assert "struct frag_c" in prelude()


def test_what_depends_on_the_wave_is_known_by_its_name():
    depending = []
    for part in (*PARTS, "softmath.h"):
        members = r"^namespace lanes .*^}  // namespace lanes"  # which are named with the namespace
        text = re.sub(members, "", (PRELUDE / part).read_text(), flags=re.M | re.S)
        text = re.sub(r"//.*|^#.*", "", text, flags=re.M)
        for definition in re.split(r"^(?=DEV|template|struct|namespace|static)", text, flags=re.M)[1:]:
            found = re.search(r"(?:struct|namespace)\s+(\w+)|(\w+)\s*\(", definition.partition("DEV")[2] or definition)
            if not any_wave(definition):
                depending.append(found.group(1) or found.group(2))
    assert {"lane_id", "wave_id", "wave_reduce", "block_reduce"} <= set(depending)
    assert [name for name in depending if any_wave(name)] == []
