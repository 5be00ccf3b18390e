"""Graphs of convolutions, attention and products and their descriptors, on a recording fake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgx_core import dtype
from mgx_core.errors import DeviceError, No, ParameterError, UnsupportedError
from mgx_gpu_hip.library import Activation, AttentionProblem, ConvProblem, GemmProblem, Libraries, cudnn_problems
from mgx_gpu_hip.library.attention import attention_graph
from mgx_gpu_hip.library.convolution import channels_last, conv_graph
from mgx_gpu_hip.library.cudnn import EXACT, NARROW, Cudnn, notes_for
from mgx_gpu_hip.library.cudnn_constants import Attr, Kind, Note
from mgx_gpu_hip.library.cudnn_graph import Convolve, Graph, MatMul, Pointwise, Reduce
from mgx_gpu_hip.library.cudnn_narrow import NarrowProblem, Operand, narrow_graph
from mgx_gpu_hip.library.cudnn_plan import CudnnPlan
from mgx_gpu_hip.library.cudnn_problems import gemm_graph

RELU = Activation("relu")
CONV = ConvProblem((1, 8, 6, 6), 16, (3, 3), pads=((1, 1), (1, 1)), epilogue=("bias", RELU))


class FakeCudnn:
    """Stores each descriptor's attributes; offers engines by their notes, of which those in `broken` do not compile."""

    def __init__(
        self, engines: tuple[tuple[Note, ...], ...] = ((), ()), broken: tuple[int, ...] = (), space: int = 0
    ) -> None:
        self.engines = engines
        self.broken = broken
        self.compiling: tuple[int, ...] = ()
        self.space = space
        self.kinds: dict[int, Kind] = {}
        self.values: dict[int, dict[Attr, list[Any]]] = {}
        self.engine: dict[int, int] = {}
        self.executed: list[tuple[int, int]] = []
        self.streams: list[int] = []
        self.status: dict[str, int] = {}

    def cudnnGetVersion(self) -> int:
        return 91900

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"CUDNN_STATUS_%d" % status

    def cudnnCreate(self, pointer: Any) -> int:
        pointer.contents.value = 0x7
        return self.status.get("create", 0)

    def cudnnDestroy(self, handle: Any) -> int:
        return 0

    def cudnnSetStream(self, handle: Any, stream: int) -> int:
        self.streams.append(stream)
        return 0

    def cudnnBackendCreateDescriptor(self, kind: int, pointer: Any) -> int:
        number = 0x1000 + len(self.kinds)
        pointer.contents.value = number
        self.kinds[number] = Kind(kind)
        self.values[number] = {}
        return 0

    def cudnnBackendDestroyDescriptor(self, d: Any) -> int:
        return 0

    def cudnnBackendSetAttribute(self, d: Any, attribute: int, kind: int, count: int, array: Any) -> int:
        self.values[d.value][Attr(attribute)] = array if isinstance(array, bytes) else list(array)
        return 0

    def cudnnBackendFinalize(self, d: Any) -> int:
        if self.kinds[d.value] is Kind.PLAN and Attr.PLAN_ENGINE_CONFIG in self.values[d.value]:
            (config,) = self.values[d.value][Attr.PLAN_ENGINE_CONFIG]
            return 3000 if self.engine[config] in self.broken else 0
        return 0

    def cudnnBackendGetAttribute(self, d: Any, attribute: int, kind: int, count: int, found: Any, array: Any) -> int:
        of = Attr(attribute)
        given: Any = []
        if of is Attr.HEUR_RESULTS:
            given = range(len(self.engines))
            for i in range(count):
                self.engine[array[i]] = i
        elif of is Attr.CONFIG_ENGINE:
            given = [0]
            self.engine[array[0]] = self.engine[d.value]
        elif of is Attr.ENGINE_NUMERICAL_NOTE:
            given = self.engines[self.engine[d.value]]
            array[: len(given)] = list(map(int, given))
        elif of is Attr.ENGINE_BEHAVIOR_NOTE:
            given = [0] if self.engine[d.value] in self.compiling else []
        elif of is Attr.PLAN_WORKSPACE_SIZE:
            given = [0]
            array[0] = self.space
        elif of is Attr.PLAN_JSON:
            kept = self.values[d.value]
            text = kept.get(Attr.PLAN_JSON) or b"engine %d" % self.engine[kept[Attr.PLAN_ENGINE_CONFIG][0]]
            given = text
            if array is not None:
                array[: len(text)] = text
        found.contents.value = len(given)
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        self.executed.append((plan.value, pack.value))
        return self.status.get("execute", 0)

    def of(self, kind: Kind) -> list[dict[Attr, list[Any]]]:
        return [self.values[d] for d, k in self.kinds.items() if k is kind]


