"""oneDNN primitives and the executor of native programs.

Errors everywhere: UnsupportedError for what oneDNN does not implement, ParameterError for a wrong call, DeviceError for the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict, Unpack

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# What post_ops takes: ("eltwise", Eltwise, alpha, beta), ("sum", scale, zero_point, dtype), ("binary", Binary, md),
# ("prelu", mask); trailing items may be left out.  A binary or prelu operand is an argument of the step: see
# Primitive.post_op_args.
PostOp: TypeAlias = tuple[Any, ...]
Eltwise: TypeAlias = Literal[
    "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "soft_relu", "hardsigmoid", "logistic", "exp", "gelu_tanh",
    "swish", "log", "clip", "clip_v2", "pow", "gelu_erf", "round", "mish", "hardswish",
]  # fmt: skip
Binary: TypeAlias = Literal["add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne"]
FpMath: TypeAlias = Literal["strict", "bf16", "f16", "tf32", "any"]
Masks: TypeAlias = Mapping[int, int]  # argument -> mask of axes (0: one value for all)
Direction: TypeAlias = Literal["forward", "reverse", "bidirectional", "bidirectional_sum"]

SOURCE_SIZES: str  # what the module was built from: mgx_cpu_dnnl/native_sources.py
SOURCE_HASHES: str
ARG_SRC: int
ARG_DST: int
ARG_WEIGHTS: int
ARG_BIAS: int
ARG_ATTR_SCALES: int  # | argument
ARG_ATTR_ZERO_POINTS: int  # | argument
ARG_SRC_LAYER: int
ARG_SRC_ITER: int
ARG_SRC_ITER_C: int
ARG_WEIGHTS_LAYER: int
ARG_WEIGHTS_ITER: int
ARG_DST_LAYER: int
ARG_DST_ITER: int
ARG_DST_ITER_C: int

class MemoryDesc:
    """Dims, element type and layout of a tensor.

    layout: None (row-major), "any" (the primitive chooses), a word ("nchw", "nhwc", "channels_last", "plain"), an order of
    axis letters ("acdb"), a blocked layout ("nChw16c"), oneDNN's number of a layout, or strides in elements.
    dtype: float32, bfloat16, float16, int32, int8, uint8, float64, or oneDNN's short names.
    """

    def __init__(self, dims: Sequence[int], dtype: str, layout: str | int | Sequence[int] | None = None) -> None: ...
    @staticmethod
    def absent() -> MemoryDesc: ...
    @property
    def is_absent(self) -> bool: ...
    @property
    def is_any(self) -> bool: ...
    @property
    def is_plain(self) -> bool:
        """True if strides alone describe it."""
    @property
    def layout(self) -> str:
        """Axis letters, outermost first, upper case where blocked, then inner blocks: acdb, aBcd16b, any."""
    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def padded_dims(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def strides(self) -> tuple[int, ...] | None:
        """In elements; None unless plain."""
    @property
    def offset(self) -> int:
        """In elements, of a part."""
    @property
    def nbytes(self) -> int: ...
    @property
    def plain_form(self) -> tuple[Any, ...] | None:
        """Arguments of the constructor that make an equal one; None for the absent one."""
    def part(self, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc: ...
    def reshaped(self, dims: Sequence[int]) -> MemoryDesc: ...
    def permuted(self, axes: Sequence[int]) -> MemoryDesc: ...

class Primitive:
    """A oneDNN primitive for fixed shapes, with the layouts it chose."""

    @property
    def kind(self) -> str: ...
    @property
    def impl(self) -> str:
        """oneDNN's name of the implementation, such as brgconv:avx512_core."""
    @property
    def is_reference(self) -> bool:
        """True if it is oneDNN's slow reference code (hundreds of times slower): a plan should refuse it."""
    @property
    def threads(self) -> int: ...
    @property
    def scratchpad_size(self) -> int: ...
    @property
    def args(self) -> tuple[int, ...]: ...
    @property
    def post_op_args(self) -> tuple[int, ...]:
        """Per post-op the index of its argument, 0 if it has none."""
    @property
    def recipe(self) -> tuple[str, tuple[Any, ...], dict[str, Any]] | None:
        """The builder, its arguments and keywords."""
    @property
    def src(self) -> MemoryDesc: ...
    @property
    def weights(self) -> MemoryDesc: ...
    @property
    def bias(self) -> MemoryDesc: ...
    @property
    def dst(self) -> MemoryDesc: ...
    def md(self, arg: int) -> MemoryDesc:
        """The descriptor of any argument; absent if the primitive does not have it."""
    def single(self) -> Primitive | None:
        """The same computation and layouts planned for one thread; None if oneDNN has none."""
    def execute(self, addresses: Mapping[int, int]) -> None:
        """Runs once on these addresses, with a scratchpad of its own."""

