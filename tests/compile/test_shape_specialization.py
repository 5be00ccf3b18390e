"""Once the shapes of a run are known, branches on extents are resolved and the code after them is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.compile import stages
from mgx_core.compile.shape_specialization import needs_extents, needs_shapes, specialize_ranks
from mgx_core.ir.module import nested
from mgx_core.ops.control import If
from mgx_core.ops.operation import Operation
from mgx_core.passes.fuse_elementwise import FuseElementwise
from mgx_core.passes.fuse_epilogue import FuseEpilogue
from mgx_core.passes.resolve_extents import ResolveExtents, with_known_extents
from mgx_core.types.argument import Array
from mgx_core.types.dim import symbol


@mgx.define_op("test.open_relu")
class OpenRelu(Operation):
    """relu of a tensor of any rank, like frontends add for ops that need ranks: -> tuple of one result."""

    def infer(self, x: mgx.Shape) -> mgx.TupleShape:
        return mgx.TupleShape([mgx.Shape.unranked(x.dtype)])

    def compute(self, x: Array) -> tuple[Array]:
        return (np.maximum(x, 0),)

    def module_for(self, shapes: Sequence[Any], values: Sequence[Any]) -> tuple[mgx.Module, list[int]]:
        body = mgx.Module("body")
        body.add_return([body.add(mgx.op("relu"), body.add_parameter("x", shapes[0]))])
        return body, [0]


def squeezed_or_not(on_data: bool = False) -> mgx.Program:
    """relu(x[0]) if x [n, 3] has one row, else relu(x): a squeeze as exporters write it; on_data: the condition is a value of
    x instead.
    """
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [symbol("n"), 3]))
    rows = main.add(
        mgx.op("gather", axis=0), main.add(mgx.op("dimensions_of", end=2), x), main.add_literal(np.array([0]))
    )
    one = main.add(mgx.op("equal"), rows, main.add_literal(np.array([1])))
    if on_data:
        first = main.add(mgx.op("slice", axes=[0, 1], starts=[0, 0], ends=[1, 1]), x)
        one = main.add(mgx.op("greater"), first, main.add_literal(np.zeros((1, 1), np.float32)))
    then, other = program.create_module("then"), program.create_module("other")
    then.add_return(
        [then.add(mgx.op("reshape", dims=[3]), then.add(mgx.op("slice", axes=[0], starts=[0], ends=[1]), x))]
    )
    other.add_return([other.add(mgx.op("neg"), other.add(mgx.op("neg"), x))])
    taken = main.add(mgx.op("if"), one, modules=[then, other])
    item = mgx.op("get_tuple_elem", index=0)
    main.add_return([main.add(item, main.add(OpenRelu(), main.add(item, taken)))])
    return program


@pytest.mark.parametrize("rows", [1, 2])
def test_branches_are_resolved_for_the_shapes_of_a_run(rows: int) -> None:
    program = squeezed_or_not()
    program.compile(mgx.get_target("ref"))
    x = np.linspace(-1, 1, 3 * rows, dtype=np.float32).reshape(rows, 3)
    (y,) = program.run({"x": x})
    np.testing.assert_array_equal(np.asarray(y), np.maximum(x[0] if rows == 1 else x, 0))
    (instance,) = program.executable.instances()  # type: ignore[union-attr]
    assert not any(isinstance(ins.op, If) for ins in instance.module)
    assert all(not shape.dynamic() for shape in instance.module.output_shapes())


def test_branch_on_data_stays() -> None:
    program = squeezed_or_not(on_data=True)
    program.compile(mgx.get_target("ref"))
    for first in (1.0, -1.0):
        x = np.array([[first, -2, 3], [4, -5, 6]], np.float32)
        (y,) = program.run({"x": x})
        np.testing.assert_array_equal(np.asarray(y), np.maximum(x[0] if first > 0 else x, 0))


def test_readers_of_unknown_ranks_move_into_the_branches() -> None:
    main = squeezed_or_not(on_data=True).get_main_module()
    copy = specialize_ranks(main.clone(parameters={"x": mgx.Shape("float32", [2, 3])}))
    assert copy is not None and not needs_shapes(copy)
    (taken,) = (ins for ins in copy if isinstance(ins.op, If))
    assert [str(m.output_shapes()[0]) for m in taken.modules] == ["float32[3]", "float32[2, 3]"]
    assert [m.outputs[0].op.name for m in taken.modules] == ["relu", "relu"]
    assert copy.outputs[0].inputs == (taken,)


def test_readers_of_a_branch_that_a_count_decides_move_into_it() -> None:
    """The number of elements other than zero depends on data, though it is an extent."""
    main = squeezed_or_not().get_main_module().clone(parameters={"x": mgx.Shape("float32", [2, 3])})
    taken = next(ins for ins in main if isinstance(ins.op, If))
    found = main.add(mgx.op("nonzero"), main.parameters["x"], before=taken)
    count = main.add(mgx.op("dimensions_of", start=1, end=2), found, before=taken)
    few = main.add(mgx.op("greater"), count, main.add_literal(np.array([3])), before=taken)
    main.set_inputs(taken, [few])
    copy = specialize_ranks(main)
    assert copy is not None and not any(isinstance(ins.op, OpenRelu) for m in nested(copy) for ins in m)


def test_readers_of_branches_that_data_decide_move_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []

    def noting(module: mgx.Module) -> mgx.Module | None:
        found = specialize_ranks(module)
        if found is not None:
            moved.append(str(found.parameters["x"].result))
        return found

    monkeypatch.setattr(stages, "specialize_ranks", noting)
    program = squeezed_or_not(on_data=True)
    program.compile(mgx.get_target("ref"))
    for rows in (2, 3, 4, 5):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), x[0])
    assert moved == ["float32[2, 3]", "float32[n, 3]"]


def test_readers_that_do_not_fit_one_branch_fail_only_if_it_runs() -> None:
    program = squeezed_or_not(on_data=True)
    main = program.get_main_module()
    (relu,) = main.outputs
    main.replace_return([main.add(mgx.op("reshape", dims=[2, 3]), relu)])
    copy = specialize_ranks(main.clone(parameters={"x": mgx.Shape("float32", [2, 3])}))
    assert copy is not None and [str(s) for s in copy.output_shapes()] == ["float32[2, 3]"]
    program.compile(mgx.get_target("ref"))
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    (y,) = program.run({"x": x})
    np.testing.assert_array_equal(np.asarray(y), np.maximum(x, 0))
    with pytest.raises(mgx.MgxError, match="cannot be reshaped"):
        program.run({"x": -x})


def test_readers_that_fit_no_branch_fail_when_they_run() -> None:
    program = squeezed_or_not(on_data=True)
    main = program.get_main_module()
    main.replace_return([main.add(mgx.op("reshape", dims=[5]), main.outputs[0].inputs[0].inputs[0])])
    program.compile(mgx.get_target("ref"))
    with pytest.raises(mgx.MgxError, match="cannot be reshaped"):
        program.run({"x": np.ones((2, 3), np.float32)})


def test_extents_known_inside_the_branches_are_those_of_later_instructions() -> None:
    main = squeezed_or_not(on_data=True).get_main_module()
    (relu,) = main.outputs
    main.replace_return([main.add(mgx.op("exp"), main.add(mgx.op("reshape", dims=[-1, 3]), relu))])
    copy = specialize_ranks(main.clone(parameters={"x": mgx.Shape("float32", [1, 3])}))
    assert copy is not None and [str(s) for s in copy.output_shapes()] == ["float32[1, 3]"]


def test_only_waiting_requests_are_completed() -> None:
    module = squeezed_or_not().get_main_module()
    assert needs_shapes(module)
    assert specialize_ranks(module) is None  # the number of rows is still open
    copy = specialize_ranks(module.clone(parameters={"x": mgx.Shape("float32", [1, 3])}))
    assert copy is not None and not needs_shapes(copy)
    assert [str(s) for s in copy.output_shapes()] == ["float32[3]"]


def test_fusion_for_a_run_equals_fusion_for_fixed_shapes() -> None:
    program = squeezed_or_not()
    program.compile(mgx.get_target("ref"))
    program.run({"x": np.ones((2, 3), np.float32)})
    (instance,) = program.executable.instances()  # type: ignore[union-attr]
    names = [p.op.split("(")[0] for p in instance.placements]
    assert len(names) == 1, names  # the relu only: the stage simplify cancels the negations


@pytest.mark.parametrize("on_data", [False, True])
def test_a_branch_waits_if_extents_decide_it(on_data: bool) -> None:
    main = squeezed_or_not(on_data).get_main_module()
    taken = next(ins for ins in main if isinstance(ins.op, If))
    main.replace_return([u for u in taken.users if u.parent is main])
    main.sweep()  # the op of unknown rank, which always waits
    assert needs_shapes(main) is not on_data


def test_a_rank_that_a_branch_decided_decides_the_next() -> None:
    main = squeezed_or_not().get_main_module()
    (relu,) = main.outputs
    rank = main.add(mgx.op("dimensions_of"), main.add(mgx.op("dimensions_of"), relu))
    then, other = mgx.Module("flat"), mgx.Module("rows")
    then.add_return([relu])
    other.add_return([other.add(mgx.op("get_tuple_elem", index=0), other.add(OpenRelu(), relu))])
    flat = main.add(mgx.op("equal"), rank, main.add_literal(np.array([1])))
    main.replace_return(
        [main.add(mgx.op("get_tuple_elem", index=0), main.add(mgx.op("if"), flat, modules=[then, other]))]
    )
    for rows, relus in ((1, 1), (2, 2)):
        copy = specialize_ranks(main.clone(parameters={"x": mgx.Shape("float32", [rows, 3])}))
        assert copy is not None and not needs_shapes(copy)
        assert [ins.op.name for ins in copy].count("relu") == relus


def test_quantized_weights_stay_narrow() -> None:
    main = squeezed_or_not().get_main_module()
    weights = main.add_literal(np.arange(-6, 6, dtype=np.int8).reshape(3, 4))
    scale = main.add_literal(np.full(4, 0.5, np.float32))
    main.replace_return([*main.outputs, main.add(mgx.op("dequantizelinear", axis=1), weights, scale)])
    copy = specialize_ranks(main.clone(parameters={"x": mgx.Shape("float32", [1, 3])}))
    assert copy is not None
    assert copy.outputs[1].op.name == "dequantizelinear"


def padded_twice(on_data: bool = False) -> mgx.Program:
    """x [n] padded twice to 2 ceil(n / 2), computed in floats as exporters do; on_data: computed from a value of x instead."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [symbol("n", 1, 900)]))
    zero, half = main.add_literal(np.array([0])), main.add_literal(np.array([0.5], np.float32))
    value = x
    for _ in range(2):
        if on_data:
            number = main.add(mgx.op("slice", axes=[0], starts=[0], ends=[1]), x)
        else:
            number = main.add(mgx.op("convert", target_type="float32"), main.add(mgx.op("dimensions_of", end=1), value))
        up = main.add(mgx.op("ceil"), main.add(mgx.op("mul"), number, half))
        count = main.add(mgx.op("convert", target_type="int64"), up)
        value = main.add(mgx.op("pad", pads=[]), value, main.add(mgx.op("concat", axis=0), zero, count))
        value = main.add(mgx.op("neg"), value)
    main.add_return([value])
    return program