def nodes(graph: Graph | No) -> list[Any]:
    assert not isinstance(graph, No), graph.why
    return graph.nodes


def test_channels_last_strides() -> None:
    assert channels_last((2, 3, 4, 5), 0) == (60, 1, 15, 3)
    assert channels_last((2, 3, 4, 5), 8) == (160, 1, 40, 8)


def test_a_convolution_becomes_nodes_of_which_the_last_writes_y() -> None:
    convolve, add, relu = nodes(conv_graph(CONV))
    assert isinstance(convolve, Convolve) and (convolve.pads, convolve.stride) == (((1, 1), (1, 1)), (1, 1))
    assert (convolve.w.dims, convolve.w.strides) == ((16, 8, 3, 3), (72, 1, 24, 8))
    assert convolve.y.virtual and convolve.y.dtype is dtype.float32 and add.x == convolve.y
    assert (add.mode, add.b.dims, relu.mode, relu.y.dims, relu.y.virtual) == (
        "add",
        (1, 16, 1, 1),
        "relu",
        (1, 16, 6, 6),
        False,
    )


def test_the_residual_is_added_before_the_bias_where_they_meet() -> None:
    graph = conv_graph(ConvProblem((1, 8, 6, 6), 8, (1, 1), epilogue=("bias", "residual", RELU)))
    assert not isinstance(graph, No)
    first, second = (n.b.id for n in graph.nodes[1:3])  # type: ignore[union-attr]
    assert (first, second) == (graph.names["residual"], graph.names["bias"])
    graph = conv_graph(ConvProblem((1, 8, 6, 6), 8, (1, 1), epilogue=("bias", RELU, "residual")))
    assert not isinstance(graph, No)
    assert [n.mode for n in graph.nodes[1:]] == ["add", "relu", "add"]  # type: ignore[union-attr]
    assert graph.nodes[1].b.id == graph.names["bias"]  # type: ignore[union-attr]


def test_a_scaled_result() -> None:
    problem = ConvProblem((1, 8, 6, 6), 8, (1, 1), alpha=0.5)
    convolve, scale = nodes(conv_graph(problem))
    assert convolve.y.virtual and (scale.mode, scale.b.value, scale.y.virtual) == ("mul", 0.5, False)
    _, scale, bias = nodes(conv_graph(replace(problem, epilogue=("bias",))))
    assert scale.y.virtual and (bias.mode, bias.y.virtual) == ("add", False)
    refused = conv_graph(replace(problem, dtype=dtype.float32))
    assert isinstance(refused, No) and "full precision" in refused.why
    assert str(problem) == "1x8x6x6 -> 8 k1x1 float16 x0.5"


def test_extents_of_the_result() -> None:
    assert ConvProblem((1, 3, 224, 224), 64, (7, 7), (2, 2), pads=((3, 3), (3, 3))).out_dims == (1, 64, 112, 112)
    assert ConvProblem((1, 4, 15, 17), 8, (3, 3), (2, 1), (2, 2), ((2, 2), (2, 2))).out_dims == (1, 8, 8, 17)
    assert ConvProblem((1, 8, 6, 6), 8, (3, 3), pads=((1, 1), (1, 1)), groups=8).flops == 2 * 8 * 36 * 9


def test_padding_before_and_after_may_differ() -> None:
    (convolve,) = nodes(conv_graph(ConvProblem((1, 8, 6, 6), 8, (3, 3), (2, 2), pads=((0, 1), (1, 2)))))
    assert convolve.pads == ((0, 1), (1, 2)) and convolve.y.dims == (1, 8, 3, 4)


def test_padding_of_narrow_images_may_differ_too() -> None:
    types = (dtype.int8, dtype.int8, dtype.int32)
    dims = (1, 16, 6, 6), (16, 16, 3, 3), (1, 16, 3, 4)
    (convolve,) = nodes(narrow_graph(NarrowProblem(*dims, types, (), (), (2, 2), (1, 1), ((0, 1), (1, 2)))))
    assert convolve.pads == ((0, 1), (1, 2)) and convolve.y.dims == (1, 16, 3, 4)