class PackedBuffer:
    """Data in a layout of its own, in aligned memory of its own."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def md(self) -> MemoryDesc: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def pack(address: int, from_md: MemoryDesc, to_md: MemoryDesc) -> PackedBuffer: ...

class Attributes(TypedDict, total=False):
    """Keywords of all builders.  deferred: nothing is asked of oneDNN before `prepare`."""

    post_ops: Sequence[PostOp]
    scales: Masks
    zero_points: Masks
    fpmath: FpMath
    deferred: bool

class Moves(Attributes):
    """How windows move; dilations count from 1."""

    strides: Required[Sequence[int]]
    dilations: Required[Sequence[int]]
    padding_begin: Required[Sequence[int]]
    padding_end: Required[Sequence[int]]

class Layer(Attributes, total=False):
    """Operands of a recurrent layer besides its input and weights."""

    bias: MemoryDesc | None
    src_iter: MemoryDesc | None
    dst_iter: MemoryDesc | None
    direction: Direction

def convolution(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    winograd: bool = False,
    **keywords: Unpack[Moves],
) -> Primitive:
    """weights: [o, i, spatial..], or [groups, o / groups, i / groups, spatial..]."""

def deconvolution(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, **keywords: Unpack[Moves]
) -> Primitive:
    """weights: [o, i, spatial..] (ONNX has i first: permute), grouped as in convolution."""

def pooling(
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    mode: Literal["max", "average", "average_with_padding"],
    kernel: Sequence[int],
    **keywords: Unpack[Moves],
) -> Primitive: ...
def matmul(
    src: MemoryDesc,
    weights: MemoryDesc,
    dst: MemoryDesc,
    bias: MemoryDesc | None = None,
    **keywords: Unpack[Attributes],
) -> Primitive:
    """src [.., m, k], weights [.., k, n], dst [.., m, n], bias of dst's rank with extents 1 where it broadcasts."""

def reorder(src: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Attributes]) -> Primitive: ...
def recurrent_loop(kind: str) -> tuple[int, int]:
    """The address of the loop of lstm, gru or rnn layers, and the units that it does together."""

def winograd_loops(tile: tuple[int, int, int, int, int]) -> tuple[int, int, int]:
    """Addresses of the loops for a tile (outputs and taps down, then across; stride): transform, multiply, both in one."""

def winograd_lanes() -> int: ...
def winograd_pack(
    tile: tuple[int, int, int, int, int], address: int, strides: Sequence[int], outputs: int, channels: int, target: int
) -> None:
    """Filters [outputs, channels, rows, columns] of float32, by strides in elements, as [point, panel, channel, 2 lanes]."""

def lstm(
    src: MemoryDesc,
    weights_layer: MemoryDesc,
    weights_iter: MemoryDesc,
    dst: MemoryDesc,
    *,
    src_iter_c: MemoryDesc | None = None,
    dst_iter_c: MemoryDesc | None = None,
    peephole: MemoryDesc | None = None,
    **keywords: Unpack[Layer],
) -> Primitive:
    """src [t, n, c], weights [layers, directions, c, 4, h] (gates i f c o), states [layers, directions, n, h], bias
    [layers, directions, 4, h], dst [t, n, directions * h]."""

def gru(
    src: MemoryDesc, weights_layer: MemoryDesc, weights_iter: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Layer]
) -> Primitive:
    """Gates u r o; as lstm with 3 gates."""

