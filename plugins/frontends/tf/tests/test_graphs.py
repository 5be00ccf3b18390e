"""Graphs built by hand: operators compared with numpy, names, branches and loops, rejected graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_tf.wire.messages import message

F = np.dtype(np.float32)


def run(graph: Any, outputs: list[str], **given: Any) -> list[np.ndarray]:
    program = mgx.parse_buffer(graph.data, "tf", output_names=outputs)
    program.compile(mgx.get_target("ref"))
    return [np.asarray(r) for r in program.run(given)]


def test_names_of_nodes_stay_on_instructions(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [-1, 3])
    g.node("Relu", "layer/activation", "x", T=F)
    program = mgx.parse_buffer(g.data, "tf")
    assert "layer/activation" in program.text() and program.get_output_names() == ["layer/activation"]
    assert not isinstance(program.get_parameter_shapes()["x"].dims[0], int)
    assert mgx.parse_tf_buffer(g.data).get_parameter_shapes()["x"].lens() == [1, 3]
    assert mgx.parse_tf_buffer(g.data, batch_size=5).get_parameter_shapes()["x"].lens() == [5, 3]


def test_given_extents_replace_those_of_an_input(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [1, 2, 2, 3])
    g.node("Relu", "y", "x", T=F)
    program = mgx.parse_tf_buffer(g.data, map_input_dims={"x": [1, 3]})
    assert program.get_output_shapes()[0].lens() == [1, 3]


def test_same_padding_puts_the_odd_element_last(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [1, 4, 4, 1])
    g.const("w", np.ones((3, 3, 1, 1), np.float32))
    g.node("Conv2D", "y", "x", "w", T=F, strides=[1, 2, 2, 1], padding="SAME")
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    (got,) = run(g, ["y"], x=x)
    wide = np.pad(x[0, :, :, 0], ((0, 1), (0, 1)))
    wanted = [[wide[i : i + 3, j : j + 3].sum() for j in (0, 2)] for i in (0, 2)]
    np.testing.assert_array_equal(got[0, :, :, 0], wanted)


def test_average_pooling_does_not_count_padding(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [1, 3, 3, 2])
    g.node("AvgPool", "y", "x", T=F, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    x = np.random.default_rng(0).standard_normal((1, 3, 3, 2)).astype(np.float32)
    (got,) = run(g, ["y"], x=x)
    np.testing.assert_allclose(got[0, 1, 1], x[0, 2, 2], rtol=1e-6)
    np.testing.assert_allclose(got[0, 0, 1], x[0, :2, 2].mean(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "index"),
    [
        ([0, 1], [0, 3], [1, 1], {"begin_mask": 1, "end_mask": 1}, np.s_[:, 1:3]),
        ([1, -1], [0, 0], [1, 1], {"shrink_axis_mask": 3}, np.s_[1, -1]),
        ([0, 0], [0, 2], [1, 1], {"ellipsis_mask": 1}, np.s_[..., 0:2]),
        ([0, 3], [0, 0], [1, -1], {"new_axis_mask": 1, "end_mask": 2}, np.s_[None, 3::-1]),
        ([5, 0], [0, 9], [-2, 3], {"end_mask": 1}, np.s_[5::-2, 0:9:3]),
    ],
)
def test_strided_slice(
    begin: list[int], end: list[int], strides: list[int], masks: dict[str, int], index: Any, new_graph: Any
):
    g = new_graph()
    g.placeholder("x", F, [6, 5])
    for name, value in (("b", begin), ("e", end), ("s", strides)):
        g.const(name, value, np.int32)
    g.node("StridedSlice", "y", "x", "b", "e", "s", T=F, **masks)
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    (got,) = run(g, ["y"], x=x)
    np.testing.assert_array_equal(got, x[index])


def test_integer_divisions(new_graph: Any):
    g = new_graph()
    for name in "ab":
        g.placeholder(name, np.int32, [6])
    for op in ("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod"):
        g.node(op, op, "a", "b", T=np.dtype(np.int32))
    a = np.array([7, -7, 7, -7, 2**31 - 1, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, -3, 5], np.int32)
    got = run(g, ["FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod"], a=a, b=b)
    np.testing.assert_array_equal(got, [a // b, a % b, np.trunc(a / b), np.fmod(a, b)])


def test_incomplete_gamma_functions_of_order_0_are_undefined(new_graph: Any):
    g = new_graph()
    for name in "ax":
        g.placeholder(name, F, [4])
    for op in ("Igamma", "Igammac"):
        g.node(op, op, "a", "x", T=F)
    lower, upper = run(g, ["Igamma", "Igammac"], a=np.array([0, -1, 1, 1], F), x=np.array([2, 2, 0, 2], F))
    np.testing.assert_allclose(lower, [np.nan, np.nan, 0, 1 - np.exp(-2)], rtol=1e-6)
    np.testing.assert_allclose(upper, [np.nan, np.nan, 1, np.exp(-2)], rtol=1e-6)


def loop_graph(g: Any) -> Any:
    """``while i < n: i, x = i + 1, x * 2`` in TensorFlow 1's nodes."""
    g.placeholder("x", F, [2])
    g.placeholder("n", np.int32, [])
    g.const("zero", np.int32(0))
    for name, source in (("i", "zero"), ("v", "x")):
        g.node("Enter", f"{name}/enter", source, frame_name="loop")
        g.node("Merge", f"{name}/merge", f"{name}/enter", f"{name}/next")
    g.node("Enter", "n/enter", "n", frame_name="loop", is_constant=True)
    g.node("Less", "less", "i/merge", "n/enter")
    g.node("LoopCond", "cond", "less")
    for name in "iv":
        g.node("Switch", f"{name}/switch", f"{name}/merge", "cond")
        g.node("Identity", f"{name}/in", f"{name}/switch:1")
        g.node("Exit", f"{name}/exit", f"{name}/switch")
    g.const("one", np.int32(1))
    g.const("two", np.float32(2))
    g.proto.node[-1].input.append("^i/in")
    g.proto.node[-2].input.append("^i/in")
    g.node("AddV2", "i/add", "i/in", "one")
    g.node("Mul", "v/mul", "v/in", "two")
    g.node("NextIteration", "i/next", "i/add")
    g.node("NextIteration", "v/next", "v/mul")
    return g


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loop_of_the_first_version(trips: int, new_graph: Any):
    x = np.array([1, -3], np.float32)
    v, i = run(loop_graph(new_graph()), ["v/exit", "i/exit"], x=x, n=np.array(trips, np.int32))
    np.testing.assert_array_equal(v, x * 2**trips)
    assert i == trips