@pytest.mark.parametrize("pads", [((-1, -1), (0, 0)), ((1, 1), (0, -1))])
def test_padding_that_crops_is_refused(pads: tuple[tuple[int, int], ...]) -> None:
    refused = conv_graph(ConvProblem((1, 8, 6, 6), 8, (3, 3), pads=pads))
    assert isinstance(refused, No) and "padding of at least 0" in refused.why


@pytest.mark.parametrize(
    "given",
    [
        {"kernel": (3,)},
        {"groups": 3},
        {"kernel": (9, 9)},
        {"y_pitch": 4},
    ],
)
def test_convolutions_that_do_not_fit_are_errors(given: Any) -> None:
    with pytest.raises(ParameterError):
        ConvProblem(**{"dims": (1, 8, 6, 6), "filters": 8, "kernel": (3, 3)} | given)


def test_descriptors_of_a_convolution() -> None:
    fake = FakeCudnn()
    plan = cudnn_problems.plan(Cudnn(fake), CONV)
    assert isinstance(plan, CudnnPlan)
    (conv,) = fake.of(Kind.CONVOLUTION)
    assert conv == {
        Attr.CONVOLUTION_SPATIAL_DIMS: [2], Attr.CONVOLUTION_COMP_TYPE: [0], Attr.CONVOLUTION_CONV_MODE: [1],
        Attr.CONVOLUTION_PRE_PADDINGS: [1, 1], Attr.CONVOLUTION_POST_PADDINGS: [1, 1],
        Attr.CONVOLUTION_DILATIONS: [1, 1], Attr.CONVOLUTION_FILTER_STRIDES: [1, 1],
    }  # fmt: skip
    tensors = {d[Attr.TENSOR_ID][0]: d for d in fake.of(Kind.TENSOR)}
    assert tensors[1][Attr.TENSOR_DIMENSIONS] == [1, 8, 6, 6] and tensors[1][Attr.TENSOR_STRIDES] == [288, 1, 48, 8]
    assert tensors[1][Attr.TENSOR_DATA_TYPE] == [2]
    assert sum(Attr.TENSOR_IS_VIRTUAL in d for d in tensors.values()) == 2
    relu = fake.of(Kind.POINTWISE)[1]
    assert relu[Attr.POINTWISE_MODE] == [100] and relu[Attr.POINTWISE_RELU_LOWER_CLIP] == [0.0]
    assert Attr.POINTWISE_RELU_UPPER_CLIP not in relu
    assert len(fake.of(Kind.OPERATION_GRAPH)[0][Attr.GRAPH_OPS]) == 3


def test_parameters_of_activations() -> None:
    fake = FakeCudnn()
    steps = (Activation("relu", high=6.0, slope=0.1), Activation("elu", alpha=2.0), Activation("swish"))
    cudnn_problems.plan(Cudnn(fake), ConvProblem((1, 8, 6, 6), 8, (1, 1), epilogue=steps))
    relu, least, elu, swish = fake.of(Kind.POINTWISE)
    assert (relu[Attr.POINTWISE_MODE], relu[Attr.POINTWISE_RELU_LOWER_CLIP_SLOPE]) == ([100], [0.1])
    assert least[Attr.POINTWISE_MODE] == [2]  # the upper bound is a separate node, with a number
    assert (elu[Attr.POINTWISE_MODE], elu[Attr.POINTWISE_ELU_ALPHA]) == ([103], [2.0])
    assert (swish[Attr.POINTWISE_MODE], swish[Attr.POINTWISE_SWISH_BETA]) == ([106], [1.0])


def test_engines_that_round_operands_are_not_used_for_float32() -> None:
    assert notes_for(dtype.float32) is EXACT and notes_for(dtype.float32, tf32=True) is NARROW
    assert notes_for(dtype.float16) is NARROW
    fake = FakeCudnn(engines=((Note.TENSOR_CORE,), (Note.WINOGRAD,)))
    cudnn = Cudnn(fake)
    half, single = cudnn_problems.plan(cudnn, CONV), cudnn_problems.plan(cudnn, replace(CONV, dtype=dtype.float32))
    assert isinstance(half, CudnnPlan) and isinstance(single, CudnnPlan)
    assert (half.saved, single.saved) == ("engine 0", "engine 1")


