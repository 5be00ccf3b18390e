"""Concatenations fused into the pointwise work that reads them, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram
from kernel_trial import channels_last, run, same, tensor, traits

import mgx_core as mgx
from mgx_core import Module
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.concat import Concat
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape
from mgx_gpu_hip.codegen.concat_pointwise import concat_pointwise
from mgx_gpu_hip.codegen.generators import source_of
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.plans.concats import Form, write, write_concat
from mgx_gpu_hip.target import GpuTarget

Array = Any


class Built(BuiltProgram):
    """A program that is compiled and compared with the reference."""

    def __init__(self) -> None:
        super().__init__(seed=4)

    def given(self, *dims: int, of: str = "float16") -> Any:
        return self.argument(*dims, kind=of)[0]

    def normalized(self, x: Any) -> Any:
        """Returns relu(x * scale + bias), both per channel."""
        of, dims = x.shape.dtype.name, x.shape.lens()
        scale, bias = (
            self.add(
                "broadcast", self.main.add_literal(self.rng.standard_normal(dims[1]).astype(of)), axis=1, out_lens=dims
            )
            for _ in range(2)
        )
        return self.add("relu", self.add("add", self.add("mul", x, scale), bias))

    def kernels(self, *outputs: Any, device: int = 1) -> list[str]:
        """Compiles and runs, compares with the reference; returns the kernels of the steps."""
        self.main.add_return(list(outputs))
        reference = self.main.clone()
        self.program.compile(GpuTarget("host", device), validate=True)
        found = [np.asarray(r.to_numpy()) for r in self.program.run(self.feed)]
        wanted = [np.asarray(w) for w in Interpreter().run(reference, [self.feed[n] for n in reference.parameters])]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one.astype("float64"), other.astype("float64"), rtol=4e-3, atol=4e-3)
        assert self.program.executable is not None
        return [s.kernel for s in self.program.executable.instances()[-1].plan.steps]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_a_dense_block_writes_no_concatenation(batch: int, device: int) -> None:
    b = Built()
    layers = [b.given(batch, 16, 6, 6), b.given(batch, 8, 6, 6), b.given(batch, 12, 6, 6)]
    two, three = (b.normalized(b.add("concat", *layers[:n], axis=1)) for n in (2, 3))
    assert b.kernels(two, three, device=device) == ["concat group"] * 2


def test_slices_are_read_in_place() -> None:
    """A roll, as shifted windows have: the later rows in front of the others, plus another operand."""
    b = Built()
    x, y = b.given(2, 7, 8, 4), b.given(2, 7, 8, 4)
    turned = b.add(
        "concat",
        b.add("slice", x, axes=[1], starts=[3], ends=[7]),
        b.add("slice", x, axes=[1], starts=[0], ends=[3]),
        axis=1,
    )
    assert b.kernels(b.add("add", turned, y)) == ["concat group"]


def test_concatenations_with_other_readers_are_written() -> None:
    b = Built()
    joined = b.add("concat", b.given(2, 8, 4), b.given(2, 3, 4), axis=1)
    assert "generated concat" in b.kernels(b.normalized(joined), joined)


def test_broadcast_concatenations_are_written_once() -> None:
    b = Built()
    joined = b.add("concat", b.given(1, 8, 4), b.given(1, 3, 4), axis=1)
    work = b.add("mul", b.add("multibroadcast", joined, out_lens=[5, 11, 4]), b.given(5, 11, 4))
    assert "concat group" not in b.kernels(work)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", ["float16", "float32", "int8"])
@pytest.mark.parametrize(
    ("lens", "axis", "counts", "planar"),
    [
        ((2, 24, 3, 5), 1, (8, 16), False),
        ((2, 24, 3, 5), 1, (8, 16), True),
        ((2, 7, 3, 5), 1, (3, 0, 4), False),
        ((3, 6, 10, 16), 2, (4, 5, 1), True),
        ((5, 33), 0, (1, 4), True),
    ],
)
def test_any_axis_layout_and_type(
    lens: tuple[int, ...], axis: int, counts: tuple[int, ...], planar: bool, of: str, wave: int
) -> None:
    """Vectors where every part is a multiple of one; single elements otherwise; parts may be empty, or in another layout."""
    rng = np.random.default_rng(1)
    dims = [[n if a == axis else m for a, m in enumerate(lens)] for n in counts]
    parts = [(rng.standard_normal(d) * 9).astype(dt.of(of).numpy) for d in dims]
    other = (rng.standard_normal(lens) * 9).astype(dt.of(of).numpy)
    module = Module("work")
    a = module.add_parameter("a", mgx.Shape(of, lens))
    b = module.add_parameter("b", mgx.Shape(of, lens))
    module.add_return([module.add(mgx.op("sub"), a, b)])  # the concatenation is the second operand
    laid = (lambda d: None) if planar else channels_last
    inputs = [tensor(of, d, laid(d)) for d in dims] + [tensor(of, lens)]
    output = tensor(of, lens, laid(lens))
    source = source_of(write, Form(axis, len(parts), 1), inputs, [output], traits(wave, 1), [module])
    wanted = other - np.concatenate(parts, axis)
    same(run(source, [*parts, other], inputs, [output], wave), [wanted])


@pytest.mark.parametrize("grown", [False, True])
def test_symbolic_extents(grown: bool) -> None:
    """Of other axes, or of the concatenated one (a cache that grows by a token)."""
    program = mgx.Program()
    main = program.get_main_module()
    n = symbol("N", 1, 64)
    dims = {"past": (1, n, 16), "new": (1, 1, 16)} if grown else {"past": (n, 8, 16), "new": (n, 24, 16)}
    joined = main.add(
        mgx.op("concat", axis=1), *(main.add_parameter(k, Shape.of(dt.float16, d)) for k, d in dims.items())
    )
    main.add_return([main.add(mgx.op("sigmoid"), main.add(mgx.op("neg"), joined))])
    program.compile(GpuTarget("host", 1))
    rng = np.random.default_rng(0)
    for count in (5, 16):
        feed = {
            k: rng.standard_normal([count if d is n else d for d in own]).astype(np.float16) for k, own in dims.items()
        }
        (found,) = program.run(feed)
        wanted = 1 / (1 + np.exp(np.concatenate(list(feed.values()), 1).astype(np.float64)))
        np.testing.assert_allclose(found.to_numpy().astype(np.float64), wanted, atol=2e-3)
        assert program.executable is not None
        kernels = [s.kernel for s in program.executable.instances()[-1].plan.steps]
        assert kernels == ["concat group"]


def test_work_that_reads_a_view_of_the_concatenation_is_refused() -> None:
    module = Module("work")
    a = module.add_parameter("a", mgx.Shape("float32", (4, 4)))
    turned = module.add(mgx.op("transpose", permutation=[1, 0]), a)
    module.add_return([module.add(mgx.op("relu"), turned)])
    parts = [tensor("float32", (2, 4)), tensor("float32", (2, 4))]
    refused = concat_pointwise(module, parts, 0, 0, [], tensor("float32", (4, 4)), traits())
    assert isinstance(refused, mgx.No) and "element by element" in refused.why


@pytest.mark.parametrize("axis", [0, 1])
def test_more_parts_than_a_launch_takes_are_written_by_several(axis: int) -> None:
    b = Built()
    parts = [b.given(*((2, 3) if n % 3 else (1, 3) if axis == 0 else (2, 1))) for n in range(600)]
    assert b.kernels(b.add("concat", *parts, axis=axis)) == ["generated concat"] * 3


def test_work_on_more_parts_than_a_launch_takes_runs_separately() -> None:
    b = Built()
    joined = b.add("concat", *(b.given(2, 3) for _ in range(300)), axis=1)
    assert b.kernels(b.add("tanh", joined)) == ["generated concat"] * 2 + ["generated pointwise"]


def test_parts_are_found_by_few_tests() -> None:
    """Each element is compared with the ends of a logarithmic number of parts, not of all."""
    rng = np.random.default_rng(3)
    counts = [*(int(n) for n in rng.integers(0, 4, 61)), 2]
    parts = [rng.standard_normal((2, n)).astype("float32") for n in counts]
    inputs, output = [tensor("float32", p.shape) for p in parts], tensor("float32", (2, sum(counts)))
    source = source_of(write_concat, Concat(axis=1), inputs, [output], traits())
    same(run(source, parts, inputs, [output]), [np.concatenate(parts, 1)])
    assert isinstance(source, KernelSource)
    depth = max(len(line) - len(line.lstrip()) for line in source.text.splitlines() if "v = p" in line)
    assert depth <= 2 * (1 + 6)  # a kernel's statements are indented by two, each test's by two more


def images(b: Built, *channels: int) -> list[Any]:
    """Returns sums of two images of so many channels each, which are innermost in memory."""
    found = []
    for n in channels:
        x, y = (b.add("transpose", b.given(2, 3, 4, n), permutation=[0, 3, 1, 2]) for _ in range(2))
        found.append(b.add("add", x, y))
    return found


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_parts_are_written_into_the_concatenation(device: int) -> None:
    """A part that is given, or computed by a library, is copied beside those of generated kernels."""
    b = Built()
    first, second = images(b, 8, 16)
    given = b.given(2, 24, 3, 4)
    joint = b.add("concat", first, given, second, axis=1)
    kernels = b.kernels(b.add("reduce_sum", joint, axes=[1]), device=device)
    assert kernels == ["generated pointwise", "generated pointwise", "generated concat", "generated fused_reduce"]
    one, other, copy, _ = b.program.executable.instances()[-1].plan.steps
    assert [x.lens[1] for x in copy.inputs] == [24]
    assert one.outputs[0].buffer is other.outputs[0].buffer is copy.outputs[0].buffer
    assert [s.outputs[0].offset for s in (one, copy, other)] == [0, 8, 32]
    assert one.outputs[0].strides == [12 * 48, 4 * 48, 48, 1]  # before it is transposed


def test_a_part_that_is_repeated_is_read_where_it_is() -> None:
    """Causal convolutions of videos repeat the first frame."""
    b = Built()
    (x,) = images(b, 8)
    frame = b.add("slice", x, axes=[2], starts=[0], ends=[1])
    before = b.add("multibroadcast", frame, out_lens=[2, 8, 2, 4])
    kernels = b.kernels(b.add("reduce_sum", b.add("concat", before, x, axis=2), axes=[1]))
    (copy,) = (s for s in b.program.executable.instances()[-1].plan.steps if s.kernel == "generated concat")
    assert len(kernels) == 3 and len(copy.inputs) == 1 and copy.inputs[0].buffer is copy.outputs[0].buffer


@pytest.mark.parametrize("why", ["product", "result", "twice", "odd"])
def test_parts_that_others_need_elsewhere_are_copied(why: str) -> None:
    b = Built()
    first, second = images(b, 8, 7 if why == "odd" else 16)
    joint = b.add("concat", first, second, axis=1)
    results = [b.add("reduce_sum", joint, axes=[1])]
    if why == "product":
        results.append(b.add("dot", first, b.given(2, 8, 4, 3)))
    if why == "result":
        results.append(first)
    if why == "twice":
        results.append(b.add("reduce_sum", b.add("concat", first, first, axis=1), axes=[1]))
    b.kernels(*results)
    copy = next(s for s in b.program.executable.instances()[-1].plan.steps if s.kernel == "generated concat")
    assert len(copy.inputs) == (2 if why == "odd" else 1)


def test_parts_of_a_concatenation_that_runs_later_are_not_copied() -> None:
    """It runs when the number of rows is known, and reads the part from a buffer of its own."""
    b = Built()
    part, y = b.add("relu", b.given(4, 8, 16)), b.given(5, 16)
    places = b.add("squeeze", b.add("slice", b.add("nonzero", y), axes=[0], starts=[0], ends=[1]), axes=[0])
    total = b.add("reduce_sum", b.add("gather", y, places, axis=0), axes=[0])
    spread = b.add("multibroadcast", b.add("reshape", total, dims=[1, 1, 16]), out_lens=[4, 1, 16])
    assert b.kernels(b.add("concat", part, spread, axis=1)) == ["generated pointwise", "generated nonzero"]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_parts_of_parts_are_written_into_a_stack(device: int) -> None:
    """A volume of two images' features at several shifts, as for stereo matching, is a stack of concatenations."""
    b = Built()
    features = [b.add("transpose", b.given(2, 3, 4, 8), permutation=[0, 3, 1, 2]) for _ in range(2)]
    pairs = []
    for shift in range(1, 4):
        seen = [b.add("slice", x, axes=[3], starts=[shift], ends=[4]) for x in features]
        wide = [b.add("pad", x, pads=[0, 0, 0, shift, 0, 0, 0, 0]) for x in seen]
        pairs.append(b.add("unsqueeze", b.add("concat", *wide, axis=1), axes=[2]))
    kernels = b.kernels(b.add("reduce_sum", b.add("concat", *pairs, axis=2), axes=[1]), device=device)
    assert kernels == ["generated pad"] * 6 + ["generated fused_reduce"]
    *parts, total = b.program.executable.instances()[-1].plan.steps
    assert all(p.outputs[0].buffer is total.inputs[0].buffer for p in parts)
    assert [p.outputs[0].offset for p in parts] == [0, 8, 192, 200, 384, 392]


def test_a_vector_is_written_into_its_concatenation() -> None:
    b = Built()
    x, y = b.given(8), b.given(16)
    parts = [b.add("relu", x), b.add("abs", b.add("concat", y, x, axis=0))]
    b.kernels(b.add("reduce_sum", b.add("concat", *parts, axis=0), axes=[0]))
    copy = next(s for s in b.program.executable.instances()[-1].plan.steps if s.kernel == "generated concat")
    assert [x.lens for x in copy.inputs] == [[24]]


def test_axes_of_run_time_may_be_inserted_into_a_result() -> None:
    """Whether a concatenation reads the result is not known then."""
    b = Built()
    axes = b.main.add_parameter("axes", Shape(dt.int64, (1,)))
    b.feed["axes"] = np.array([0])
    b.kernels(b.add("unsqueeze", b.add("relu", b.given(3, 4)), axes))