@pytest.mark.parametrize("taken", [True, False])
def test_branches_of_the_first_version(taken: bool, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [3])
    g.placeholder("p", np.bool_, [])
    g.node("Switch", "s", "x", "p")
    g.node("Neg", "no", "s:0")
    g.node("Exp", "yes", "s:1")
    g.node("Merge", "y", "no", "yes")
    x = np.array([0, 1, 2], np.float32)
    (got,) = run(g, ["y"], x=x, p=np.array(taken))
    np.testing.assert_allclose(got, np.exp(x) if taken else -x, rtol=1e-6)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_may_keep_a_value_that_the_other_lacks(taken: bool, target: str, new_graph: Any):
    """As in branches with gradients: exp(x) is kept by the branch that computes it."""
    g = new_graph()
    g.placeholder("x", F, [-1])
    g.placeholder("p", np.bool_, [])
    ways = ("OptionalFromValue", ["e:y:0"]), ("OptionalNone", [])
    for name, (op, given) in zip(("yes", "no"), ways, strict=True):
        f = g.proto.library.function.add()
        f.signature.name = name
        f.signature.input_arg.add(name="a", type=1)
        f.signature.output_arg.add(name="r", type=21)
        if given:
            f.node_def.add(name="e", op="Exp", input=["a"])
        f.node_def.add(name="o", op=op, input=given)
        f.ret["r"] = "o:optional:0"
    g.node("If", "kept", "p", "x", then_branch=("yes",), else_branch=("no",))
    g.node("OptionalHasValue", "there", "kept")
    g.node("OptionalGetValue", "value", "kept")
    program = mgx.parse_buffer(g.data, "tf", output_names=["there", "value"])
    program.compile(mgx.get_target(target))
    x = np.float32([0, 1, 2])
    there, value = (np.asarray(r) for r in program.run({"x": x, "p": np.array(taken)}))
    assert bool(there) == taken
    np.testing.assert_allclose(value, np.exp(x) if taken else 0 * x, rtol=1e-6)