def test_a_failing_engine_is_replaced_by_the_next() -> None:
    fake = FakeCudnn(broken=(0,))
    plan = cudnn_problems.plan(Cudnn(fake), CONV)
    assert isinstance(plan, CudnnPlan) and plan.saved == "engine 1"
    answer = cudnn_problems.plan(Cudnn(FakeCudnn(engines=())), CONV)
    assert isinstance(answer, No) and "no (further) engine of cuDNN 91900" in answer.why
    answer = cudnn_problems.plan(Cudnn(FakeCudnn(space=1 << 40)), CONV)
    assert isinstance(answer, No)


def test_several_plans_differ() -> None:
    fake = FakeCudnn(engines=((), (), ()))
    fake.compiling = (1,)
    plans = cudnn_problems.plans(Cudnn(fake), CONV, 8)
    assert not isinstance(plans, No)
    assert [(plan.saved, plan.compiled) for plan in plans] == [
        ("engine 0", False),
        ("engine 1", True),
        ("engine 2", False),
    ]
    ready = cudnn_problems.plans(Cudnn(fake), CONV, 8, compiled=False)
    assert not isinstance(ready, No)
    assert [plan.saved for plan in ready] == ["engine 0", "engine 2"]


def test_threads_share_the_engines() -> None:
    cudnn = Cudnn(FakeCudnn(engines=((), (), ())))
    for number in range(3):
        plans = cudnn_problems.plans(cudnn, CONV, 1, share=(number, 3))
        assert not isinstance(plans, No)
        assert [plan.saved for plan in plans] == [f"engine {number}"]


def test_full_precision_uses_only_existing_library_kernels() -> None:
    for epilogue in ((), ("bias",), ("residual", "bias", RELU), ("bias", "residual"), ("bias", Activation("tanh"))):
        assert isinstance(conv_graph(replace(CONV, dtype=dtype.float32, epilogue=epilogue)), Graph)
    for epilogue in (("residual",), (RELU,), ("bias", Activation("relu", high=6.0)), ("bias", RELU, "residual")):
        answer = conv_graph(replace(CONV, dtype=dtype.float32, epilogue=epilogue))
        assert isinstance(answer, No) and "full precision" in answer.why
        assert isinstance(conv_graph(replace(CONV, dtype=dtype.float32, epilogue=epilogue, tf32=True)), Graph)


def test_depthwise_graphs_keep_away_from_the_slow_ready_made_engines() -> None:
    depthwise = ConvProblem((1, 8, 6, 6), 8, (3, 3), groups=8, epilogue=("bias", RELU), dtype=dtype.float32)
    assert [n.mode for n in nodes(conv_graph(depthwise))[1:]] == ["identity", "add", "relu"]
    clipped = replace(depthwise, epilogue=("bias", Activation("relu", high=6.0)))
    assert [n.mode for n in nodes(conv_graph(clipped))[1:]] == ["add", "relu", "min"]
    assert len(nodes(conv_graph(replace(depthwise, epilogue=())))) == 1


def test_large_products_are_not_fused_by_cudnn_unmeasured() -> None:
    libraries = Libraries("cuda", device={"deviceVer": 900}, loaded={"cudnn": Cudnn(FakeCudnn())})
    gelu = (Activation("gelu_erf"),)
    large = GemmProblem.packed(4096, 3072, 768, epilogue=gelu)
    answer = libraries.plan(large)
    assert isinstance(answer, No) and "for large results" in answer.why
    plans = libraries.plans(large)
    assert not isinstance(plans, No) and isinstance(libraries.plan(large, plans[0].choice), CudnnPlan)
    assert isinstance(libraries.plans(large, compiled=False), No)


