"""`migraphx.shape`."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx
from mgx_core.errors import ParameterError, ShapeError, UnsupportedError


def test_types_are_numbered() -> None:
    kinds = migraphx.shape.type_t
    assert len(kinds) == 17
    assert int(kinds.float_type) == kinds.float_type.value == 2
    assert [int(kinds[n]) for n in ("bool_type", "half_type", "double_type", "int64_type", "bf16_type")] == [
        0,
        1,
        3,
        9,
        15,
    ]
    assert "fp8e4m3fn_type" in kinds.__members__


@pytest.mark.parametrize(
    ("said", "name", "size"),
    [
        ("float", "float_type", 4),
        ("float_type", "float_type", 4),
        ("int64_t", "int64_type", 8),
        ("uint8", "uint8_type", 1),
        ("half", "half_type", 2),
        ("fp8e4m3fnuz_type", "fp8e4m3fnuz_type", 1),
        (3, "double_type", 8),
        (migraphx.shape.type_t.bf16_type, "bf16_type", 2),
    ],
)
def test_types_by_name_member_and_number(said, name, size) -> None:
    s = migraphx.shape(type=said, lens=[2])
    assert (s.type_string(), s.type_size(), s.type()) == (name, size, migraphx.shape.type_t[name])


def test_its_description() -> None:
    s = migraphx.shape(lens=[2, 3], type="half")
    assert (s.lens(), s.strides(), s.ndim(), s.elements(), s.bytes()) == ([2, 3], [3, 1], 2, 6, 12)
    assert s.standard()
    assert s.packed()
    assert not (s.transposed() or s.broadcasted() or s.scalar() or s.dynamic())
    assert s.dyn_dims() == []
    assert repr(s) == "half_type, {2, 3}, {3, 1}"
    assert s == migraphx.shape(type="half", lens=[2, 3], strides=[3, 1])
    assert s != migraphx.shape(lens=[2, 3])


def test_layouts() -> None:
    turned = migraphx.shape(lens=[2, 3, 4], permutation=[0, 2, 1])
    assert turned.strides() == [12, 1, 3]
    assert turned.transposed()
    wide = migraphx.shape(lens=[1, 64, 3, 3], strides=[0, 1, 0, 0])
    assert wide.broadcasted()


def test_scalars_have_one_axis_of_stride_0() -> None:
    s = migraphx.shape(type="float", lens=[1], strides=[0])
    assert (s.lens(), s.strides(), s.ndim(), s.elements()) == ([1], [0], 1, 1)
    assert s.scalar()
    assert not s.standard()
    assert migraphx.shape().strides() == [1]
    assert migraphx.argument(np.array(2.5, np.float32)).get_shape() == s


def test_ranges() -> None:
    dims = [migraphx.shape.dynamic_dimension(1, 4, {2, 4}), migraphx.shape.dynamic_dimension(3, 3)]
    s = migraphx.shape(type="float", dyn_dims=dims)
    assert s.dynamic()
    assert [(d.min, d.max, d.optimals, d.is_fixed()) for d in s.dyn_dims()] == [
        (1, 4, {2, 4}, False),
        (3, 3, set(), True),
    ]
    assert repr(s) == "dynamic, float_type, {[1, 4, {2, 4}], [3, 3, {}]}"
    with pytest.raises(ShapeError, match="dyn_dims"):
        s.lens()


def test_it_is_accepted_where_python_expects_extents() -> None:
    s = migraphx.shape(lens=[2, 3])
    assert list(s) == [2, 3]
    assert np.random.random(s).shape == (2, 3)


def test_invalid_shapes() -> None:
    with pytest.raises(ShapeError, match="not an element type"):
        migraphx.shape(type="nonsense")
    with pytest.raises(ParameterError, match="from 0 to 16, got 17"):
        migraphx.shape(type=17)


def test_ranges_of_any_ints() -> None:
    assert migraphx.shape.dynamic_dimension(np.int64(1), np.int32(4)) == migraphx.shape.dynamic_dimension(1, 4)


def symbolic() -> migraphx.shape:
    dim = migraphx.shape.dynamic_dimension
    return migraphx.shape(type="float", dyn_dims=[dim("n * 3 + 1", {"n": dim(1, 8, {2})}), dim(3, 3)])


def test_extents_that_are_expressions() -> None:
    s = symbolic()
    assert s.dynamic()
    assert [d.is_symbolic() for d in s.dyn_dims()] == [True, False]
    assert repr(s) == "dynamic, float_type, {[3*n+1 with n in 1..8], [3, 3, {}]}"
    assert s != migraphx.shape(type="float", dyn_dims=[(4, 25), 3])


def test_extents_as_texts_and_their_names() -> None:
    dim = migraphx.shape.dynamic_dimension
    s = migraphx.shape(
        dyn_dims=["3*n(constraints={[1..20], [1..8]}, optimals={2, 4}) + 1", "m"], symbols={"m": dim(2, 16)}
    )
    assert s.symbolic() and s.standard()
    assert [d.expression for d in s.dyn_dims()] == [
        "3*n(constraints={[1..8]}, optimals={2, 4}) + 1",
        "m(constraints={[2..16]})",
    ]
    assert s.symbol_table() == {"n": [dim(1, 8, {2, 4})], "m": [dim(2, 16)]}
    assert s == migraphx.shape(dyn_dims=["1 + n*3", "m"], symbols=s.symbol_table())
    assert s == migraphx.shape(dyn_dims=[d.expression for d in s.dyn_dims()])
    assert migraphx.shape(dyn_dims=["n"], symbols={"n": [dim(1, 9), dim(2, 12, {4})]}).dyn_dims() == [
        dim("n({[2..9]}, {4})")
    ]


def test_shapes_without_names() -> None:
    ranged, fixed = migraphx.shape(dyn_dims=[(1, 4), 3]), migraphx.shape(lens=[2, 3])
    mixed = migraphx.shape(dyn_dims=["n({[1..4]})", (3, 3)])
    assert not (ranged.symbolic() or fixed.symbolic() or mixed.symbolic())
    assert ranged.dyn_dims()[0].expression is None
    assert ranged.symbol_table() == fixed.symbol_table() == {}
    assert ranged.dyn_strides() == fixed.dyn_strides() == []


def test_strides_that_are_expressions() -> None:
    dims = ["n({[1..8]})", "3"]
    s = migraphx.shape(dyn_dims=dims, dyn_strides=["1", "n({[1..8]})"])
    assert not s.standard() and s.dynamic()
    assert s.dyn_strides() == ["1", "n(constraints={[1..8]})"]
    assert migraphx.shape(dyn_dims=dims).dyn_strides() == ["3", "1"]
    assert migraphx.shape(dyn_dims=dims, dyn_strides=["3", "1"]) == migraphx.shape(dyn_dims=dims) != s
    assert migraphx.shape(dyn_dims=dims, dyn_strides=s.dyn_strides()) == s == migraphx.shape.from_json(s.to_json())


@pytest.mark.parametrize(
    ("dims", "steps"),
    [(["n({[1..8]})", "3"], ["1"]), ([(1, 8), 3], ["3", "1"]), (["n({[1..8]})", "3"], "31"), (["n({[1..8]})"], 5)],
)
def test_strides_that_do_not_belong_to_the_extents(dims, steps) -> None:
    with pytest.raises(ParameterError, match="dyn_strides require dyn_dims that are all expressions"):
        migraphx.shape(dyn_dims=dims, dyn_strides=steps)


def test_programs_refuse_strides_that_are_expressions() -> None:
    s = migraphx.shape(dyn_dims=["n({[1..8]})", "3"], dyn_strides=["1", "n({[1..8]})"])
    with pytest.raises(UnsupportedError, match=r"programs do not support symbolic strides.*leave dyn_strides out"):
        migraphx.program().get_main_module().add_parameter("x", s)


@pytest.mark.parametrize(
    "s", [symbolic(), migraphx.shape(lens=[2, 3], strides=[1, 2]), migraphx.shape(dyn_dims=[(1, 4)])]
)
def test_shapes_as_json(s) -> None:
    assert migraphx.shape.from_json(s.to_json()) == s


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"type": "float_type"}', '{"type": "float_type", "dynamic_dimensions": 3}']
)
def test_json_of_no_shape(text) -> None:
    with pytest.raises(ParameterError, match="a shape in the format of to_json is required"):
        migraphx.shape.from_json(text)


def test_scripts_and_files_keep_expressions() -> None:
    p = migraphx.program()
    main = p.get_main_module()
    main.add_return([main.add_instruction(migraphx.op("neg"), [main.add_parameter("x", symbolic())])])
    assert "migraphx.shape.from_json" in p.to_py()
    scope = {"migraphx": migraphx}
    exec(p.to_py(), scope)
    for other in (scope["p"], migraphx.load_buffer(migraphx.save_buffer(p))):
        assert other == p and other.get_parameter_shapes() == p.get_parameter_shapes()


@pytest.mark.parametrize("symbols", [{"n": "x"}, {"n": []}, {"n": [(1, 2), "x"]}, 3])
def test_invalid_ranges_of_a_name(symbols) -> None:
    with pytest.raises(ParameterError, match=r"symbols: a .* is required"):
        migraphx.shape(dyn_dims=["n"], symbols=symbols)