def add_function(g: Any, name: str, body: str) -> None:
    f = g.proto.library.function.add()
    f.signature.name = name
    f.signature.input_arg.add(name="a", type=1)
    f.signature.output_arg.add(name="r", type=1)
    f.node_def.add(name="work", op=body, input=["a"])
    f.ret["r"] = f"work:{'y' if body in ('Exp', 'Neg') else 'r'}:0"


def test_calls_of_functions(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [3])
    add_function(g, "half", "Neg")
    g.node("PartitionedCall", "call", "x", f=("half",))
    g.node("half", "direct", "call")
    x = np.array([1, 2, 3], np.float32)
    call, direct = run(g, ["call", "direct"], x=x)
    np.testing.assert_array_equal(call, -x)
    np.testing.assert_array_equal(direct, x)


def test_results_of_functions_that_nothing_reads_need_no_converters(new_graph: Any):
    """Also those of a function that it calls, behind identities."""
    g = new_graph()
    g.placeholder("x", F, [3])
    for name, work in (("inner", (("Neg", "y", "a"), ("NoSuchOperator", "y", "a"))), ("outer", ())):
        f = g.proto.library.function.add()
        f.signature.name = name
        f.signature.input_arg.add(name="a", type=1)
        for k, (op, output, given) in enumerate(work or [("Identity", "output", f"call:{k}") for k in range(2)]):
            f.signature.output_arg.add(name=f"r{k}", type=1)
            f.node_def.add(name=f"n{k}", op=op, input=[given])
            f.ret[f"r{k}"] = f"n{k}:{output}:0"
    call = f.node_def.add(name="call", op="PartitionedCall", input=["a"])
    call.attr["f"].func.name = "inner"
    g.node("outer", "all", "x")
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(g, ["all"], x=x)[0], -x)
    refused(g, mgx.UnsupportedError, "no converter for operator NoSuchOperator", output_names=["all:1"])


