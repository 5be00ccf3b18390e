"""oneDNN primitives, native loops, and the executor of native programs.

All functions raise UnsupportedError if oneDNN does not implement a primitive, ParameterError for invalid arguments, and
DeviceError for other failures.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict, Unpack

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# ("eltwise", Eltwise, alpha, beta), ("sum", scale, zero_point, dtype), ("binary", Binary, md) or ("prelu", mask); trailing items
# are optional.  Operands of binary and prelu are arguments of the step, see Primitive.post_op_args.
PostOp: TypeAlias = tuple[Any, ...]
Eltwise: TypeAlias = Literal[
    "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "soft_relu", "hardsigmoid", "logistic", "exp", "gelu_tanh",
    "swish", "log", "clip", "clip_v2", "pow", "gelu_erf", "round", "mish", "hardswish",
]  # fmt: skip
Binary: TypeAlias = Literal["add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne"]
FpMath: TypeAlias = Literal["strict", "bf16", "f16", "tf32", "any"]
Masks: TypeAlias = Mapping[int, int]  # argument index -> mask of axes (0: a scalar)
Direction: TypeAlias = Literal["forward", "reverse", "bidirectional", "bidirectional_sum"]

SOURCE_SIZES: str  # sources that the module was built from, see native_sources.py
SOURCE_HASHES: str
ARG_SRC: int
ARG_DST: int
ARG_WEIGHTS: int
ARG_BIAS: int
ARG_DIFF_WEIGHTS: int
ARG_DIFF_DST: int
ARG_ATTR_SCALES: int  # combined with an argument index by `|`
ARG_ATTR_ZERO_POINTS: int  # likewise
ARG_SRC_LAYER: int
ARG_SRC_ITER: int
ARG_SRC_ITER_C: int
ARG_WEIGHTS_LAYER: int
ARG_WEIGHTS_ITER: int
ARG_DST_LAYER: int
ARG_DST_ITER: int
ARG_DST_ITER_C: int

class MemoryDesc:
    """A oneDNN memory descriptor: dims, element type and layout of a tensor.

    layout: None (row-major), "any" (chosen by the primitive), a name ("nchw", "nhwc", "channels_last", "plain"), axis letters
    in memory order ("acdb"), a blocked layout ("nChw16c"), a oneDNN format tag, or strides in elements.
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
        """True if the layout is fully described by strides."""
    @property
    def layout(self) -> str:
        """Axis letters, outermost first, upper case for blocked axes, then the inner blocks: acdb, aBcd16b; or any."""
    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def padded_dims(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements; None unless plain."""
    @property
    def offset(self) -> int:
        """Offset of a sub-tensor, in elements."""
    @property
    def nbytes(self) -> int: ...
    @property
    def plain_form(self) -> tuple[Any, ...] | None:
        """Constructor arguments of an equal descriptor; None if absent."""
    def part(self, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc: ...
    def reshaped(self, dims: Sequence[int]) -> MemoryDesc: ...
    def permuted(self, axes: Sequence[int]) -> MemoryDesc: ...

class Primitive:
    """A oneDNN primitive for fixed shapes, with the layouts that it chose."""

    @property
    def kind(self) -> str: ...
    @property
    def impl(self) -> str:
        """oneDNN's implementation name, e.g. brgconv:avx512_core."""
    @property
    def is_reference(self) -> bool:
        """True if it is oneDNN's reference implementation, hundreds of times slower: plans should refuse it."""
    @property
    def threads(self) -> int: ...
    @property
    def scratchpad_size(self) -> int: ...
    @property
    def args(self) -> tuple[int, ...]: ...
    @property
    def post_op_args(self) -> tuple[int, ...]:
        """The argument index of each post-op's operand; 0 if it has none."""
    @property
    def recipe(self) -> tuple[str, tuple[Any, ...], dict[str, Any]] | None:
        """The builder that created it, with positional and keyword arguments."""
    @property
    def src(self) -> MemoryDesc: ...
    @property
    def weights(self) -> MemoryDesc: ...
    @property
    def bias(self) -> MemoryDesc: ...
    @property
    def dst(self) -> MemoryDesc: ...
    def md(self, arg: int) -> MemoryDesc:
        """Returns the descriptor of an argument; absent if the primitive does not have it."""
    def single(self) -> Primitive | None:
        """Returns the primitive created for one thread, with equal layouts; None if oneDNN has none."""
    def execute(self, addresses: Mapping[int, int]) -> None:
        """Executes the primitive on addresses by argument index, with its own scratchpad."""

class PackedBuffer:
    """A tensor in a primitive's layout; owns its aligned memory."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def md(self) -> MemoryDesc: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def pack(address: int, from_md: MemoryDesc, to_md: MemoryDesc) -> PackedBuffer:
    """Reorders a tensor at an address to another layout."""

class Attributes(TypedDict, total=False):
    """Keyword arguments of all builders.  deferred: the primitive is not created before `prepare`."""

    post_ops: Sequence[PostOp]
    scales: Masks
    zero_points: Masks
    fpmath: FpMath
    deferred: bool

class Moves(Attributes):
    """Keyword arguments of builders with windows; a dilation of 1 means dense windows."""

    strides: Required[Sequence[int]]
    dilations: Required[Sequence[int]]
    padding_begin: Required[Sequence[int]]
    padding_end: Required[Sequence[int]]

class Layer(Attributes, total=False):
    """Keyword arguments of recurrent layers: optional operands and the direction."""

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
    """Creates a convolution; weights: [o, i, spatial..] or [groups, o / groups, i / groups, spatial..]."""

def deconvolution(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, **keywords: Unpack[Moves]
) -> Primitive:
    """Creates a transposed convolution; weights: as in `convolution` (ONNX's have i first and must be permuted)."""

def convolution_weights(src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Moves]) -> Primitive:
    """Creates the gradient of a convolution's weights from its operand and the gradient of its result."""

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
    """Creates a product: src [.., m, k], weights [.., k, n], dst [.., m, n], bias broadcast to dst, of equal rank."""

def reorder(src: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Attributes]) -> Primitive: ...
def recurrent_loop(kind: str) -> tuple[int, int]:
    """Returns the address of the loop for lstm, gru or rnn layers, and the number of units that it computes together."""

