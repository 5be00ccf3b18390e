"""Values that are known at parse time."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.converting.known import Known
from mgx_core.types.dim import substitute, symbol


def test_extents_chosen_by_any_operation_on_constants_are_known() -> None:
    """A selection by `a >= b`, the negation of a comparison, was left to run time, and with it the extents and their rank."""
    module = mgx.Module("main")
    n = symbol("n", 1, 9)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n, 3]))
    axis, zero = module.add_literal(0), module.add_literal(0)
    inside = module.add(mgx.op("not"), module.add(mgx.op("less"), axis, zero))
    rows = module.add(mgx.op("slice", axes=(0,), starts=(0,), ends=(1,)), module.add(mgx.op("dimensions_of", end=2), x))
    chosen = module.add(
        mgx.op("where"),
        module.add(mgx.op("unsqueeze", axes=(0,)), inside),
        rows,
        module.add(mgx.op("unsqueeze", axes=(0,)), axis),
    )
    found = Known().extents(chosen)
    assert found is not None and found.tolist() == [n]


def test_extents_rounded_from_constant_floats_are_known() -> None:
    """`SAME` padding of TensorFlow as torch's older exporter writes it: computed in floats, converted, then rearranged."""
    module = mgx.Module("main")
    given = module.add_literal(np.asarray([1.0, 3.0], np.float32))
    halved = module.add(mgx.op("div"), given, module.add_literal(np.asarray([2.0, 2.0], np.float32)))
    rounded = module.add(mgx.op("convert", target_type=dt.int64), halved)
    turned = module.add(mgx.op("reverse", axes=(0,)), rounded)
    found = Known().extents(turned)
    assert found is not None and found.tolist() == [1, 0]

    open_ones = module.add_parameter("x", mgx.Shape.of(dt.float32, [2]))
    assert Known().extents(module.add(mgx.op("convert", target_type=dt.int64), open_ones)) is None


def test_halves_of_possibly_negative_extents_are_known() -> None:
    """Frames left by strided convolutions, as torch's exporter writes them: `1 + (n - 3) / 2`."""
    module = mgx.Module("main")
    n = symbol("n", 0, 900)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n]))
    less = module.add(mgx.op("sub"), module.add(mgx.op("dimensions_of", end=1), x), module.add_literal(np.asarray([3])))
    halved = module.add(mgx.op("div"), less, module.add_literal(np.asarray([2])))
    found = Known().extents(module.add(mgx.op("add"), halved, module.add_literal(np.asarray([1]))))
    assert found is not None
    assert [substitute(found[0], {"n": v}) for v in (0, 2, 3, 8, 9)] == [0, 1, 1, 3, 4]


def test_extents_are_those_of_the_type_that_they_are_converted_to() -> None:
    """A converted boolean was known as the number before conversion, and a byte as a number outside its range."""
    module = mgx.Module("main")
    known, sizes = Known(), module.add_literal(np.asarray([5, 0, 300]))

    def through(of: dt.DType) -> list[object] | None:
        narrow = module.add(mgx.op("convert", target_type=of), sizes)
        found = known.extents(module.add(mgx.op("convert", target_type=dt.int64), narrow))
        return None if found is None else found.tolist()

    assert through(dt.int32) == [5, 0, 300]
    assert through(dt.bool_) == [1, 0, 1]
    assert through(dt.uint8) is None  # 300 exceeds a byte: computed at run time

    open_size = module.add_parameter("x", mgx.Shape.of(dt.float32, [symbol("n", 1, 900)]))
    size = module.add(mgx.op("dimensions_of", end=1), open_size)
    wide = known.extents(module.add(mgx.op("convert", target_type=dt.int32), size))
    assert wide is not None and str(wide[0]) == "n"
    for of in (dt.uint8, dt.bool_):
        assert known.extents(module.add(mgx.op("convert", target_type=of), size)) is None


def test_a_remainder_by_zero_is_not_known() -> None:
    module = mgx.Module("main")
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [4, 3]))
    rest = module.add(mgx.op("mod"), module.add(mgx.op("dimensions_of"), x), module.add_literal(np.array([2, 0])))
    assert Known().extents(rest) is None


