"""Extents in MIGraphX's notation: ranges, and expressions of names."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DynamicDimension, ParameterError, Shape
from mgx_core.ir.text.cpp import cpp
from mgx_core.types.dim import symbol


def test_an_expression_is_an_extent() -> None:
    d = DynamicDimension("n * 3 + 1", {"n": DynamicDimension(1, 8)})
    assert d.is_symbolic() and not d.is_fixed()
    assert (d.min, d.max, d.optimals) == (4, 25, set())
    (extent,) = Shape("float32", dyn_dims=[d]).dims
    assert extent == symbol("n", 1, 8) * 3 + 1


def test_a_lone_name_has_optimal_sizes() -> None:
    d = DynamicDimension("n", {"n": DynamicDimension(1, 8, {2, 4})})
    assert (d.min, d.max, d.optimals) == (1, 8, {2, 4})
    assert d.ranges() == {"n": DynamicDimension(1, 8, {2, 4})}


def test_ranges_are_part_of_the_text() -> None:
    d = DynamicDimension("2*n({[1..20], [2..10]}, {4}) + m({[0..1]})")
    assert d == DynamicDimension("m + n*2", {"n": DynamicDimension(2, 10), "m": DynamicDimension(0, 1)})
    assert d.ranges()["n"].optimals == {4}
    assert repr(d) == "[m+2*n with m in 0..1, n in 2..10]"


def test_a_number_in_a_text_is_fixed() -> None:
    d = DynamicDimension("3")
    assert d.is_symbolic() and d.is_fixed() and d == 3
    assert Shape("float32", dyn_dims=[d]).dims == (3,)


def test_ranges_and_expressions_differ() -> None:
    named, ranged = DynamicDimension("n", {"n": (1, 4)}), DynamicDimension(1, 4)
    assert named != ranged and not ranged.is_symbolic()
    assert named == DynamicDimension("n", {"n": (1, 4)}) and named != DynamicDimension("m", {"m": (1, 4)})
    for d in (named, ranged):
        assert Shape("float32", dyn_dims=[d]).dyn_dims() == [d]
        assert DynamicDimension.of(d.record()) == d


def test_extents_of_a_models_own_names_stay_ranges() -> None:
    assert Shape("float32", [symbol("batch", 1, 4) * 2]).dyn_dims() == [DynamicDimension(2, 8)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("n",), "no range is given for 'n'"),
        (("n * m", {"n": (1, 2)}), "no range is given for 'm'"),
        (("n *", {"n": (1, 2)}), r"consists of ints, names.*'n \*' is not an extent"),
        (("n / 2", {"n": (1, 8)}), "is not an extent"),
        (("f(n)", {"n": (1, 8)}), "is not an extent"),
        (("(" * 5000,), "is not an extent"),
        (("n - 2", {"n": (1, 8)}), "must not be negative, and its least value is -1"),
        (("n * n * n", {"n": (1, 1 << 20)}), "larger than any extent"),
        (("n", 3), "a mapping from its names to their ranges is required"),
        (("n", {"n": "x"}), "a range is required for 'n', got 'x'"),
        (("n", {3: (1, 2)}), "a name of letters, digits and _ is required, got 3"),
        (("n({1..8})",), r"ranges as n\(\{\[1..8\]\}, \{2, 4\}\) are required"),
        (("n({[1..8]}, {a})",), "are required, got"),
        (("n({[1..8]}) + n({[2..3]})",), "one range is required for 'n', got two that differ"),
        (("n({[1..8]})", {"n": (2, 3)}), "one range is required for 'n', got two that differ"),
        (("n({[8..1]})",), r"min <= max is required for 'n', got 'n\(\{\[8..1\]\}\)'"),
        (("n({[1..3], [5..9]})",), "min <= max is required for 'n'"),
        (("n // 0", {"n": (1, 8)}), "is not an extent: the extent n is divided by zero"),
        ((1, None), "ints for min and max"),
        ((None, 1), "ints for min and max"),
    ],
)
def test_invalid_dimensions(given, message) -> None:
    with pytest.raises(ParameterError, match=message):
        DynamicDimension(*given)


def program(*extents: DynamicDimension) -> mgx.Program:
    made = mgx.Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape("float32", dyn_dims=extents))
    main.add_return([main.add(mgx.op("neg"), x)])
    return made


@pytest.mark.parametrize("format", ["msgpack", "json"])
def test_files_keep_expressions(format) -> None:
    dims = [DynamicDimension("n * 3 + 1", {"n": (1, 8)}), DynamicDimension("n", {"n": (1, 8)}), DynamicDimension(2, 4)]
    read = mgx.load_buffer(mgx.save_buffer(program(*dims), format))
    assert read.get_parameter_shapes()["x"].dyn_dims() == dims


def test_scripts_keep_expressions() -> None:
    dims = [DynamicDimension("n * 3 + 1", {"n": DynamicDimension(1, 8, {2})}), DynamicDimension(2, 4, {2})]
    scope: dict[str, mgx.Program] = {}
    exec(program(*dims).to_py(), scope)
    assert scope["p"].get_parameter_shapes()["x"].dyn_dims() == dims


def test_cpp_programs_keep_expressions() -> None:
    written = cpp(program(DynamicDimension("n * 3 + 1", {"n": DynamicDimension(1, 8, {2})})).get_main_module())
    named = 'migraphx::dynamic_dimension("3*n+1", {{"n", migraphx::dynamic_dimension(1, 8, migraphx::optimals{2})}})'
    assert f"migraphx::dynamic_dimensions({named})" in written


def test_a_symbol_of_one_linear_extent_is_known_to_the_ops() -> None:
    """The extents of other operations are expressions of a symbol that is never a parameter's whole extent."""
    n = {"n": (1, 8), "k": (1, 8)}
    made = mgx.Program()
    main = made.get_main_module()
    y = main.add_parameter("y", Shape("float32", dyn_dims=[DynamicDimension("2*n + k", n)]))
    x = main.add_parameter("x", Shape("float32", dyn_dims=[DynamicDimension("3*n", n)]))
    rows, left = symbol("n", 1, 8), symbol("k", 1, 8)
    head = main.add(mgx.op("slice", axes=[0], starts=[0], ends=[left]), y)
    main.add_return([main.add(mgx.op("reshape", dims=[rows, 3]), x), head])
    made.compile(mgx.get_target("ref"))
    values = {"x": np.arange(6, dtype=np.float32), "y": np.arange(9, dtype=np.float32)}
    reshaped, head_value = made.run(values)
    assert reshaped.get_shape().lens() == [2, 3] and np.array(head_value).tolist() == [0, 1, 2, 3, 4]