def test_functions_that_nothing_calls_are_not_read(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [3])
    add_function(g, "other", "Neg")
    g.proto.library.function[-1].ret.clear()  # a body that is rejected once it is parsed
    g.node("Relu", "y", "x")
    x = np.array([-1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(g, ["y"], x=x)[0], np.maximum(x, 0))
    g.node("PartitionedCall", "call", "x", f=("other",))
    refused(g, mgx.ParseError, "does not define its result")


def test_an_attribute_without_a_value_is_an_empty_list(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [1, 3, 1])
    g.node("Squeeze", "y", "x", T=F)
    g.proto.node[-1].attr["squeeze_dims"].SetInParent()
    assert run(g, ["y"], x=np.ones((1, 3, 1), np.float32))[0].shape == (3,)


def test_arithmetic_on_constants_is_done_while_reading(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [2, 3])
    variance = np.array([0.5, 1, 2], np.float32)
    g.const("variance", variance)
    g.const("epsilon", np.float32(1e-3))
    g.node("AddV2", "sum", "variance", "epsilon", T=F)
    g.node("Rsqrt", "scale", "sum", T=F)
    g.node("Mul", "y", "x", "scale", T=F)
    ops = [i.op.name for i in mgx.parse_buffer(g.data, "tf").get_main_module()]
    assert "rsqrt" not in ops and "add" not in ops
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(run(g, ["y"], x=x)[0], x / np.sqrt(variance + np.float32(1e-3)), rtol=1e-6)


# errors


def refused(g: Any, kind: type[Exception], match: str, **options: Any) -> None:
    with pytest.raises(kind, match=match):
        mgx.parse_buffer(g.data, "tf", **options)


@pytest.mark.parametrize(
    ("dims", "kind", "match"),
    [
        ([1, -1, -1, 4], mgx.UnsupportedError, "third extent must be known"),
        ([1, 5, 4], mgx.ParseError, r"boxes \[b, n, q, 4\]"),
        ([1, 5, 2, 4], mgx.ParseError, "boxes of one or of all 3 classes"),
    ],
)
def test_combined_suppression_of_other_boxes_is_refused(
    dims: list[int], kind: type[Exception], match: str, new_graph: Any
):
    g = new_graph()
    g.placeholder("boxes", F, dims)
    g.placeholder("scores", F, [1, 5, 3])
    for name, value in (("most", np.int32(2)), ("total", np.int32(4)), ("overlap", F.type(0.5)), ("least", F.type(0))):
        g.const(name, value)
    g.node("CombinedNonMaxSuppression", "y", "boxes", "scores", "most", "total", "overlap", "least")
    refused(g, kind, match)


def crop(image: np.ndarray, box: np.ndarray, counts: tuple[int, int], nearest: bool, outside: float) -> np.ndarray:
    """Returns one crop, pixel by pixel, as TensorFlow's CropAndResize defines it."""
    out = np.full((*counts, image.shape[2]), outside, F)
    rows, columns = (
        [0.5 * (a + b) * (size - 1)] if count == 1 else [a * (size - 1) + k * (b - a) * (size - 1) / (count - 1) for k in range(count)]
        for a, b, size, count in zip(box[:2], box[2:], image.shape[:2], counts, strict=True)
    )  # fmt: skip
    for r, y in enumerate(rows):
        for c, x in enumerate(columns):
            if not (0 <= y <= image.shape[0] - 1 and 0 <= x <= image.shape[1] - 1):
                continue
            if nearest:
                out[r, c] = image[int(np.floor(y + 0.5)), int(np.floor(x + 0.5))]
                continue
            top, left, bottom, right = int(np.floor(y)), int(np.floor(x)), int(np.ceil(y)), int(np.ceil(x))
            upper = image[top, left] + (image[top, right] - image[top, left]) * (x - left)
            lower = image[bottom, left] + (image[bottom, right] - image[bottom, left]) * (x - left)
            out[r, c] = upper + (lower - upper) * (y - top)
    return out


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("counts", [(3, 4), (1, 5), (2, 1)])
@pytest.mark.parametrize("known", [False, True])
def test_crops_are_sampled_at_equal_steps(counts: tuple[int, int], method: str, known: bool, new_graph: Any):
    g = new_graph()
    g.placeholder("images", F, [2, 6, 5, 3] if known else [-1, -1, -1, 3])
    g.placeholder("boxes", F, [-1, 4])
    g.placeholder("entries", np.int32, [-1])
    g.const("size", np.array(counts, np.int32))
    g.node("CropAndResize", "y", "images", "boxes", "entries", "size", method=method, extrapolation_value=7.0)
    images = np.random.default_rng(0).standard_normal((2, 6, 5, 3)).astype(F)
    # samples are not near the middle between two pixels, unless exactly there
    inside, outside = (
        [[0, 0, 1, 1], [0.13, 0.21, 0.77, 0.91], [0.83, 0.94, 0.22, 0.11]],
        [[-0.3, 0.1, 0.53, 1.4], [2, 2, 3, 3]],
    )
    boxes = np.array([*inside, *outside, [0.41] * 4], F)
    entries = np.array([0, 1, 0, 1, 0, 1], np.int32)
    (found,) = run(g, ["y"], images=images, boxes=boxes, entries=entries)
    pairs = zip(boxes.astype(np.float64), entries, strict=True)
    want = np.stack([crop(images[e], b, counts, method == "nearest", 7.0) for b, e in pairs])
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_samples_at_places_that_are_not_finite_are_outside(method: str, new_graph: Any):
    """Those from -inf to inf are NaN."""
    g = new_graph()
    g.placeholder("boxes", F, [4, 4])
    g.const("images", np.ones((1, 3, 3, 1), F))
    g.const("entries", np.zeros(4, np.int32))
    g.const("size", np.array([2, 2], np.int32))
    g.node("CropAndResize", "y", "images", "boxes", "entries", "size", method=method, extrapolation_value=7.0)
    inf = np.inf
    boxes = np.array([[np.nan, 0, np.nan, 1], [-inf, 0, inf, 1], [0, inf, 1, inf], [0, 0, 1, 1]], F)
    (found,) = run(g, ["y"], boxes=boxes)
    np.testing.assert_array_equal(found[:, :, :, 0], np.repeat([7, 7, 7, 1], 4).reshape(4, 2, 2))


@pytest.mark.parametrize("entry", [-1, 2])
def test_crops_of_images_that_do_not_exist_are_errors(entry: int, new_graph: Any):
    g = new_graph()
    g.placeholder("entries", np.int32, [1])
    g.const("images", np.zeros((2, 3, 3, 1), F))
    g.const("boxes", np.array([[0, 0, 1, 1]], F))
    g.const("size", np.array([2, 2], np.int32))
    g.node("CropAndResize", "y", "images", "boxes", "entries", "size")
    with pytest.raises(mgx.ShapeError):
        run(g, ["y"], entries=np.array([entry], np.int32))


@pytest.mark.parametrize("extent", [0, -1])
@pytest.mark.parametrize("kinds", [1, 3])
def test_combined_suppression_without_boxes(extent: int, kinds: int, new_graph: Any):
    g = new_graph()
    g.placeholder("boxes", F, [2, extent, kinds, 4])
    g.placeholder("scores", F, [2, extent, 3])
    for name, value in (("most", np.int32(2)), ("total", np.int32(4)), ("overlap", F.type(0.5)), ("least", F.type(0))):
        g.const(name, value)
    g.node("CombinedNonMaxSuppression", "y", "boxes", "scores", "most", "total", "overlap", "least")
    for count in {0, max(extent, 0) - 5 * min(extent, 0)}:
        boxes, scores = np.full((2, count, kinds, 4), [0, 0, 1, 1], F), np.full((2, count, 3), 0.5, F)
        found = run(g, ["y", "y:1", "y:2", "y:3"], boxes=boxes, scores=scores)
        kept = [3 * bool(count)] * 2  # all boxes of a class overlap
        assert found[3].tolist() == kept
        assert found[1].sum() == 0.5 * sum(kept) and found[0].sum() == 2 * sum(kept)


@pytest.mark.parametrize("extent", [2, 6])
def test_combined_suppression_of_a_computed_number_of_boxes(extent: int, new_graph: Any):
    """The number, n - 2, has a negative lower bound."""
    g = new_graph()
    g.placeholder("x", F, [-1])
    g.node("Shape", "shape", "x")
    g.node("Sub", "number", "shape", g.const("two", [2], np.int32))
    for name, axes, value in (("boxes", [1, 4], [0, 0, 1, 1]), ("scores", [3], [0.5])):
        first, rest = g.const(f"{name} 0", [2], np.int32), g.const(f"{name} 2", axes, np.int32)
        dims = g.node("ConcatV2", f"{name} dims", first, "number", rest, g.const(f"{name} axis", 0, np.int32), N=3)
        g.node("BroadcastTo", name, g.const(f"{name} value", value, F), dims)
    for name, value in (("most", np.int32(2)), ("total", np.int32(4)), ("overlap", F.type(0.5)), ("least", F.type(0))):
        g.const(name, value)
    g.node("CombinedNonMaxSuppression", "y", "boxes", "scores", "most", "total", "overlap", "least")
    found = run(g, ["y", "y:3"], x=np.zeros(extent, F))
    kept = 3 * (extent > 2)
    assert found[1].tolist() == [kept] * 2 and found[0].sum() == 4 * kept


def test_lists_of_ragged_tensors_are_refused(new_graph: Any):
    g = new_graph()
    g.const("dims", [], np.int32)
    g.const("n", np.int32(3))
    g.node("TensorListReserve", "y", "dims", "n")
    g.proto.node[-1].attr["element_dtype"].type = 21  # variant
    refused(g, mgx.UnsupportedError, r"node 'y' \(TensorListReserve\): a list of ragged tensors")


def test_unknown_operator_names_node_and_remedy(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [3])
    g.node("Frobnicate", "deep/odd", "x")
    refused(g, mgx.UnsupportedError, "deep/odd.*Frobnicate|Frobnicate.*converters")


def test_function_that_calls_itself(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [3])
    add_function(g, "again", "again")
    g.node("again", "y", "x")
    refused(g, mgx.ParseError, "calls itself")


def test_cycle(new_graph: Any):
    g = new_graph()
    g.node("Relu", "a", "b")
    g.node("Relu", "b", "a")
    g.node("Relu", "y", "a")
    refused(g, mgx.ParseError, "cycle")


def test_absurd_constant(new_graph: Any):
    g = new_graph()
    g.const("c", np.float32(1))
    shape = g.proto.node[-1].attr["value"].tensor.tensor_shape
    for _ in range(3):
        shape.dim.add(size=1 << 20)
    g.node("Relu", "y", "c")
    refused(g, mgx.ParseError, "exceeds the limit")


def test_missing_nodes_and_bad_options(new_graph: Any):
    g = new_graph()
    g.node("Relu", "y", "nowhere")
    refused(g, mgx.ParseError, "nowhere")
    refused(g, mgx.ParameterError, "no node 'z'.* no other one reads are 'y'", output_names=["z"])
    refused(g, mgx.ParameterError, "did you mean 'batch_size'", batchsize=1)
    refused(g, mgx.ParameterError, "no signature", signature="serve")
    with pytest.raises(mgx.ParseError, match="damaged or truncated"):
        mgx.parse_buffer(b"\xff" * 40, "tf")
    with pytest.raises(mgx.ParseError, match=r"not a TensorFlow \w+; it is a pointer of Git LFS"):
        mgx.parse_buffer(b"version https://git-lfs.github.com/spec/v1\n", "tf")


def test_text_form(tmp_path: Any, new_graph: Any):
    from google.protobuf import text_format

    g = new_graph()
    g.placeholder("x", F, [2])
    g.node("Tanh", "y", "x")
    (tmp_path / "g.pbtxt").write_text(text_format.MessageToString(g.proto))
    program = mgx.parse(tmp_path / "g.pbtxt")
    assert program.get_output_names() == ["y"]


@pytest.mark.parametrize("path", ["", "saved_model.cpb"])
def test_chunked_models_are_refused_by_name(tmp_path: Any, path: str):
    (tmp_path / "saved_model.cpb").write_bytes(b"riegeli")
    with pytest.raises(mgx.UnsupportedError, match=r"chunked SavedModels .saved_model.cpb. are not supported; save it"):
        mgx.parse(tmp_path / path)


def test_keras_files_have_a_helpful_error(tmp_path: Any):
    (tmp_path / "net.keras").write_bytes(b"PK")
    with pytest.raises(mgx.UnsupportedError, match=r"model\.export\('net'\)"):
        mgx.parse(tmp_path / "net.keras")


def test_saved_model_without_variables(tmp_path: Any, new_graph: Any):
    saved = message("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g = new_graph(meta.graph_def)
    g.placeholder("in", F, [-1, 2])
    g.node("Sigmoid", "out", "in")
    for name, node in (("x", "in"),):
        meta.signature_def["serving_default"].inputs[name].name = f"{node}:0"
        meta.signature_def["serving_default"].inputs[name].dtype = 1
        for d in (-1, 2):
            meta.signature_def["serving_default"].inputs[name].tensor_shape.dim.add(size=d)
    meta.signature_def["serving_default"].outputs["y"].name = "out:0"
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    program = mgx.parse(tmp_path)
    program.compile(mgx.get_target("ref"))
    x = np.array([[0.5, -1]], np.float32)
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), 1 / (1 + np.exp(-x)), rtol=1e-6)
    # variables and assets beside it
    assert (program.files, mgx.parse(tmp_path / "saved_model.pb").files) == ((), ())
    with pytest.raises(mgx.ParameterError, match="tagged 'gpu'"):
        mgx.parse(tmp_path, tags="gpu")
    with pytest.raises(mgx.ParameterError, match="no signature 'other'"):
        mgx.parse(tmp_path, signature="other")


