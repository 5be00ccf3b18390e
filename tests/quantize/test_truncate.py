"""Programs whose ops compute in 16-bit floats."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import Program, Shape, get_target, load_buffer, op, quantize_bf16, quantize_fp16, save_buffer
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.quantize.truncate import angles, integral
from mgx_core.types.dim import symbol

QUANTIZE = {dt.float16: quantize_fp16, dt.bfloat16: quantize_bf16}


def types(program):
    """Returns result types by op, except those of parameters, constants and conversions."""
    left_out = {"@param", "@literal", "@return", "convert"}
    return {i.op.name: i.shape.dtype for i in program.get_main_module() if i.op.name not in left_out}


@pytest.mark.parametrize("to", QUANTIZE)
def test_ops_compute_in_the_type_and_the_border_keeps_its_own(to):
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [2, 3]))
    w = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    m.add_return([m.add(op("relu"), m.add(op("dot"), x, m.add_literal(w)))])
    given = np.random.default_rng(2).standard_normal((2, 3)).astype(np.float32)
    (wanted,) = Interpreter().run(m, [given])
    QUANTIZE[to](program)
    assert types(program) == {"dot": to, "relu": to}
    (weights,) = (i.get_literal().to_numpy() for i in m if i.is_literal)
    assert weights.dtype == to.numpy
    np.testing.assert_array_equal(weights, w.astype(to.numpy))
    (found,) = Interpreter().run(m, [given])
    assert found.dtype == np.float32
    size = np.abs(given) @ np.abs(w)
    assert (np.abs(found - wanted) <= 2 * to.epsilon * size).all()


@pytest.mark.parametrize("to", QUANTIZE)
def test_nan_and_infinity_stay_in_constants(to):
    program = Program()
    m = program.get_main_module()
    held = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    m.add_return([m.add(op("add"), m.add_parameter("x", Shape("float32", [4])), m.add_literal(held))])
    QUANTIZE[to](program)
    (found,) = Interpreter().run(m, [np.zeros(4, np.float32)])
    np.testing.assert_array_equal(found, held)


@pytest.mark.parametrize("others", [[], [np.nan], [np.inf], [-np.inf, np.nan]], ids=str)
def test_numbers_beyond_the_range_are_clamped_beside_any_others(others):
    program = Program()
    m = program.get_main_module()
    held = np.array([1e6, -1e9, 1, *others], np.float32)
    m.add_return([m.add(op("add"), m.add_parameter("x", Shape("float32", [held.size])), m.add_literal(held))])
    QUANTIZE[dt.float16](program)
    (found,) = Interpreter().run(m, [np.zeros(held.size, np.float32)])
    np.testing.assert_array_equal(found, [65504, -65504, 1, *others])


@pytest.mark.parametrize("to", QUANTIZE)
def test_groups_of_a_program_that_was_saved_compiled_are_fused_again(to):
    """A conversion within attention left a group that is none."""
    program = Program()
    m = program.get_main_module()
    rng = np.random.default_rng(3)
    w = [m.add_literal(rng.standard_normal((16, 16)).astype(np.float32)) for _ in range(2)]
    scores = m.add(op("tanh"), m.add(op("dot"), m.add_parameter("x", Shape("float32", [8, 16])), w[0]))
    m.add_return([m.add(op("tanh"), m.add(op("dot"), m.add(op("softmax", axis=1), scores), w[1]))])
    given = {"x": rng.standard_normal((8, 16)).astype(np.float32)}
    program.compile(get_target("ref"))
    wanted = program.run(given)[0].to_numpy()
    program = load_buffer(save_buffer(program))
    assert any(i.modules for i in program.get_main_module())
    QUANTIZE[to](program)
    assert not any(i.modules for i in program.get_main_module())
    program.compile(get_target("cpu"))
    np.testing.assert_allclose(program.run(given)[0].to_numpy(), wanted, atol=4 * to.epsilon)


def test_only_the_named_ops():
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [2]))
    m.add_return([m.add(op("neg"), m.add(op("sin"), m.add(op("mul"), x, x)))])
    quantize_bf16(program, ["neg", "sin"])
    assert types(program) == {"mul": dt.float32, "sin": dt.bfloat16, "neg": dt.bfloat16}


def test_names_of_no_op_are_refused():
    with pytest.raises(ParameterError, match="ins_names: there is no op 'convolutin'; did you mean 'convolution'"):
        quantize_bf16(Program(), ["convolutin"])
    with pytest.raises(ParameterError, match="ins_names must be a list of names, got 'dot'"):
        quantize_fp16(Program(), "dot")


def test_float16_leaves_out_what_overflows():
    program = Program()
    m = program.get_main_module()
    m.add_return([m.add(op("neg"), m.add(op("exp"), m.add_parameter("x", Shape("float32", [2]))))])
    quantize_fp16(program)
    assert types(program) == {"exp": dt.float32, "neg": dt.float16}


def test_determinants_are_products():
    """FermiNet's error in float16 was three times that of torch, which has no determinants of 16-bit floats."""
    program = Program()
    m = program.get_main_module()
    x = m.add(op("abs"), m.add_parameter("x", Shape("float32", [2, 3, 3])))
    m.add_return([m.add(op("det"), x)])
    quantize_fp16(program)
    assert types(program) == {"abs": dt.float16, "det": dt.float32}


