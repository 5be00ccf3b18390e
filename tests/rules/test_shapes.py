"""Rules on extents: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.module import everywhere
from mgx_core.ops.scan import PrefixScan

TURNS = [
    (
        "literal-from-extents",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %i = @literal(2, 1) -> int64[2]
  %1 = dimensions_of(%x)
  %2 = gather[axis=0](%1, %i)
  %3 = add(%2, %i)
  %4 = slice[axes=[0], starts=[1], ends=[2]](%1)
  %5 = concat[axis=0](%3, %4)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %1 = @literal(6, 4, 3) -> int64[3]
  @return(%1)""",
    ),
    (  # operands read at run time: only the rank of the result is known
        "literal-from-extents",
        """\
  %a = @literal(3) -> int64[]
  %b = @literal(0) -> int64[1]
  %1 = unsqueeze(%a, %b)
  @return(%1)""",
        """\
  %1 = @literal(3) -> int64[1]
  @return(%1)""",
    ),
    (  # n is at least 2
        "literal-from-compared-extents",
        """\
  %x = @param["x"] -> float32[n, 3]
  %i = @literal(1, 3) -> int64[2]
  %1 = dimensions_of(%x)
  %2 = equal(%1, %i)
  %3 = less(%i, %1)
  @return(%2, %3)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = @literal(false, true) -> bool[2]
  %2 = @literal(true, false) -> bool[2]
  @return(%1, %2)""",
    ),
    (
        "static-reshape",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %i = @literal(12) -> int64[1]
  %1 = dimensions_of[start=0, end=1](%x)
  %2 = concat[axis=0](%1, %i)
  %3 = reshape(%x, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %1 = reshape[dims=[n, 12], allowzero=false](%x) -> float32[n, 12]
  @return(%1)""",
    ),
    (
        "branch-on-scanned-axis",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = @literal(-1) -> int64[]
  %2 = prefix_scan_prod[axis=0, exclusive=false, reverse=true](%x, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = prefix_scan_prod[axis=-1, exclusive=false, reverse=true](%x) -> float32[2, 3]
  @return(%1)""",
    ),
    (
        "static-topk",
        """\
  %x = @param["x"] -> float32[4, 9]
  %k = @literal(3) -> int64[1]
  %1 = topk[axis=1](%x, %k)
  %2 = get_tuple_elem[index=0](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[4, 9]
  %1 = topk[k=3, axis=1, largest=true, sorted=true](%x) -> (float32[4, 3], int64[4, 3])
  %2 = get_tuple_elem[index=0](%1) -> float32[4, 3]
  @return(%2)""",
    ),
    (
        "static-topk",  # at most 3
        """\
  %x = @param["x"] -> float32[n, 9]
  %i = @literal(3) -> int64[1]
  %1 = dimensions_of[start=0, end=1](%x)
  %2 = concat[axis=0](%1, %i)
  %3 = reduce_min[axes=[0]](%2)
  %4 = min(%3, %1)
  %5 = topk[axis=0](%x, %4)
  %6 = get_tuple_elem[index=0](%5)
  @return(%6)""",
        """\
  %x = @param["x"] -> float32[n, 9]
  %1 = topk[k=min(3, n), axis=0, largest=true, sorted=true](%x) -> (float32[min(3, n), 9], int64[min(3, n), 9])
  %2 = get_tuple_elem[index=0](%1) -> float32[min(3, n), 9]
  @return(%2)""",
    ),
    (
        "drop-resize",
        """\
  %x = @param["x"] -> float32[n, 3, 4, 5]
  %1 = resize[sizes=[4, 5], axes=[2, 3], mode="linear", coordinate_transformation_mode="half_pixel"](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 3, 4, 5]
  %1 = neg(%x) -> float32[n, 3, 4, 5]
  @return(%1)""",
    ),
    (
        "static-axes",
        """\
  %x = @param["x"] -> float32[2, 1, 4]
  %i = @literal(-2) -> int64[1]
  %1 = squeeze(%x, %i)
  %2 = unsqueeze(%1, %i)
  %3 = reduce_sum(%2, %i)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 1, 4]
  %1 = squeeze[axes=[1]](%x) -> float32[2, 4]
  %2 = unsqueeze[axes=[1]](%1) -> float32[2, 1, 4]
  %3 = reduce_sum[axes=[1], noop_with_empty_axes=false](%2) -> float32[2, 1, 4]
  @return(%3)""",
    ),
    (
        "static-broadcast",
        """\
  %x = @param["x"] -> float32[3, 1]
  %y = @param["y"] -> float32[n, 3, 4]
  %d = @literal(2, 3, 4) -> int64[3]
  %1 = multibroadcast(%x, %y)
  %2 = broadcast_with_dims(%x, %d)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[3, 1]
  %y = @param["y"] -> float32[n, 3, 4]
  %1 = multibroadcast[out_lens=[n, 3, 4]](%x) -> float32[n, 3, 4]
  %2 = multibroadcast[out_lens=[2, 3, 4]](%x) -> float32[2, 3, 4]
  @return(%1, %2)""",
    ),
    (
        "static-slice",
        """\
  %x = @param["x"] -> float32[n, 5]
  %s = @literal(1) -> int64[1]
  %e = @literal(9223372036854775807) -> int64[1]
  %a = @literal(-1) -> int64[1]
  %1 = slice(%x, %s, %e, %a)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = slice[axes=[1], starts=[1], ends=[5], steps=[]](%x) -> float32[n, 4]
  @return(%1)""",
    ),
    (
        "static-tile",
        """\
  %x = @param["x"] -> float32[2, 3]
  %r = @literal(2, 1) -> int64[2]
  %1 = tile(%x, %r)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = tile[repeats=[2, 1]](%x) -> float32[4, 3]
  @return(%1)""",
    ),
    (
        "drop-single-tile",
        """\
  %x = @param["x"] -> float32[1, 3]
  %1 = tile[repeats=[1, 1]](%x)
  %2 = tile[repeats=[4, 1]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 3]
  %1 = multibroadcast[out_lens=[4, 3]](%x) -> float32[4, 3]
  @return(%1)""",
    ),
    (
        "static-pad",
        """\
  %x = @param["x"] -> float32[2, 3]
  %p = @literal(1, 2) -> int64[2]
  %v = @literal(1.5) -> float32[]
  %a = @literal(-1) -> int64[1]
  %1 = pad(%x, %p, %v, %a)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = pad[pads=[0, 1, 0, 2], mode="constant", value=1.5](%x) -> float32[2, 6]
  @return(%1)""",
    ),
    (
        "static-resize",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %s = @literal(1.0, 1.0, 2.0, 2.0) -> float32[4]
  %1 = resize(%x, %s)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %1 = resize[scales=[1.0, 1.0, 2.0, 2.0], sizes=[], nearest_mode="floor", mode="nearest", coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=false, extrapolation_value=0.0, antialias=false, roi=[], axes=[], keep_aspect_ratio_policy="stretch"](%x) -> float32[1, 1, 4, 4]
  @return(%1)""",
    ),
    (
        "slice-from-split",
        """\
  %x = @param["x"] -> float32[2, 5]
  %s = @literal(2, 3) -> int64[2]
  %1 = split[axis=1, count=2](%x, %s)
  %2 = get_tuple_elem[index=1](%1)
  %3 = neg(%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = slice[axes=[1], starts=[2], ends=[5], steps=[]](%x) -> float32[2, 3]
  %2 = neg(%1) -> float32[2, 3]
  @return(%2)""",
    ),
    (
        "broadcast-from-fill",
        """\
  %x = @param["x"] -> float32[n, 5]
  %s = @literal(2.0) -> float32[1]
  %1 = fill(%s, %x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = @literal(2.0) -> float32[1]
  %2 = multibroadcast[out_lens=[n, 5]](%1) -> float32[n, 5]
  @return(%2)""",
    ),
    (
        "static-resize",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %s = @literal(1, 1, 4, 4) -> int64[4]
  %1 = undefined()
  %2 = undefined()
  %3 = resize(%x, %1, %s, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %1 = resize[scales=[], sizes=[1, 1, 4, 4], nearest_mode="floor", mode="nearest", coordinate_transformation_mode="half_pixel", \
cubic_coeff_a=-0.75, exclude_outside=false, extrapolation_value=0.0, antialias=false, roi=[], axes=[], \
keep_aspect_ratio_policy="stretch"](%x) -> float32[1, 1, 4, 4]
  @return(%1)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "static-axes",
        """\
  %x = @param["x"] -> float32[2, 5]
  %a = @literal(2) -> int64[1]
  %1 = reduce_sum[axes=[]](%x, %a)
  @return(%1)""",
        "the axes are outside the rank, or one appears twice",
    ),
    (
        "static-pad",
        """\
  %x = @param["x"] -> float32[2, 5]
  %p = @literal(1, 1, 1, 1) -> int64[4]
  %v = @literal(0.0) -> float32[]
  %a = @literal(1, -1) -> int64[2]
  %1 = pad[pads=[], mode="constant"](%x, %p, %v, %a)
  @return(%1)""",
        "the axes are outside the rank, or one appears twice",
    ),
    (
        "slice-from-split",
        """\
  %x = @param["x"] -> float32[2, 5]
  %s = @literal(2, 2) -> int64[2]
  %1 = split[axis=1, count=2](%x, %s)
  %2 = get_tuple_elem[index=1](%1)
  @return(%2)""",
        "the sizes do not add up to the extent",
    ),
    (
        "literal-from-extents",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %1 = dimensions_of(%x)
  @return(%1)""",
        "an extent is known only at run time",
    ),
    (
        "static-reshape",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %d = @param["d"] -> int64[2]
  %1 = reshape(%x, %d)
  @return(%1)""",
        "dims are known only at run time",
    ),
    (
        "static-slice",
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %d = @param["d"] -> int64[2]
  %1 = slice(%x, %d, %d)
  @return(%1)""",
        "a bound is known only at run time",
    ),
    (
        "drop-resize",  # 1.1 times 5 is 5, and positions are closer together
        """\
  %x = @param["x"] -> float32[1, 3, 4, 5]
  %1 = resize[scales=[1.0, 1.1], axes=[2, 3], mode="linear"](%x)
  @return(%1)""",
        "a region is cropped, or the sampled positions are not those of x",
    ),
    (
        "literal-from-extents",
        """\
  %a = @literal(1000000) -> int64[1]
  %b = @literal(10000000000000) -> int64[1]
  %1 = mul(%a, %b)
  @return(%1)""",
        "int64 does not hold the number",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dims", [(3,), (2, 3, 4)])
def test_any_axis_is_scanned_and_others_are_errors(target, dims):
    program = mgx.Program()
    m = program.get_main_module()
    x, k = m.add_parameter("x", mgx.Shape("float32", dims)), m.add_parameter("k", mgx.Shape("int32", [1]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", reverse=True), x, k)])
    program.compile(mgx.get_target(target))
    scans = [i for _, i in everywhere(program.executable.module) if isinstance(i.op, PrefixScan)]
    assert [len(i.inputs) for i in scans] == ([2] if len(dims) == 1 else [1] * len(dims))
    data = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    for axis in range(-len(dims), len(dims)):
        (found,) = program.run({"x": data, "k": np.asarray([axis], np.int32)})
        np.testing.assert_array_equal(found, np.flip(np.cumsum(np.flip(data, axis), axis), axis))
    with pytest.raises(mgx.ShapeError, match=str(len(dims))):
        program.run({"x": data, "k": np.asarray([len(dims)], np.int32)})