def test_launch_packs_addresses_and_numbers() -> None:
    fake = FakeCudnn(space=64)
    plan = cudnn_problems.plan(Cudnn(fake), CONV)
    assert isinstance(plan, CudnnPlan)
    with pytest.raises(ParameterError, match="workspace of 64"):
        plan.launch(0x5, x=1, w=2, y=3, bias=4)
    with pytest.raises(ParameterError, match="takes the addresses x, w, y, bias"):
        plan.launch(0x5, x=1, w=2, y=3, workspace=9)
    for _ in range(2):
        plan.launch(0x5, x=16, w=32, y=48, bias=64, workspace=80)
    (pack,) = fake.of(Kind.VARIANT_PACK)
    assert dict(zip(pack[Attr.PACK_IDS], pack[Attr.PACK_POINTERS], strict=True)) == {
        plan.names["x"]: 16, plan.names["w"]: 32, plan.names["y"]: 48, plan.names["bias"]: 64
    }  # fmt: skip
    assert pack[Attr.PACK_WORKSPACE] == [80]
    assert fake.streams == [5] and len(fake.executed) == 2
    fake.status["execute"] = 5000
    with pytest.raises(DeviceError, match=r"cudnnBackendExecute \(.*\): CUDNN_STATUS_5000"):
        plan.launch(0x5, x=16, w=32, y=48, bias=64, workspace=80)


def test_a_saved_plan_needs_no_search() -> None:
    fake = FakeCudnn()
    cudnn = Cudnn(fake)
    plan = cudnn_problems.plan(cudnn, CONV)
    assert isinstance(plan, CudnnPlan)
    searches = len(fake.of(Kind.ENGINE_HEURISTIC))
    again = cudnn_problems.plan(cudnn, CONV, plan.choice)
    assert isinstance(again, CudnnPlan) and again.choice == plan.choice
    assert len(fake.of(Kind.ENGINE_HEURISTIC)) == searches
    cudnn_problems.plan(cudnn, CONV, plan.choice | {"version": 90000})
    assert len(fake.of(Kind.ENGINE_HEURISTIC)) == searches + 1


def test_a_device_that_is_not_there_is_described() -> None:
    fake = FakeCudnn()
    fake.status["create"] = 1001
    with pytest.raises(DeviceError, match=r"cudnnCreate: CUDNN_STATUS_1001 \(1001\)"):
        Cudnn(fake)
    plan = cudnn_problems.plan(Cudnn(fake, device={"deviceVer": 900}), CONV)
    assert isinstance(plan, CudnnPlan)
    (properties,) = fake.of(Kind.DEVICE_PROPERTIES)
    assert properties[Attr.DEVICE_JSON] == b'{"deviceVer": 900}'
    assert Attr.HEUR_DEVICE_PROPERTIES in fake.of(Kind.ENGINE_HEURISTIC)[0]
    assert Attr.PLAN_DEVICE_PROPERTIES in fake.of(Kind.PLAN)[0] and Attr.PLAN_HANDLE not in fake.of(Kind.PLAN)[0]


def test_attention_is_the_pattern_that_cudnn_knows() -> None:
    graph = attention_graph(AttentionProblem.packed(2, 4, 32, 48, 64, kv_heads=2, bias=(2, 1, 1, 48)))
    found = nodes(graph)
    kinds = [n.mode if isinstance(n, Pointwise | Reduce) else type(n).__name__ for n in found]
    assert kinds == ["MatMul", "mul", "add", "max", "sub", "exp", "add", "log", "add", "div", "MatMul"]
    first, last = found[0], found[-1]
    assert isinstance(first, MatMul) and isinstance(last, MatMul)
    assert (first.a.dims, first.b.dims, first.b.strides) == ((2, 4, 32, 64), (2, 2, 64, 48), (6144, 3072, 1, 64))
    assert (first.c.dims, first.c.dtype, last.a.dtype) == ((2, 4, 32, 48), dtype.float32, dtype.float16)
    assert [t.value for t in graph.values] == [0.125]  # type: ignore[union-attr]
    assert not isinstance(graph, No) and set(graph.names) == {"q", "k", "v", "o", "bias"}


def test_a_causal_mask_compares_indices() -> None:
    graph = attention_graph(AttentionProblem.packed(1, 2, 32, 32, 64, causal=True))
    found = nodes(graph)
    assert [(n.mode, n.axis) for n in found[2:4]] == [("index", 2), ("index", 3)]
    assert (found[4].mode, found[4].y.dtype, found[5].mode, found[5].t) == (
        "greater_or_equal", dtype.bool_, "select", found[4].y
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"dtype": dtype.float32}, "requires float16 or bfloat16"),
        ({"size": 20}, "multiples of 8"),
        ({"size": 512}, "up to 256"),
    ],
)
def test_attention_that_cudnn_lacks_is_refused(given: Any, word: str) -> None:
    size = given.pop("size", 64)
    answer = cudnn_problems.plan(Cudnn(FakeCudnn()), AttentionProblem.packed(1, 2, 8, 8, size, **given))
    assert isinstance(answer, No) and word in answer.why