@pytest.mark.parametrize("to", QUANTIZE)
def test_angles_stay_wide(to):
    """Step 999 of a diffusion: in 16 bits its angle is wrong by one radian."""
    program = Program()
    m = program.get_main_module()
    t = m.add(op("multibroadcast", out_lens=(8,)), m.add_parameter("t", Shape("float32", [1])))
    frequencies = m.add_literal(np.exp(-np.arange(8)).astype(np.float32))
    angle = m.add(op("mul"), t, frequencies)
    both = [m.add(op("concat", axis=0), m.add(op("sin"), angle), m.add(op("cos"), angle))]
    m.add_return([m.add(op("neg"), *both)])
    (wanted,) = Interpreter().run(m, [np.array([999], np.float32)])
    QUANTIZE[to](program)
    found = types(program)
    assert {found[n] for n in ("multibroadcast", "mul", "sin", "cos")} == {dt.float32}
    assert found["neg"] is to
    (got,) = Interpreter().run(m, [np.array([999], np.float32)])
    np.testing.assert_allclose(got, wanted, atol=to.epsilon)


@pytest.mark.parametrize(("inner", "kept"), [(1, {"dot", "sin"}), (8, {"sin"})])
def test_sums_are_no_angles(inner, kept):
    """Frequencies times positions are angles; a layer before a periodic activation is not."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [4, inner]))
    y = m.add_parameter("y", Shape("float32", [inner, 4]))
    m.add_return([m.add(op("neg"), m.add(op("sin"), m.add(op("dot"), x, y)))])
    assert {i.op.name for i in angles(m)} - {"@param"} == kept


@pytest.mark.parametrize("to", QUANTIZE)
def test_cells_of_a_grid_are_found_in_float32(to):
    """In 16 bits, positions just below a border lie in the next cell, and their distances to it are 0."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [16]))
    position = m.add(op("mul"), x, m.add_literal(np.full(16, 100, np.float32)))
    cell = m.add(op("convert", target_type="int64"), m.add(op("floor"), position))
    rest = m.add(op("sub"), position, m.add(op("floor"), position))
    m.add_return([m.add(op("gather", axis=0), m.add_literal(np.arange(101)), cell), m.add(op("sqrt"), rest)])
    given = (np.arange(1, 17, dtype=np.float32) * 6 - 1e-3) / 100
    wanted = Interpreter().run(m, [given])
    QUANTIZE[to](program)
    assert {t for t in types(program).values() if t.is_float} == {dt.float32}
    for a, b in zip(Interpreter().run(m, [given]), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_activations_that_also_become_integers_are_not_kept():
    program = Program()
    m = program.get_main_module()
    x = m.add(op("relu"), m.add_parameter("x", Shape("float32", [4, 4])))
    scaled = m.add(op("mul"), x, m.add_literal(np.full((4, 4), 255, np.float32)))
    y = m.add(op("dot"), x, m.add_literal(np.eye(4, dtype=np.float32)))
    m.add_return([m.add(op("convert", target_type="uint8"), scaled), y])
    assert {i.op.name for i in integral(m)} == {"convert", "mul"}


# a mean or sum of squares that float16 represents with few digits, with all, not at all
@pytest.mark.parametrize("size", [1e-3, 1.0, 500.0])
@pytest.mark.parametrize("inverse", ["rsqrt", "sqrt"])
@pytest.mark.parametrize("total", ["mean", "sum"])
def test_the_root_of_a_mean_of_squares_keeps_its_range(size, inverse, total):
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [2, 8]))
    mean = m.add(op(f"reduce_{total}", axes=[1]), m.add(op("mul"), x, x))
    epsilon = m.add(op("multibroadcast", out_lens=[2, 1]), m.add_literal(np.float32([1e-6])))
    root = m.add(op(inverse), m.add(op("add"), mean, epsilon))
    scaled = op("mul" if inverse == "rsqrt" else "div")
    m.add_return([m.add(scaled, x, m.add(op("multibroadcast", out_lens=[2, 8]), root))])
    quantize_fp16(program)
    given = np.linspace(size, 2 * size, 16, dtype=np.float32).reshape(2, 8)
    squares = np.square(given.astype(np.float64))
    wanted = given / np.sqrt((squares.mean if total == "mean" else squares.sum)(1, keepdims=True) + 1e-6)
    (found,) = Interpreter().run(m, [given])
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_layers_with_several_results_compute_in_the_type():
    program = Program()
    m = program.get_main_module()
    extents = {"x": [3, 1, 4], "w": [1, 16, 4], "r": [1, 16, 4]}
    layer = m.add(op("lstm", hidden_size=4), *(m.add_parameter(n, Shape("float32", d)) for n, d in extents.items()))
    m.add_return([m.add(op("get_tuple_elem", index=n), layer) for n in range(2)])
    before = [o.shape.dtype for o in m.outputs]
    quantize_fp16(program)
    (layer,) = (i for i in m if i.op.name == "lstm")
    assert [item.dtype for item in layer.result.items] == [dt.float16] * 2
    assert [o.shape.dtype for o in m.outputs] == before


