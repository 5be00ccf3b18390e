"""`migraphx.program`, `module`, `instruction_ref` and `op`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest

import migraphx
from mgx_core.errors import ParameterError, ShapeError
from migraphx.rebatch import Rebatched

REF = migraphx.get_target("ref")


def of(*lens, kind="float"):
    return migraphx.shape(type=kind, lens=list(lens))


def one_op(name, *inputs, **attributes):
    """Returns the results of one operation on arrays, on the reference target."""
    p = migraphx.program()
    m = p.get_main_module()
    made = m.add_instruction(migraphx.op(name, **attributes), [m.add_literal(np.asarray(x)) for x in inputs])
    m.add_return([made])
    p.compile(REF)
    return np.array(p.run({})[0]), made


def test_operations() -> None:
    assert isinstance(migraphx.op("add"), migraphx.op)
    assert migraphx.op("add").name() == "add"
    assert migraphx.op("reduce_mean", axes=[1, 2]).values() == {"axes": [1, 2]} | {
        k: v for k, v in migraphx.op("reduce_mean").values().items() if k != "axes"
    }
    by_number = migraphx.op("pooling", mode=1, lengths=[2, 2], padding_mode=0)
    assert by_number == migraphx.op("pooling", mode=migraphx.op.pooling_mode.max, lengths=[2, 2])
    assert by_number.values()["mode"] == int(migraphx.op.pooling_mode.max) == 1
    for said, axes in (({}, 2), ({"padding": [1, 1, 1]}, 3), ({"padding": [1] * 4}, 2), ({"stride": [2]}, 1)):
        window = migraphx.op("convolution", **said).values()
        assert {"padding": [0] * axes, "stride": [1] * axes, "dilation": [1] * axes} | said == {
            k: window[k] for k in ("padding", "stride", "dilation")
        }
    assert migraphx.op("gru", direction=2).values()["direction"] == int(migraphx.op.rnn_direction.bidirectional) == 2
    narrow = migraphx.op("convert", target_type=1)
    assert narrow == migraphx.op("convert", target_type=migraphx.shape.type_t.half_type)
    assert narrow.values()["target_type"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "concat",
        "convert",
        "pooling",
        "lstm",
        "gru",
        "rnn",
        "reverse",
        "layout",
        "step",
        "get_tuple_elem",
        "im2col",
        "fixed_pad",
        "bit_cast",
        "softmax",
        "topk",
    ],
)
def test_operations_without_attributes(name) -> None:
    assert migraphx.op(name).name() == name


def test_attributes_that_the_inputs_imply() -> None:
    assert migraphx.op("multibroadcast", out_lens=[2, 3], out_dyn_dims=[]).values()["out_lens"] == [2, 3]
    dim = migraphx.shape.dynamic_dimension
    mm = migraphx.program().get_main_module()
    x = mm.add_parameter("x", migraphx.shape(lens=[1, 3]))
    assert mm.add_instruction(
        migraphx.op("multibroadcast", out_dyn_dims=[dim(4, 4), dim(3, 3)]), [x]
    ).shape().lens() == [4, 3]
    before = len(mm)
    with pytest.raises(ShapeError, match=r"out_dyn_dims is \[\[1, 4"):
        mm.add_instruction(migraphx.op("multibroadcast", out_lens=[4, 3], out_dyn_dims=[dim(1, 4), dim(3, 3)]), [x])
    assert len(mm) == before


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("gqa_rotary_embedding", {"num_heads": 2}),
        ("gqa_rotary_embedding", {"kv_num_heads": 2}),
        ("dynamic_range", {"max_output": 10}),
        ("rnn_var_sl_shift_output", {"output_name": "nothing"}),
    ],
)
def test_attributes_that_would_change_the_result_are_refused(name, attributes) -> None:
    (attribute,) = attributes
    with pytest.raises(ParameterError, match=attribute):
        migraphx.op(name, **attributes)


def test_programs_are_equal_in_any_order_of_their_instructions() -> None:
    def made(names, op):
        p = migraphx.program()
        mm = p.get_main_module()
        held = {n: mm.add_parameter(n, migraphx.shape(lens=[2])) for n in names}
        negated = {n: mm.add_instruction(migraphx.op("neg"), [held[n]]) for n in names}
        mm.add_return([mm.add_instruction(migraphx.op(op), [negated["x"], negated["y"]])])
        return p

    assert made("xy", "add") == made("yx", "add")
    assert made("xy", "add") != made("yx", "sub")
    assert made("xy", "add") != made("xyz", "add")


def test_ref_runs_programs_as_they_are_written() -> None:
    p = migraphx.program()
    mm = p.get_main_module()
    one = mm.add_literal(np.ones(3, np.float32))
    mm.add_return([mm.add_instruction(migraphx.op("sub"), [mm.add_instruction(migraphx.op("add"), [one, one]), one])])
    p.compile(migraphx.get_target("ref"))
    seen = []
    p.run_trace({}, lambda ins, value: seen.append((ins.name(), value.tolist())))
    assert seen[-2:] == [("add", [2, 2, 2]), ("sub", [1, 1, 1])]


def test_softmax_and_topk_work_on_migraphxs_axes() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 7
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(one_op("softmax", x)[0], powers / powers.sum(1, keepdims=True), rtol=1e-6)
    assert migraphx.op("topk", k=1).values()["axis"] == 0


def test_comparisons_and_logic_return_numbers_of_their_inputs_type() -> None:
    a, b = np.array([1, 2, 3], np.float32), np.array([2, 2, 2], np.float32)
    for name, wanted in (("equal", [0, 1, 0]), ("greater", [0, 0, 1]), ("less", [1, 0, 0]), ("logical_and", [1, 1, 1])):
        got, made = one_op(name, a, b)
        assert got.dtype == np.float32
        assert got.tolist() == wanted
        assert made.shape().type_string() == "float_type"
    assert one_op("not", np.array([0, 2], np.int32))[0].tolist() == [1, 0]
    assert one_op("equal", np.array([True]), np.array([True]))[0].dtype == np.bool_
    assert one_op("where", np.array([0, 1, 2], np.int8), a, b)[0].tolist() == [2, 2, 3]


def test_instructions() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    x = m.add_parameter("x", shape=of(4, 4, 64, kind="half"))
    i = m.add_instruction(migraphx.op("reshape", dims=[16, 64]), [x])
    assert isinstance(i, migraphx.instruction_ref)
    assert isinstance(m, migraphx.module)
    assert (i.shape().lens(), i.shape().type_string()) == ([16, 64], "half_type")
    assert (i.name(), i.op().name(), i.op().values()["dims"]) == ("reshape", "reshape", [16, 64])
    assert i.inputs() == [x]
    assert x.outputs() == [i]
    assert {i: 1}[x.outputs()[0]] == 1
    assert list(m) == [x, i]
    assert m.add_literal(np.array([1, 2], np.int32)).get_literal().tolist() == [1, 2]
    m.replace_return([i])
    assert p.get_output_shapes() == [of(16, 64, kind="half")]


def test_conditions_with_modules_of_their_own() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    cond = m.add_parameter("cond", migraphx.shape(type="bool", lens=[1]))
    x = m.add_literal(np.array([1, -2], np.float32))
    yes, no = p.create_module("yes"), p.create_module("no")
    yes.add_return([yes.add_instruction(migraphx.op("abs"), [x])])
    no.add_return([no.add_instruction(migraphx.op("neg"), [x])])
    chosen = m.add_instruction(migraphx.op("if"), [cond], [yes, no])
    m.add_return([m.add_instruction(migraphx.op("get_tuple_elem", index=0), [chosen])])
    p.compile(REF)
    for given, wanted in ((True, [1, 2]), (False, [-1, 2])):
        assert p.run({"cond": np.array([given])})[0].tolist() == wanted


def relu() -> migraphx.program:
    p = migraphx.program()
    m = p.get_main_module()
    m.add_return([m.add_instruction(migraphx.op("relu"), [m.add_parameter("x", of(2, 3))])])
    return p


def test_calls_of_compile_and_run() -> None:
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for compile in (
        lambda p: p.compile(REF),
        lambda p: p.compile(t=REF, offload_copy=True, fast_math=False, exhaustive_tune=False),
        lambda p: p.compile(REF, True, True),
        lambda p: p.compile(REF, {"fast_math": False}),
        lambda p: p.compile(REF, validate=True),
    ):
        p = relu()
        compile(p)
        assert p.is_compiled()
        (result,) = p.run({"x": x, "unused": 3})
        assert isinstance(result, migraphx.argument)
        np.testing.assert_array_equal(np.array(result), np.maximum(x, 0))
    with pytest.raises(ParameterError, match="'x'"):
        p.run({})


def test_a_program_that_is_not_compiled_is_evaluated() -> None:
    assert relu().run({"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32)})[0].tolist() == [1, 0, 3, 0, 5, 0]
    with pytest.raises(ParameterError, match="'x' is missing"):
        relu().run({})


def test_arguments_by_name_and_by_position() -> None:
    shapes = relu().get_parameter_shapes()
    assert isinstance(shapes, dict)
    assert list(shapes) == relu().get_parameter_names() == ["x"]
    assert shapes["x"] == shapes[0] == of(2, 3)
    with pytest.raises(KeyError):
        shapes["y"]


def test_text_in_migraphxs_form() -> None:
    assert str(relu()) == (
        'module: "main"\n'
        "x = @param:x -> float_type, {2, 3}, {3, 1}, target_id=0\n"
        "@1 = relu(x) -> float_type, {2, 3}, {3, 1}, target_id=0\n"
        "@2 = @return(@1)\n"
    )
    assert relu() == relu()


def test_another_batch_than_the_model_has() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    x = m.add_parameter("x", of(1, 4))
    m.add_return([m.add_instruction(migraphx.op("softmax"), [x])])
    p.compile(REF)
    given = np.arange(12, dtype=np.float32).reshape(3, 4) % 5
    whole = np.array(p.run({"x": given})[0])
    np.testing.assert_array_equal(whole, np.concatenate([np.array(p.run({"x": row[None]})[0]) for row in given]))


def test_batches_from_many_threads(monkeypatch) -> None:
    """Each size is compiled once, even if several threads request it concurrently."""
    p = migraphx.program()
    m = p.get_main_module()
    m.add_return([m.add_instruction(migraphx.op("neg"), [m.add_parameter("x", of(1, 4))])])
    p.compile(REF)
    compiled, real = [], Rebatched._compiled
    monkeypatch.setattr(Rebatched, "_compiled", lambda self, n: (compiled.append(n), real(self, n))[1])

    def work(n):
        given = np.full((n, 4), n, np.float32)
        return [np.array_equal(np.array(p.run({"x": given})[0]), -given) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        assert all(all(right) for right in pool.map(work, [2, 3] * 4))
    assert sorted(compiled) == [2, 3]


def test_a_program_that_mixes_its_batch_refuses_another() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    x = m.add_parameter("x", of(2, 4))
    m.add_return([m.add_instruction(migraphx.op("reshape", dims=[1, -1]), [x])])
    p.compile(REF)
    with pytest.raises(
        ParameterError,
        match=r"does not support a batch size of 3 .* would become .* parse the model with an open batch",
    ):
        p.run({"x": np.ones((3, 4), np.float32)})
    with pytest.raises(ParameterError, match="must be float32"):
        p.run({"x": np.ones((2, 5), np.float32)})


def test_traces() -> None:
    p = relu()
    p.compile(REF)
    seen = []
    p.run_trace({"x": np.ones((2, 3), np.float32)}, lambda ins, value: seen.append((ins.name(), value.tolist())))
    assert seen[-1][1] == [1] * 6
    assert seen[0][0] == "@param"


def test_files(tmp_path) -> None:
    p = relu()
    for format in ("msgpack", "json"):
        migraphx.save(p=p, filename=str(tmp_path / "p"), format=format)
        assert migraphx.load(filename=str(tmp_path / "p"), format=format) == p
        assert migraphx.load_buffer(b=migraphx.save_buffer(p)) == p
    p.compile(REF)
    p.save(tmp_path / "compiled")
    again = migraphx.load(tmp_path / "compiled")
    assert again.is_compiled()
    assert again.run({"x": -np.ones((2, 3), np.float32), "y": 0})[0].tolist() == [0] * 6


@pytest.mark.usefixtures("emulated")
def test_memory_of_the_caller_on_a_device() -> None:
    p = relu()
    p.compile(migraphx.get_target("gpu"), offload_copy=False)
    assert list(p.get_parameter_shapes()) == ["x", "main:#output_0"]
    params = {n: migraphx.to_gpu(migraphx.generate_argument(s)) for n, s in p.get_parameter_shapes().items()}
    result = p.run(params)[-1]
    assert result.data_ptr() == params["main:#output_0"].data_ptr()
    assert migraphx.from_gpu(result).tolist() == [max(v, 0) for v in params["x"].tolist()]


def test_targets_and_contexts() -> None:
    assert isinstance(REF, migraphx.target)
    p = relu()
    p.compile(REF.core.get_context())
    assert p.is_compiled()


def test_quantizing_changes_the_program_and_returns_it() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    m.add_return([m.add_instruction(migraphx.op("exp"), [m.add_parameter("x", of(3))])])
    assert migraphx.quantize_fp16(p) is p
    kinds = {i.name(): i.shape().type_string() for i in p.get_main_module() if i.name() == "exp"}
    assert kinds == {"exp": "half_type"}
    q = relu()
    assert migraphx.quantize_bf16(prog=q, ins_names=["dot"]) is q
    assert {i.shape().type_string() for i in q.get_main_module() if i.name() == "relu"} == {"float_type"}


def test_macros() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    a, b = (m.add_literal(np.arange(6, dtype=np.float32).reshape(s)) for s in ((2, 3), (3, 2)))
    gemm = migraphx.macro("gemm", alpha=2.0)
    assert (gemm.name(), gemm.options(), migraphx.macro("gemm").options()) == ("gemm", {"alpha": 2.0}, {})
    result = m.add_macro(gemm, [a, b])
    before = m.insert_macro(result[0], migraphx.macro("einsum", equation="ij->ji"), [a])
    m.add_return([result[-1], before[-1]])
    p.compile(REF)
    assert [r.tolist() for r in p.run({})] == [[20, 26, 56, 80], [0, 3, 1, 4, 2, 5]]


def test_numbers_of_enumerations() -> None:
    assert migraphx.op("pad", pads=[0, 1], mode=1) == migraphx.op("pad", pads=[0, 1], mode="reflect")
    assert migraphx.op("pad", pads=[0, 1], mode="edge").values()["mode"] == 2
    assert migraphx.op("roialign", mode=migraphx.op.pooling_mode.max).core.mode == "max"
    assert migraphx.op("resize", mode="nearest").values()["mode"] == "nearest"
    with pytest.raises(ParameterError, match=r"roialign: mode must be one of 0 \(avg\), 1 \(max\), got 2"):
        migraphx.op("roialign", mode=migraphx.op.pooling_mode.lpnorm)
    with pytest.raises(ParameterError, match="padding_mode must be one of 0"):
        migraphx.op("convolution", padding_mode=3)


def test_attributes_without_a_counterpart_are_accepted_only_with_defaults() -> None:
    assert migraphx.op("unsqueeze", axes=[1], steps=[]) == migraphx.op("unsqueeze", axes=[1])
    assert migraphx.op("im2col", padding_mode=0) == migraphx.op("im2col")
    with pytest.raises(ParameterError, match="padding_mode 1"):
        migraphx.op("im2col", padding_mode=1)


def test_invalid_calls_are_rejected_with_the_expected_arguments(tmp_path) -> None:
    p = migraphx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", migraphx.shape(lens=[2]))
    with pytest.raises(
        ParameterError, match=r'add_instruction requires an operation \(e.g. migraphx.op\("relu"\)\), got \'relu\''
    ):
        main.add_instruction("relu", [])
    with pytest.raises(ParameterError, match="is a macro, not an operation: use add_macro"):
        main.add_instruction(migraphx.macro("gelu_erf"), [x])
    main.add_return([x])
    migraphx.save(p, tmp_path / "p.json", format="json")
    for load in (
        lambda: migraphx.load(tmp_path / "p.json", format="xml"),
        lambda: migraphx.load_buffer(migraphx.save_buffer(p), format="xml"),
    ):
        with pytest.raises(ParameterError, match="format must be one of 'msgpack', 'json', got 'xml'"):
            load()
    p.compile(migraphx.get_target("ref"))
    with pytest.raises(ParameterError, match="by parameter name is required, got list"):
        p.run([np.ones(2, np.float32)])


def test_a_deep_copy_is_a_program_of_its_own() -> None:
    p = migraphx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", of(2))
    main.add_return([main.add_instruction(migraphx.op("neg"), [x])])
    plain = deepcopy(p)
    p.compile(REF)
    compiled = deepcopy(p)
    assert not plain.is_compiled() and compiled.is_compiled()
    other = plain.get_main_module()
    other.replace_return([other.add_instruction(migraphx.op("abs"), [other.add_parameter("y", of(2))])])
    plain.compile(REF)
    given = np.float32([-1, 2])
    for made, name, wanted in ((p, "x", -given), (compiled, "x", -given), (plain, "y", abs(given))):
        both = {"x": given, "y": given}
        assert name in made.get_parameter_names()
        np.testing.assert_array_equal(np.array(made.run(both)[0]), wanted)