def test_attention_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ParameterError, match="multiple"):
        AttentionProblem.packed(1, 4, 8, 8, 64, kv_heads=3)
    with pytest.raises(ParameterError, match="broadcast"):
        AttentionProblem.packed(1, 4, 8, 8, 64, bias=(1, 2, 8, 8))
    strides = (4096, 512, 64, 1)
    with pytest.raises(ParameterError, match=r"^v needs 4 strides, got \(512, 64, 1\)$"):
        AttentionProblem(1, 8, 8, 8, 64, strides, strides, strides[1:], strides, 1.0)


def test_libraries_of_another_vendor_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"^vendor libraries exist for cuda and hip, got 'metal'$"):
        Libraries("metal")


def test_a_number_is_packed_by_its_address() -> None:
    fake = FakeCudnn()
    plan = cudnn_problems.plan(Cudnn(fake), AttentionProblem.packed(1, 2, 8, 8, 64))
    assert isinstance(plan, CudnnPlan)
    plan.launch(1, q=16, k=32, v=48, o=64)
    (pack,) = fake.of(Kind.VARIANT_PACK)
    assert len(pack[Attr.PACK_IDS]) == 5
    scale = plan._values[0][1]
    assert scale.value == 0.125


def test_a_product_with_erf_gelu() -> None:
    graph = gemm_graph(
        GemmProblem.packed(8, 16, 32, b_transposed=True, alpha=2.0, epilogue=("bias", Activation("gelu_erf")))
    )
    product, scale, bias, gelu = nodes(graph)
    assert (product.b.dims, product.b.strides) == ((1, 32, 16), (512, 1, 32))
    assert (scale.mode, bias.b.dims, gelu.mode, gelu.y.virtual) == ("mul", (1, 1, 16), "gelu_erf", False)
    assert isinstance(gemm_graph(GemmProblem.packed(8, 8, 8, compute="f16")), No)


def test_libraries_answer_through_one_interface() -> None:
    fake = FakeCudnn()
    libraries = Libraries("cuda", device={"deviceVer": 900}, loaded={"cudnn": Cudnn(fake)})
    plan = libraries.plan(GemmProblem.packed(8, 8, 8, epilogue=(Activation("gelu_erf"),)))
    assert isinstance(plan, CudnnPlan)
    assert isinstance(libraries.plan(CONV), CudnnPlan)
    assert isinstance(libraries.plan(AttentionProblem.packed(1, 2, 8, 8, 64), plan.choice), CudnnPlan)
    plans = libraries.plans(GemmProblem.packed(8, 8, 8), 4)
    assert not isinstance(plans, No) and len(plans) == 2
    libraries.close()
    with pytest.raises(UnsupportedError):
        Libraries("opencl")


def test_an_absent_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_MIOPEN_LIBRARY", "/nowhere/libMIOpen.so")
    answer = Libraries("hip").plan(CONV)
    assert (
        isinstance(answer, No) and "libMIOpen.so.1 was not found" in answer.why and "MGX_MIOPEN_LIBRARY" in answer.why
    )
    assert isinstance(Libraries("hip").plan(AttentionProblem.packed(1, 2, 8, 8, 64)), No)


def test_scalars_of_narrow_steps_are_listed_in_the_order_of_the_graph() -> None:
    steps = (("mul", -1, 0.5), ("add", 0, "o0"), ("max", 1, -2.0), ("min", 2, 3.0))
    types = dtype.int8, dtype.int8, dtype.int8
    bias = Operand("o0", (1, 1, 16), (16, 16, 1), dtype.float32)
    problem = NarrowProblem((1, 64, 32), (1, 32, 16), (1, 64, 16), types, steps, (bias,))
    assert [t.value for t in narrow_graph(problem).values] == problem.numbers == [0.5, -2.0, 3.0]
    assert problem.numberless().numbers == [1.0, 1.0, 1.0]
    assert problem.numberless() == replace(problem, steps=(("mul", -1, 7.0), *steps[1:])).numberless()