def linear_attention(rows, width):
    """q (k v) divided by q (k 1) with non-negative features; the sums exceed the range of float16."""
    program = Program()
    m = program.get_main_module()
    shape = Shape("float32", [rows, width])
    q, k, v = (m.add(op("relu"), m.add_parameter(n, shape)) for n in "qkv")
    flat = m.add(op("transpose", permutation=(1, 0)), k)
    ones = m.add(op("multibroadcast", out_lens=(rows, 1)), m.add_literal(np.float32([[1]])))
    above = m.add(op("dot"), q, m.add(op("dot"), flat, v))
    below = m.add(op("dot"), q, m.add(op("dot"), flat, ones))
    mean = m.add(op("div"), above, m.add(op("multibroadcast", out_lens=(rows, width)), below))
    weights = m.add_literal(np.eye(width, dtype=np.float32))
    m.add_return([m.add(op("dot"), mean, weights)])
    return program


def test_linear_attention_keeps_its_sums():
    program = linear_attention(64, 32)
    m = program.get_main_module()
    rng = np.random.default_rng(3)
    given = [rng.uniform(0, 30, (64, 32)).astype(np.float32) for _ in "qkv"]
    (wanted,) = Interpreter().run(m, given)
    quantize_fp16(program)
    assert [i.shape.dtype for i in m if i.op.name == "dot"] == [dt.float32] * 2 + [dt.float16] + [dt.float32] + [
        dt.float16
    ]
    (found,) = Interpreter().run(m, given)
    np.testing.assert_allclose(found, wanted, rtol=4 * dt.float16.epsilon)


def test_weights_that_indices_choose_are_no_computed_values():
    """Adapters of each sample: their products were float32."""
    program = Program()
    m = program.get_main_module()
    x, at = m.add_parameter("x", Shape("float32", [2, 4, 8])), m.add_parameter("at", Shape("int64", [2]))
    table = m.add_literal(np.ones((3, 8, 8), np.float32))
    rows = m.add(op("transpose", permutation=(0, 2, 1)), m.add(op("gather"), table, at))
    m.add_return([m.add(op("dot"), m.add(op("dot"), x, rows), m.add(op("relu"), rows))])
    quantize_fp16(program)
    assert [i.shape.dtype for i in m if i.op.name == "dot"] == [dt.float16, dt.float32]