def test_extents_computed_through_floats_are_resolved_for_the_shapes_of_a_run() -> None:
    """Padding of causal convolutions: everything after the first ran op by op, with data-dependent extents."""
    program = padded_twice()
    program.compile(mgx.get_target("ref"))
    for n in (5, 8):
        (y,) = program.run({"x": np.arange(n, dtype=np.float32)})
        once = n + (n + 1) // 2
        np.testing.assert_array_equal(np.asarray(y), np.pad(np.arange(n), (0, once + (once + 1) // 2 - n)))
    for instance in program.executable.instances():  # type: ignore[union-attr]
        assert not any(ins.result.dynamic() for ins in instance.module)


def settled_for(main: mgx.Module, n: int) -> mgx.Module:
    return with_known_extents(main.clone(parameters={"x": mgx.Shape("float32", [n])}))


def test_slices_as_long_as_a_range_are_resolved_for_the_shapes_of_a_run() -> None:
    """Positions of patches, whose number is computed in floats: slices of that length had unknown extents on all targets."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [symbol("n", 1, 900)]))
    zero, one = (main.add_literal(np.array(v, np.float32)) for v in (0, 1))
    number = main.add(mgx.op("convert", target_type="float32"), main.add(mgx.op("dimensions_of", end=1), x))
    half = main.add(mgx.op("mul"), number, main.add_literal(np.array([0.5], np.float32)))
    places = main.add(mgx.op("dynamic_range"), zero, main.add(mgx.op("squeeze", axes=[0]), half), one)
    count = main.add(mgx.op("dimensions_of", end=1), places)
    starts, axes = (main.add_literal(np.array([0])) for _ in range(2))
    picked = main.add(mgx.op("slice"), x, starts, count, axes)
    main.add_return([main.add(mgx.op("neg"), picked)])
    program.compile(mgx.get_target("ref"))
    for n in (5, 8):
        (y,) = program.run({"x": np.arange(n, dtype=np.float32)})
        np.testing.assert_array_equal(np.asarray(y), -np.arange((n + 1) // 2))
    for instance in program.executable.instances():  # type: ignore[union-attr]
        assert not any(ins.result.dynamic() for ins in instance.module)


def test_only_extents_that_follow_from_those_of_the_inputs_wait() -> None:
    main = padded_twice(on_data=True).get_main_module()
    assert not needs_extents(main)
    run = settled_for(main, 4)
    assert run.output_shapes()[0].dynamic()
    main = padded_twice().get_main_module()
    assert needs_extents(main)
    run = settled_for(main, 5)
    assert not needs_extents(run)
    assert [str(s) for s in run.output_shapes()] == ["float32[12]"]


def test_extents_that_rules_follow_do_not_wait() -> None:
    assert not needs_extents(squeezed_or_not().get_main_module())


def test_trips_whose_number_decides_extents_are_unrolled_for_the_shapes_of_a_run() -> None:
    """Products of rows between offsets, of which there is one more than images in the batch: each trip ran op by op."""
    program = mgx.Program()
    main, body = program.get_main_module(), mgx.Module("body")
    n = symbol("n", 1, 300)
    x = main.add_parameter("x", mgx.Shape("float32", [n, 3]))
    zero, one = (main.add_literal(np.array(v)) for v in (0, 1))
    count = main.add(mgx.op("squeeze", axes=[0]), main.add(mgx.op("dimensions_of", end=1), x))
    numbers = main.add(mgx.op("dynamic_range", length=n), zero, count, one)
    first = body.add(mgx.op("reshape", dims=(1,)), body.add_parameter("number", mgx.Shape("int64", [])))
    after = body.add(mgx.op("add"), first, body.add_literal(np.array([2])))
    rows = body.add(mgx.op("slice", axes=(0,)), x, first, after)
    body.add_return([body.add(mgx.op("reduce_prod", axes=[0]), rows)])
    scan = main.add(mgx.op("scan", states=0, input_axes=[0]), numbers, modules=[body])
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), scan)])
    assert needs_extents(main)
    program.compile(mgx.get_target("ref"))
    for rows_given in (4, 2, 299):
        value = np.arange(3 * rows_given, dtype=np.float32).reshape(-1, 3)
        (y,) = program.run({"x": value})
        np.testing.assert_array_equal(
            np.asarray(y)[:, 0], value * np.pad(value[1:], ((0, 1), (0, 0)), constant_values=1)
        )
        instance = program.executable.instances()[-1]  # type: ignore[union-attr]
        assert any(i.op.control for i in instance.module) == (rows_given == 299)  # too many trips: remains a loop


def test_a_product_of_a_while_loops_results_is_resolved_in_a_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy of the loop names its number of results anew, which the body of the group mentions: copies were made for ever."""
    apply, rounds = ResolveExtents.apply, []

    def counted(self: ResolveExtents, module: mgx.Module) -> bool:
        rounds.append(module)
        assert len(rounds) < 9
        return apply(self, module)

    monkeypatch.setattr(ResolveExtents, "apply", counted)
    main, body = mgx.Module("main"), mgx.Module("body")
    s = symbol("s", 1, 300)
    x = main.add_parameter("x", mgx.Shape("float32", [1, s, 3]))
    go = main.add_parameter("go", mgx.Shape("bool", []))
    for name, kind in (("number", "int64"), ("go", "bool"), ("at", "float32")):
        body.add_parameter(name, mgx.Shape(kind, []))
    _, on, at = body.parameters.values()
    body.add_return([on, body.add(mgx.op("add"), at, body.add_literal(np.float32(1))), at])
    states = [main.add_literal(np.array(v)) for v in (np.int64(9), np.float32(0))]
    loop = main.add(mgx.op("loop", max_iterations=16), states[0], go, states[1], modules=[body])
    rows = main.add(mgx.op("unsqueeze", axes=[0, 2]), main.add(mgx.op("get_tuple_elem", index=1), loop))
    both = main.add(mgx.op("concat", axis=2), rows, x)
    product = main.add(mgx.op("dot"), both, main.add(mgx.op("transpose", permutation=[0, 2, 1]), both))
    scale = main.add(mgx.op("multibroadcast", out_lens=product.shape.dims), main.add_literal(np.float32(0.5)))
    main.add_return([main.add(mgx.op("mul"), product, scale)])
    FuseElementwise().apply(main)
    FuseEpilogue().apply(main)
    run = main.clone(parameters={"x": mgx.Shape("float32", [1, 1, 3]), "go": mgx.Shape("bool", [])})
    assert str(next(i for i in with_known_extents(run) if i.op.name == "concat").result) == "float32[1, 1, 4]"