def winograd_loops(tile: tuple[int, int, int, int, int], bfloat16: bool = False) -> tuple[int, int, int, int]:
    """Returns the addresses of the loops that transform inputs, multiply, do both, and transform weights.

    tile: outputs and taps vertically, outputs and taps horizontally, stride.
    """

def winograd_lanes() -> int: ...
def winograd_pack(
    tile: tuple[int, int, int, int, int], address: int, strides: Sequence[int], outputs: int, channels: int, target: int
) -> None:
    """Transforms float32 filters [outputs, channels, rows, columns], strides in elements, to [point, panel, channel, 2 lanes]."""

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
    """Creates an LSTM: src [t, n, c], weights [layers, directions, c, 4, h] (gates i f c o), states [layers, directions, n, h],
    bias [layers, directions, 4, h], dst [t, n, directions * h]."""

def gru(
    src: MemoryDesc, weights_layer: MemoryDesc, weights_iter: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Layer]
) -> Primitive:
    """Creates a GRU: as `lstm`, with gates u r o."""

def lbr_gru(
    src: MemoryDesc, weights_layer: MemoryDesc, weights_iter: MemoryDesc, dst: MemoryDesc, **keywords: Unpack[Layer]
) -> Primitive:
    """Creates a GRU with linear-before-reset; bias has 4 rows."""

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

# A value in memory: id, or (id, byte offset).
Place: TypeAlias = int | tuple[int, int]
PrimitiveArg: TypeAlias = Place | tuple[int, int, MemoryDesc | None]
# An operand of a host step: the id of an object, or (id, byte offset, dtype, dims[, strides in elements]).
HostOperand: TypeAlias = (
    int
    | tuple[int, int, npt.DTypeLike, Sequence[int]]
    | tuple[int, int, npt.DTypeLike, Sequence[int], Sequence[int] | None]
)