@pytest.mark.parametrize("moved", [False, True])
def test_factors_that_are_multiplied_and_summed_keep_their_range(moved):
    """State-space layers write products this way: broadcast, multiplied, summed along an axis."""
    program = Program()
    m = program.get_main_module()
    c, b = (m.add_parameter(n, Shape("float32", [4, 8])) for n in "cb")
    wide = [m.add(op("unsqueeze", axes=[axis]), m.add(op("relu"), v)) for axis, v in ((1, c), (0, b))]
    factors = [m.add(op("multibroadcast", out_lens=(4, 4, 8)), v) for v in wide]
    product = m.add(op("mul"), *factors)
    axis = 2
    if moved:
        product, axis = m.add(op("transpose", permutation=(2, 0, 1)), product), 0
    sums = m.add(op("squeeze", axes=[axis]), m.add(op("reduce_sum", axes=[axis]), product))
    weights = m.add_literal(np.eye(4, dtype=np.float32) * np.float32(1e-4))
    m.add_return([m.add(op("dot"), m.add(op("mul"), sums, m.add_literal(np.full((4, 4), 0.01, np.float32))), weights)])
    rng = np.random.default_rng(5)
    given = [rng.uniform(200, 300, (4, 8)).astype(np.float32) for _ in "cb"]
    (wanted,) = Interpreter().run(m, given)
    quantize_fp16(program)
    assert [i.shape.dtype for i in m if i.op.name in ("mul", "dot")] == [dt.float32, dt.float32, dt.float16]
    (found,) = Interpreter().run(m, given)
    np.testing.assert_allclose(found, wanted, rtol=4 * dt.float16.epsilon)


def test_differences_of_running_sums_keep_their_digits():
    program = Program()
    m = program.get_main_module()
    sums = m.add(op("prefix_scan_sum", axis=0), m.add_parameter("x", Shape("float32", [256])))
    ends = (m.add(op("slice", axes=[0], starts=[n], ends=[n + 255]), sums) for n in (1, 0))
    m.add_return([m.add(op("relu"), m.add(op("sub"), *ends))])
    given = np.linspace(8, 9, 256, dtype=np.float32)
    quantize_fp16(program)
    (found,) = Interpreter().run(m, [given])
    np.testing.assert_allclose(found, given[1:], rtol=1e-4)


def test_weights_of_a_softmax_that_are_multiplied_and_summed_are_narrow():
    program = Program()
    m = program.get_main_module()
    x, v = (m.add_parameter(n, Shape("float32", [4, 8])) for n in "xv")
    weighed = m.add(op("mul"), m.add(op("softmax", axis=1), x), v)
    m.add_return([m.add(op("reduce_sum", axes=[1]), weighed)])
    quantize_fp16(program)
    assert [i.shape.dtype for i in m if i.op.name == "mul"] == [dt.float16]


@pytest.mark.parametrize("between", ["scale", "mask", "heads"])
def test_products_of_attention_are_narrow(between):
    """Softmax bounds them, also if scores are scaled, masked, or mixed by weights before and after it."""
    program = Program()
    m = program.get_main_module()
    q, k, v = (m.add_parameter(n, Shape("float32", [4, 8, 8])) for n in "qkv")
    scores = m.add(op("dot"), q, m.add(op("transpose", permutation=(0, 2, 1)), k))
    weights = m.add_literal(np.eye(8, dtype=np.float32)[None].repeat(4, 0))
    if between == "scale":
        scores = m.add(op("mul"), scores, m.add_literal(np.full((4, 8, 8), 0.5, np.float32)))
    elif between == "mask":
        masked = m.add_parameter("masked", Shape("bool", [4, 8, 8]))
        scores = m.add(op("where"), masked, m.add_literal(np.full((4, 8, 8), -np.inf, np.float32)), scores)
    else:
        scores = m.add(op("dot"), scores, weights)
    shares = m.add(op("softmax", axis=-1), scores)
    if between == "heads":
        shares = m.add(op("dot"), shares, weights)
    m.add_return([m.add(op("dot"), shares, v)])
    quantize_fp16(program)
    assert {i.shape.dtype for i in m if i.op.name == "dot"} == {dt.float16}