def lbr_gru(
    src: MemoryDesc, weights_layer: MemoryDesc, weights_iter: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Layer]
) -> Primitive:
    """Linear before reset; bias has 4 rows."""

def vanilla_rnn(
    src: MemoryDesc,
    weights_layer: MemoryDesc,
    weights_iter: MemoryDesc,
    dst: MemoryDesc,
    *,
    activation: Literal["relu", "tanh", "logistic"] = "tanh",
    alpha: float = 0.0,
    **keywords: Unpack[Layer],
) -> Primitive: ...

# A value on memory, or a place in it: id or (id, byte offset).
Place: TypeAlias = int | tuple[int, int]
PrimitiveArg: TypeAlias = Place | tuple[int, int, MemoryDesc | None]
# An operand of a host step: an object's id, or (id, byte offset, dtype, dims[, strides in elements]).
HostOperand: TypeAlias = (
    int
    | tuple[int, int, npt.DTypeLike, Sequence[int]]
    | tuple[int, int, npt.DTypeLike, Sequence[int], Sequence[int] | None]
)

class NativeProgram:
    """A flat list of steps over one arena.

    Declare values (each method returns an id), add steps in order, `finish`, then run from any number of threads.  Every run
    has an arena of its own from a free list; scratch memory is the program's own business.
    """

    def __init__(self, name: str, arena_bytes: int) -> None: ...

    # values
    def arena(self, offset: int, nbytes: int) -> int: ...
    def literal(self, address: int, nbytes: int, owner: Any) -> int:
        """Memory that `owner` keeps alive."""
    def input(self, dtype: npt.DTypeLike, dims: Sequence[int]) -> int: ...
    def output(self, dtype: npt.DTypeLike, dims: Sequence[int]) -> int:
        """A row-major array that is made anew for each run."""
    def object_input(self) -> int:
        """An input that is any Python object, for host steps alone."""
    def object(self) -> int:
        """A slot for a Python object between host steps."""
    def result(self, value: int) -> None:
        """Names the next result: an output or an object.  Without any call the results are the outputs."""

    # steps
    def add_primitive(self, name: str, primitive: Primitive, args: Mapping[int, PrimitiveArg]) -> None:
        """args by oneDNN's argument index; a descriptor is needed only for scales and zero points."""
    def add_loop(
        self,
        name: str,
        address: int,
        owner: Any,
        buffers: Sequence[Place],
        args: Sequence[int] = (),
        work: int = 1,
        grain: int = 1,
        scratch_bytes: int = 0,
        deferred: Any = None,
    ) -> None:
        """A compiled loop `void f(void* const*, const int64_t*, int64_t begin, int64_t end, void* scratch)`.

        [0, work) is split over the team in slices of at least `grain`; scratch_bytes: per thread; deferred: how to
        make another loop with the same results.
        """
    def deferred_loops(self) -> list[tuple[int, Any]]:
        """Returns the indices of steps that are interpreted loops, and the descriptions from which these are compiled."""
    def replace_loop(self, step: int, address: int, args: Sequence[int]) -> None:
        """Has a step that is a loop run another one from now on, whose code must not be freed; runs may be under way."""
    def add_host(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Sequence[HostOperand],
        outputs: Sequence[HostOperand],
        into: bool = False,
    ) -> None:
        """A Python function, called with the GIL.

        into False: function(inputs) -> a sequence of results, copied to their places; True: function(inputs, outputs) writes
        into the outputs' arrays itself.  Arrays on the run's memory end with the run: what is kept as an object is copied.
        """
    def begin_branch(self, name: str, condition: Place) -> None:
        """Runs in which the byte at `condition` is not 0 take the steps up to `begin_other`, all others those behind it."""
    def begin_other(self, name: str) -> None: ...
    def end_branch(self, name: str) -> None:
        """All runs take the steps behind this one.  Branches may lie in each other."""
    def begin_loop(
        self, name: str, counter: Place, bound: Place | None, going: Place | None, sure: bool, most: int
    ) -> None:
        """The steps up to `end_loop` are taken again and again.

        counter: int64, 0 before the first trip, one more behind each; bound: int64, trips at most; going: a byte that is not 0
        before each trip; sure: no trip changes that.  More than `most` trips are an error, before the first where they are sure.
        """
    def end_loop(self, name: str) -> None: ...
    def finish(self, touch: bool = True) -> None:
        """No steps after this.  touch: have the first arena's pages now."""

    # running
    def run(self, inputs: Sequence[int], outputs: Sequence[int], arena: int = 0) -> None:
        """On addresses; arena: one of the caller's, 0 for one of the program's own."""
    def run_arrays(self, inputs: list[Any]) -> list[Any]:
        """Results, as new arrays that own their memory (recycled when they die)."""
    def time(self, inputs: list[Any], runs: int = 20, warmup: int = 3) -> list[float]:
        """Median nanoseconds of each step."""
    def prepare_single(self) -> None:
        """Plans every primitive for one thread, too (else done when runs first overlap)."""
    @property
    def name(self) -> str: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def frames(self) -> int:
        """Arenas at rest."""
    @property
    def step_names(self) -> list[str]: ...
    @property
    def step_kinds(self) -> list[str]: ...