class NativeProgram:
    """A flat list of steps over one arena.

    Usage: declare values (each method returns an id), add steps in order, call `finish`, then run from any number of threads.
    Each run uses its own frame, from a free list, and an arena block of the process's pool, which includes scratch memory.
    """

    def __init__(self, name: str, arena_bytes: int) -> None: ...

    # values
    def arena(self, offset: int, nbytes: int) -> int: ...
    def literal(self, address: int, nbytes: int, owner: Any) -> int:
        """Declares constant memory, which `owner` keeps alive."""
    def input(self, dtype: npt.DTypeLike, dims: Sequence[int]) -> int: ...
    def output(self, dtype: npt.DTypeLike, dims: Sequence[int]) -> int:
        """Declares a row-major array that is allocated for each run."""
    def object_input(self) -> int:
        """Declares an input that is any Python object, for host steps only."""
    def object(self) -> int:
        """Declares a Python object that is passed between host steps."""
    def result(self, value: int) -> None:
        """Appends a result: an output or an object.  By default, the results are the outputs."""

    # steps
    def add_primitive(self, name: str, primitive: Primitive, args: Mapping[int, PrimitiveArg]) -> None:
        """Adds a primitive; args: by oneDNN's argument index, with descriptors for scales and zero points only."""
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
        then: Sequence[tuple[int, Sequence[int], int, int]] = (),
    ) -> None:
        """Adds a loop `void f(void* const* buffers, const int64_t* args, int64_t begin, int64_t end, void* scratch)`.

        [0, work) is divided among threads in ranges of at least `grain`; owner: kept alive; scratch_bytes: per thread; deferred:
        description of a compiled loop with the same results; then: address, args, work and grain of loops that run after it.
        """
    def deferred_loops(self) -> list[tuple[int, Any]]:
        """Returns the indices and descriptions of the interpreted loops."""
    def replace_loop(self, step: int, address: int, args: Sequence[int], work: int, grain: int, scratch: int) -> bool:
        """Replaces the loops of a step by one, whose code must never be freed; safe during runs.

        Returns False and changes nothing if the new loop needs more scratch memory.
        """
    def vary(self, places: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Declares numbers that `assign` sets.

        Each has a kind, an index, the number of a loop in the step, a position, and the index of its value: extents of inputs (0)
        and outputs (1), position: the axis; arguments (2), work (3), grain (4) of loops, and byte offsets of their buffers (5).
        """
    def assign(self, numbers: Sequence[int]) -> None:
        """Sets the declared numbers for the next runs; must not be called during a run."""
    def add_host(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Sequence[HostOperand],
        outputs: Sequence[HostOperand],
        into: bool = False,
    ) -> None:
        """Adds a Python function, which is called with the GIL.

        into: if False, function(inputs) returns a sequence of results, which are copied; if True, function(inputs, outputs)
        writes to the outputs' arrays.  Arrays in the run's memory are invalid after the run: copy those kept as objects.
        """
    def begin_branch(self, name: str, condition: Place) -> None:
        """Begins the steps for a nonzero byte at `condition`; those after `begin_other` run for 0."""
    def begin_other(self, name: str) -> None: ...
    def end_branch(self, name: str) -> None:
        """Ends a branch.  Branches may be nested."""
    def begin_loop(
        self, name: str, counter: Place, bound: Place | None, going: Place | None, sure: bool, most: int
    ) -> None:
        """Begins a loop over the steps up to `end_loop`.

        counter: int64, must be 0 before the loop, incremented after each iteration; bound: int64, maximum number of iterations;
        going: byte that is nonzero while the loop continues; sure: no iteration changes it.  More than `most` iterations raise an
        error, before the first one if `sure`.
        """
    def end_loop(self, name: str) -> None: ...
    def finish(self, touch: bool = True) -> None:
        """Completes the program.  touch: commits the pages of the first arena."""

    # running
    def run(self, inputs: Sequence[int], outputs: Sequence[int], arena: int = 0) -> None:
        """Runs on addresses; arena: address of the caller's arena, 0 for one of the pool."""
    def run_arrays(self, inputs: list[Any]) -> list[Any]:
        """Runs on arrays; returns new arrays that own their memory, which is recycled when they are freed."""
    def time(self, inputs: list[Any], runs: int = 20, warmup: int = 3) -> list[float]:
        """Returns the median nanoseconds of each step."""
    def prepare_single(self) -> None:
        """Creates single-threaded variants of all primitives, which otherwise happens when runs first overlap."""
    @property
    def name(self) -> str: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def frames(self) -> int:
        """Number of idle frames."""
    @property
    def step_names(self) -> list[str]: ...
    @property
    def step_kinds(self) -> list[str]: ...

# memory

def empty(dims: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """Returns an uninitialized, 64-byte aligned array in recycled memory."""

def gathered_bytes() -> int:
    """Returns the bytes of weights and arenas that were moved to huge pages, by a background thread after 16 runs of programs."""

def set_recycling_limit(nbytes: int) -> None:
    """Sets the maximum bytes of freed memory kept for reuse (default 256 MiB)."""

def recycled_bytes() -> int: ...
def arena_pool_bytes() -> int:
    """Returns the bytes of idle arenas, which all programs share."""

# threads

def available_threads() -> int:
    """Returns the number of threads that affinity, the control group and MGX_CPU_THREADS allow."""

def thread_count() -> int: ...
def set_threads(count: int) -> None:
    """Sets the number of threads for subsequent primitives and runs: a single run uses all, concurrent runs one each."""

def team_counts() -> tuple[int, int, int]:
    """Returns how often waiting for a preempted thread cost more than the team saved, the steps run alone because of it, and how
    often an idle thread began to spin for the next step."""

class CodeImage:
    """Machine code of relocatable objects, loaded and relocated without a linker.  Errors: DeviceError."""

    def __init__(self, objects: Sequence[bytes]) -> None: ...
    def address(self, symbol: str) -> int: ...
    @property
    def nbytes(self) -> int: ...

def build_id() -> bytes:
    """Returns the linker's build id of the module; empty if there is none."""

def own_offset(address: int) -> int | None:
    """Returns the offset of a function within this module; None for other addresses."""

def own_address(offset: int) -> int:
    """Returns the address of a function of this build, given its `own_offset`."""

def prepare(primitives: Sequence[Primitive]) -> None:
    """Creates deferred primitives, generating their code in parallel."""

def loop_failed_address() -> int:
    """Returns the address of `void mgx_loop_failed(int64_t code, int64_t value)`, which compiled loops call to fail a run.

    Codes: 1 index out of bounds, 2 division by zero, 3 another value out of range (all ShapeError), 4 a region that is not finite
    (ParameterError), others DeviceError.
    """

def native_loops() -> dict[str, int]:
    """Returns the addresses of the native loops by name, e.g. "topk_float32"; src/*_loops.cpp document their arguments."""

def native_loop(name: str) -> int:
    """Returns the address of a native loop.  Errors: UnsupportedError if there is none of this name."""

# the machine

def cpu_features() -> list[str]: ...
def onednn_sums_bytes() -> bool:
    """Returns True if oneDNN accumulates byte products in int32 rather than in pairs in int16."""

def onednn_sums_bytes_by_avx2() -> bool:
    """Returns True if it does so with AVX2-VNNI kernels."""

def multiplies_tiles() -> bool:
    """Returns True if AMX tiles may be used for bytes: the processor has them and oneDNN is not restricted to other ISAs."""

def cpu_key() -> str:
    """Returns the processor's vendor, family, model and features as text."""

def cpu_model() -> str: ...
def cache_sizes() -> dict[str, int]:
    """Returns the bytes of l1d, l2, l3 and of a cache line."""

def peak_gflops(dtype: Literal["float32", "bfloat16", "int8"], threads: int) -> float:
    """Measures arithmetic operations per nanosecond (a multiply-add is two); 0 if the processor lacks the instructions."""

def read_gbps(nbytes: int, threads: int) -> float:
    """Measures the bytes per nanosecond read from a buffer."""

def dnnl_version() -> tuple[int, int, int]: ...