@pytest.mark.parametrize("to", QUANTIZE)
@pytest.mark.parametrize("masked", [-1e30, float(np.finfo(np.float32).min)])
def test_constants_beyond_the_range_become_its_ends(to, masked):
    """A row that is masked entirely is uniform, as in float32; infinities would make it NaN."""
    program = Program()
    m = program.get_main_module()
    shape = Shape("float32", [2, 4])
    share, scores = m.add_parameter("share", shape), m.add_parameter("scores", shape)
    low = m.add(op("multibroadcast", out_lens=(2, 4)), m.add_literal(np.float32([[masked]])))
    m.add_return([m.add(op("softmax", axis=1), m.add(op("add"), scores, m.add(op("mul"), share, low)))])
    given = [np.array([[0, 0, 1, 1], [1, 1, 1, 1]], np.float32), np.zeros((2, 4), np.float32)]
    QUANTIZE[to](program)
    (found,) = Interpreter().run(m, given)
    np.testing.assert_array_equal(found, [[0.5, 0.5, 0, 0], [0.25] * 4])


@pytest.mark.parametrize("to", QUANTIZE)
def test_an_extent_that_depends_on_data_keeps_its_symbol(to):
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [6]))
    start, end = (m.add_parameter(name, Shape("int64", [1])) for name in ("start", "end"))
    part = m.add(op("slice", axes=(0,)), x, start, end)
    wide = m.add(op("multibroadcast", out_lens=(2, *part.shape.dims)), part)
    m.add_return([m.add(op("neg"), wide)])
    QUANTIZE[to](program)
    (found,) = Interpreter().run(m, [np.arange(6, dtype=np.float32), np.array([1]), np.array([4])])
    np.testing.assert_array_equal(found, -np.float32([[1, 2, 3]] * 2))


def test_parts_whose_extents_depend_on_data_keep_their_symbols():
    program = Program()
    m = program.get_main_module()
    x, sizes = m.add_parameter("x", Shape("float32", [6])), m.add_parameter("sizes", Shape("int64", [2]))
    parts = m.add(op("split", axis=0, count=2), x, sizes)
    last = m.add(op("get_tuple_elem", index=1), parts)
    m.add_return([m.add(op("multibroadcast", out_lens=(2, *last.shape.dims)), last)])
    quantize_fp16(program)
    (found,) = Interpreter().run(m, [np.arange(6, dtype=np.float32), np.array([2, 4])])
    np.testing.assert_array_equal(found, np.float32([[2, 3, 4, 5]] * 2))


@pytest.mark.parametrize("to", QUANTIZE)
def test_sequences_keep_the_type_of_their_items(to):
    program = Program()
    m = program.get_main_module()
    x, at = m.add_parameter("x", Shape("float32", [3])), m.add_literal(np.array(-1))
    both = m.add(op("sequence_construct"), m.add(op("neg"), x), x)
    more = m.add(op("sequence_insert"), both, m.add(op("abs"), x), at)
    m.add_return([m.add(op("neg"), m.add(op("sequence_at"), more, at))])
    QUANTIZE[to](program)
    (found,) = Interpreter().run(m, [np.float32([1, -2, 3])])
    np.testing.assert_array_equal(found, np.float32([-1, 2, -3]))


@pytest.mark.parametrize("to", QUANTIZE)
def test_a_rank_that_a_run_decides_keeps_its_type(to):
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [2, 3]))
    dims = m.add_parameter("dims", Shape.of(dt.int64, [symbol("r", 0, 8)]))
    wide = m.add(op("broadcast_with_dims"), m.add(op("neg"), x), dims)
    m.add_return([wide, m.add(op("dimensions_of"), wide)])
    QUANTIZE[to](program)
    given = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    found, lens = Interpreter().run(m, [given, np.array([4, 2, 3])])
    np.testing.assert_array_equal(found, np.broadcast_to(-given, [4, 2, 3]))
    assert lens.tolist() == [4, 2, 3]