@pytest.mark.parametrize("known", [False, True])
def test_a_split_may_leave_one_size_open(known: bool, new_graph: Any):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for sizes, ends in (([1, -1, 2], [1, 4]), ([2, 3, 1], [2, 5]), ([-2, 7, 1], None), ([1, -1, 6], None)):
        g = new_graph()
        g.placeholder("x", F, [6, 2])
        if known:
            g.const("sizes", np.int32(sizes))
        else:
            g.placeholder("sizes", np.int32, [3])
        g.const("axis", np.int32(0))
        g.node("SplitV", "parts", "x", "sizes", "axis", T=F, Tlen=np.dtype(np.int32), num_split=3)
        given = {"x": x} if known else {"x": x, "sizes": np.int32(sizes)}
        if ends is None:
            with pytest.raises(mgx.MgxError, match="add up to"):
                run(g, ["parts:0", "parts:1", "parts:2"], **given)
            continue
        for got, wanted in zip(run(g, ["parts:0", "parts:1", "parts:2"], **given), np.split(x, ends), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_images_whose_channels_come_first(new_graph: Any):
    g = new_graph()
    g.placeholder("x", np.float32, [-1, 4, 6, 3])
    g.placeholder("v", np.float32, [3])
    g.node("AddV2", "y", "x", "v", T=np.float32)
    plain = mgx.parse_buffer(g.data, "tf", batch_size=2)
    assert plain.get_parameter_shapes()["x"].lens() == [2, 4, 6, 3]
    turned = mgx.parse_buffer(g.data, "tf", batch_size=2, channels_first=True)
    assert {n: s.lens() for n, s in turned.get_parameter_shapes().items()} == {"x": [2, 3, 4, 6], "v": [3]}
    assert turned.get_output_shapes()[0].lens() == [2, 3, 4, 6]
    given = mgx.parse_buffer(g.data, "tf", map_input_dims={"x": [1, 3, 5, 7]}, channels_first=True)
    assert given.get_parameter_shapes()["x"].lens() == given.get_output_shapes()[0].lens() == [1, 3, 5, 7]
    x, v = np.arange(144, dtype=np.float32).reshape(2, 4, 6, 3), np.array([1, 2, 3], np.float32)
    for program, image in ((plain, x), (turned, x.transpose(0, 3, 1, 2))):
        program.compile(mgx.get_target("ref"))
        (y,) = program.run({"x": image, "v": v})
        np.testing.assert_array_equal(np.array(y), image + (v if image is x else v[:, None, None]))


def test_scripts_of_code_points(new_graph: Any):
    """Scripts are ICU's numbers: 0 is common to all scripts, 103 is unknown."""
    wanted = {
        "a": 25,
        "5": 0,
        "Ж": 8,
        "水": 17,
        "ひ": 20,
        "ア": 22,
        "한": 18,
        "ע": 19,
        "€": 0,
        "ا": 2,
        "😀": 0,
        "\u0301": 1,
    }
    points = {**{ord(c): n for c, n in wanted.items()}, 0: 0, 0xD800: 103, 0x10FFFF: 103, 0x110000: -1, -1: -1}
    g = new_graph()
    g.placeholder("points", np.int32, [-1])
    g.node("UnicodeScript", "y", "points")
    (found,) = run(g, ["y"], points=np.array(list(points), np.int32))
    assert found.tolist() == list(points.values())


def test_sparse_and_composite_inputs_and_outputs_are_several_tensors(tmp_path: Any, new_graph: Any):
    """A sparse tensor is negated, and a ragged one returned."""
    model = message("SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g, i = new_graph(meta.graph_def), np.dtype(np.int64)
    for name, dtype, dims in (
        ("at", i, [-1, 2]),
        ("v", F, [-1]),
        ("d", i, [2]),
        ("flat", F, [-1]),
        ("splits", i, [-1]),
    ):
        g.placeholder(name, dtype, dims)
    g.node("Neg", "w", "v", T=F)
    signature = meta.signature_def["serving_default"]
    for side, values in ((signature.inputs["s"], "v"), (signature.outputs["t"], "w")):
        side.dtype = 1
        for _ in range(2):
            side.tensor_shape.dim.add(size=-1)
        side.coo_sparse.indices_tensor_name, side.coo_sparse.dense_shape_tensor_name = "at:0", "d:0"
        side.coo_sparse.values_tensor_name = f"{values}:0"
    for side in (signature.inputs["r"], signature.outputs["q"]):
        for name, code in (("flat:0", 1), ("splits:0", 9)):
            side.composite_tensor.components.add(name=name, dtype=code).tensor_shape.dim.add(size=-1)
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    program = mgx.parse(tmp_path)
    program.compile(mgx.get_target("ref"))
    given = {
        "s_0": np.int64([[0, 1], [2, 0]]), "s_1": np.float32([3, 4]), "s_2": np.int64([3, 2]),
        "r_0": np.float32([5, 6, 7]), "r_1": np.int64([0, 2, 3]),
    }  # fmt: skip
    assert set(program.get_parameter_names()) == set(given)
    found = dict(zip(program.get_output_names(), map(np.asarray, program.run(given)), strict=True))
    wanted = {"t_0": given["s_0"], "t_1": -given["s_1"], "t_2": given["s_2"], "q_0": given["r_0"], "q_1": given["r_1"]}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_names_of_parts_that_are_taken_are_refused(kind: str, tmp_path: Any, new_graph: Any):
    """A ragged `r` and a plain `r_0`, whose names clash."""
    model = message("SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g = new_graph(meta.graph_def)
    for name in ("x", "y"):
        g.placeholder(name, F, [-1])
    tensors = getattr(meta.signature_def["serving_default"], kind)
    tensors["r"].composite_tensor.components.add(name="x:0", dtype=1).tensor_shape.dim.add(size=-1)
    tensors["r_0"].name, tensors["r_0"].dtype = "y:0", 1
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(mgx.UnsupportedError, match=f"{kind} of the signature: 'r_0' names both a tensor"):
        mgx.parse(tmp_path)