NAMES = {"n": (1, 8), "m": (0, 8)}


def of_extents(*extents: tuple[str, ...]) -> mgx.Program:
    """Returns a program that reshapes tensors with these extents to vectors."""
    made = mgx.Program()
    main = made.get_main_module()
    vectors = []
    for name, dims in zip("xy", extents, strict=False):
        shape = Shape("float32", dyn_dims=[DynamicDimension(d, NAMES) for d in dims])
        vectors.append(main.add(mgx.op("reshape", dims=[-1]), main.add_parameter(name, shape)))
    main.add_return(vectors)
    made.compile(mgx.get_target("ref"))
    return made


@pytest.mark.parametrize(
    ("extents", "lens", "gives"),
    [
        ([("n//2", "2")], [(3, 2)], [6]),
        ([("2*n%3 + 1", "2")], [(2, 2)], [4]),
        ([("n*m + 1", "2"), ("n*m", "2")], [(7, 2), (6, 2)], [14, 12]),
        ([("n*m", "2"), ("n + 1", "2")], [(6, 2), (4, 2)], [12, 8]),
    ],
)
def test_an_expression_that_determines_no_symbol_is_known_as_a_whole(extents, lens, gives) -> None:
    """``n//2`` does not determine n, but other extents are expressions of it."""
    values = {name: np.zeros(dims, np.float32) for name, dims in zip("xy", lens, strict=False)}
    assert [r.get_shape().elements() for r in of_extents(*extents).run(values)] == gives


@pytest.mark.parametrize(
    ("extents", "lens", "message"),
    [
        ([("n//2",), ("n//2 + 1",)], [(3,), (5,)], r"'y': axis 0 \(\(n//2\)\+1\) must be 4 as elsewhere, got 5"),
        ([("2*n//3 + 1",)], [(9,)], r"in 1..6, got float32\[9\]"),
        ([("2*(n//3)",)], [(3,)], r"'x': axis 0 \(2\*\(n//3\)\) is 3 for no \(n//3\) from 0 to 2"),
        ([("n//m",), ("n", "m")], [(3,), (6, 0)], r"'x': axis 0 \(\(n//m\)\) has no value for m = 0, n = 6"),
    ],
)
def test_extents_that_no_values_of_the_symbols_satisfy(extents, lens, message) -> None:
    values = {name: np.zeros(dims, np.float32) for name, dims in zip("xy", lens, strict=False)}
    with pytest.raises(ParameterError, match=message):
        of_extents(*extents).run(values)


def test_preferred_sizes_are_numbers() -> None:
    with pytest.raises(ParameterError, match="ranges as n"):
        DynamicDimension("n({[1..8]}, {\u00b2})")