# memory

def empty(dims: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """An uninitialised array on recycled memory, 64-byte aligned."""

def set_recycling_limit(nbytes: int) -> None:
    """Freed memory kept for reuse at most (default 256 MiB)."""

def recycled_bytes() -> int: ...
def arena_pool_bytes() -> int:
    """Memory that waits for the next run of any program."""

# threads

def available_threads() -> int:
    """What affinity, the control group and MGX_CPU_THREADS allow."""

def thread_count() -> int: ...
def set_threads(count: int) -> None:
    """For primitives built and runs started from now on.  Concurrent runs share these: alone a run has all, else one."""

def team_counts() -> tuple[int, int]:
    """How often waiting for a thread that did not run cost more than the team saved; steps that stayed alone for that."""

class CodeImage:
    """Machine code of relocatable objects, loaded and linked without a compiler.  Errors: DeviceError."""

    def __init__(self, objects: Sequence[bytes]) -> None: ...
    def address(self, symbol: str) -> int: ...
    @property
    def nbytes(self) -> int: ...

def build_id() -> bytes:
    """The linker's number of this build of the module; empty if it gave none."""

def own_offset(address: int) -> int | None:
    """Where a function of this module lies in it; None for others."""

def own_address(offset: int) -> int:
    """The way back, in the same build."""

def prepare(primitives: Sequence[Primitive]) -> None:
    """Describes deferred primitives and makes the code of all of them, side by side."""

def loop_failed_address() -> int:
    """Of `void mgx_loop_failed(int64_t code, int64_t value)`, which a compiled loop may call to fail the run: code 1 is an
    index out of bounds, 2 a division by zero, 3 another number outside its range (all ShapeError), 4 a
    region that is not finite (ParameterError), others DeviceError."""

def native_loops() -> dict[str, int]:
    """The addresses of the loops that this module brings, by name: "topk_float32" (src/*_loops.cpp say what they take)."""

def native_loop(name: str) -> int:
    """One of them.  Errors: UnsupportedError if there is none of this name."""

# the machine

def cpu_features() -> list[str]: ...
def onednn_sums_bytes() -> bool:
    """True if oneDNN sums products of bytes in 32 bits, and not two by two in 16."""

def onednn_sums_bytes_by_avx2() -> bool:
    """True if it does so by its loops for AVX2-VNNI."""

def multiplies_tiles() -> bool:
    """True if bytes may be multiplied in tile registers (AMX): oneDNN, which may be held to less, multiplies them there, too."""

def cpu_key() -> str:
    """The processor's family, model and features as text."""

def cpu_model() -> str: ...
def cache_sizes() -> dict[str, int]:
    """Bytes of l1d, l2, l3 and a line."""

def peak_gflops(dtype: Literal["float32", "bfloat16", "int8"], threads: int) -> float:
    """Measured multiply-adds per nanosecond, times two, with vectors or matrix tiles; 0 without the instructions."""

def read_gbps(nbytes: int, threads: int) -> float: ...
def dnnl_version() -> tuple[int, int, int]: ...