def test_extents_that_are_divided_as_floats_are_known() -> None:
    """Numbers of steps, as torch's exporter writes `range(1, n, 2)`: `int(ceil(float(n - 1) / 2.0))`."""
    module = mgx.Module("main")
    n = symbol("n", 0, 900)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n]))
    less = module.add(mgx.op("sub"), module.add(mgx.op("dimensions_of", end=1), x), module.add_literal(np.asarray([1])))
    wide = module.add(mgx.op("convert", target_type=dt.float32), less)

    def known(divisor: float, *rounding: str, by: str = "div") -> list[int] | None:
        made = module.add(mgx.op(by), wide, module.add_literal(np.asarray([divisor], np.float32)))
        for name in rounding:
            made = module.add(mgx.op(name), made)
        found = Known().extents(module.add(mgx.op("convert", target_type=dt.int64), made))
        return None if found is None else [substitute(found[0], {"n": v}) for v in (0, 1, 2, 7, 8)]

    assert known(1.0, "ceil") == [-1, 0, 1, 6, 7]
    assert known(2.0, "ceil") == [0, 0, 1, 3, 4]
    assert known(4.0, "floor") == [-1, 0, 0, 1, 1]
    assert known(4.0) == [0, 0, 0, 1, 1]
    assert known(2.5, "ceil") is None and known(-1.0, "ceil") is None and known(2.0, "ceil", "sqrt") is None
    assert known(0.5, "floor", by="mul") == [-1, 0, 0, 3, 3] and known(1.5, "ceil", by="mul") == [-1, 0, 2, 9, 11]
    assert known(3.0, by="mul") == [-3, 0, 3, 18, 21] and known(2.0, by="add") == [1, 2, 3, 8, 9]
    assert known(0.1, "floor", by="mul") is None and known(0.5, by="add") is None


def test_extents_rounded_up_to_a_multiple_as_floats_are_known() -> None:
    """Images padded to whole patches, as torch's exporter writes `int(ceil(n / 2) * 2)`: formerly left to run time."""
    module = mgx.Module("main")
    n = symbol("n", 0, 900)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n]))
    two = module.add_literal(np.asarray(2.0, np.float32))
    length = module.add(mgx.op("squeeze", axes=(0,)), module.add(mgx.op("dimensions_of", end=1), x))
    wide = module.add(mgx.op("convert", target_type=dt.float32), length)
    patches = module.add(mgx.op("ceil"), module.add(mgx.op("div"), wide, two))
    made = module.add(mgx.op("convert", target_type=dt.int64), module.add(mgx.op("mul"), patches, two))
    found = Known().extents(made)
    assert found is not None and [substitute(found.item(), {"n": v}) for v in (0, 1, 2, 7)] == [0, 2, 2, 8]
    thirds = module.add(mgx.op("div"), wide, module.add_literal(np.asarray(3.0, np.float32)))
    assert Known().extents(module.add(mgx.op("mul"), thirds, two)) is None


def test_lengths_of_ranges_of_floats_are_known() -> None:
    """Positions of patches, as torch's exporter writes `arange(0.5, float(n // 16))`: formerly left to run time."""
    module = mgx.Module("main")
    n = symbol("n", 0, 900)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n]))
    length = module.add(mgx.op("squeeze", axes=(0,)), module.add(mgx.op("dimensions_of", end=1), x))
    wide = module.add(mgx.op("convert", target_type=dt.float32), length)
    known = Known()

    def count(start: float, step: float) -> list[int] | None:
        first, delta = (module.add_literal(np.asarray(v, np.float32)) for v in (start, step))
        made = module.add(mgx.op("dynamic_range"), first, wide, delta)
        found = known.count(first, wide, delta)
        if found is None:
            return None
        lengths = [substitute(found, {"n": v}) for v in (0, 1, 2, 7)]
        for v, wanted in zip((0, 1, 2, 7), lengths, strict=True):
            given = (np.asarray(g, np.float32) for g in (start, v, step))
            assert made.op.compute(*given).shape == (wanted,)
        return lengths

    assert count(0.5, 1.0) == [0, 1, 2, 7] and count(0.0, 2.0) == [0, 1, 1, 4]
    assert count(-1.5, 0.5) == [3, 5, 7, 17] and count(3.0, -1.0) == [3, 2, 1, 0]
    assert count(0.1, 1.0) is None and count(0.0, 0.0) is None
    assert known.extents(wide) is None  # a float is not an extent


def test_extents_in_floats_of_16_bits_are_not_known() -> None:
    """2,049 is not a float16, so the extent is computed at run time."""
    module = mgx.Module("main")
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [symbol("n", 1, 9000)]))
    extents = module.add(mgx.op("dimensions_of", end=1), x)
    for dtype, known in ((dt.float32, True), (dt.float16, False)):
        number = module.add(mgx.op("convert", target_type=dtype), extents)
        doubled = module.add(mgx.op("mul"), number, module.add_literal(np.asarray([2], dtype.numpy)))
        found = Known().extents(module.add(mgx.op("convert", target_type=dt.int64), doubled))
        assert (found is not None) == known
