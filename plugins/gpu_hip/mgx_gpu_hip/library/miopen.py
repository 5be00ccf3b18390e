"""Convolutions by MIOpen, channels last: immediate mode, and fusion plans for bias and activation.

Written from MIOpen's public declarations and tested against a recording fake; it has never run on AMD hardware.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mgx_core.errors import DeviceError, No, ParameterError

from .blas_constants import ROCM_ROOTS
from .convolution import ConvProblem, channels_last
from .epilogue import Activation, split
from .loading import Api, Source, find, out

__all__ = ["MIOPEN", "MIOpen", "MIOpenPlan"]

MIOPEN: Final = Source(
    ("libMIOpen.so.1", "libMIOpen.so"), "MGX_MIOPEN_LIBRARY", ("_rocm_sdk_libraries*/lib",), ROCM_ROOTS, rocm="MIOpen"
)

SIGNATURES: Final[Mapping[str, str]] = MappingProxyType({
    "miopenCreate": "p",
    "miopenDestroy": "p",
    "miopenSetStream": "pp",
    "miopenCreateTensorDescriptor": "p",
    "miopenSetTensorDescriptor": "piipp",
    "miopenDestroyTensorDescriptor": "p",
    "miopenCreateConvolutionDescriptor": "p",
    "miopenInitConvolutionNdDescriptor": "pipppi",
    "miopenSetConvolutionGroupCount": "pi",
    "miopenDestroyConvolutionDescriptor": "p",
    "miopenConvolutionForwardGetSolutionCount": "pppppp",
    "miopenConvolutionForwardGetSolution": "pppppzpp",
    "miopenConvolutionForwardCompileSolution": "pppppQ",
    "miopenConvolutionForwardImmediate": "ppppppppp" + "zQ",
    "miopenCreateFusionPlan": "pip",
    "miopenDestroyFusionPlan": "p",
    "miopenCreateOpConvForward": "pppp",
    "miopenCreateOpBiasForward": "ppp",
    "miopenCreateOpActivationForward": "ppi",
    "miopenCompileFusionPlan": "pp",
    "miopenCreateOperatorArgs": "p",
    "miopenDestroyOperatorArgs": "p",
    "miopenSetOpArgsConvForward": "ppppp",
    "miopenSetOpArgsBiasForward": "ppppp",
    "miopenSetOpArgsActivForward": "ppppddd",
    "miopenExecuteFusionPlan": "ppppppp",
})  # fmt: skip

DATA_TYPES: Final = {"float16": 0, "float32": 1, "int32": 2, "int8": 3, "bfloat16": 5, "float64": 6}
STATUSES: Final = (
    "success", "not initialized", "invalid value", "bad parameter", "allocation failed", "internal error", "not implemented",
    "unknown error", "unsupported operation", "operations skipped", "version mismatch",
)  # fmt: skip
CONVOLUTION: Final = 0  # cross-correlation
VERTICAL: Final = 0


def activation_mode(a: Activation) -> tuple[int, float, float, float] | None:
    """Returns (mode, alpha, beta, gamma), or None if MIOpen has no such activation."""
    if a.kind == "relu":
        if a.low != 0:
            return None
        if a.slope:
            return (8, a.slope, 0.0, 0.0) if a.high is None else None
        return (3, 0.0, 0.0, 0.0) if a.high is None else (7, a.high, 0.0, 0.0)
    if a.kind == "elu":
        return 9, a.alpha, 0.0, 0.0
    if a.kind == "softplus":
        return (4, 0.0, 0.0, 0.0) if a.alpha == 1 else None
    return {"sigmoid": (1, 0.0, 0.0, 0.0), "tanh": (2, 1.0, 1.0, 0.0)}.get(a.kind)


def ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


class Solution(ctypes.Structure):
    """miopenConvSolution_t."""

    _fields_ = [
        ("time", ctypes.c_float),
        ("workspace", ctypes.c_size_t),
        ("id", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    ]


class MIOpen:
    """The library with a handle for the current device.  Errors: DeviceError if it is not found."""

    def __init__(self, library: Any = None, workspace: int = 256 << 20) -> None:
        found = find(MIOPEN) if library is None else library
        self.api = Api(found, SIGNATURES, lambda s: STATUSES[s] if 0 <= s < len(STATUSES) else "unknown status")
        self.max_workspace = workspace
        self.lock = threading.Lock()
        self.stream: int | None = None
        self.version = _version(found)
        self.handle, pointer = out()
        self.api.call("miopenCreate", pointer)

    def close(self) -> None:
        if self.handle:
            self.api.call("miopenDestroy", self.handle)
            self.handle = None

    def plan(self, p: ConvProblem, choice: Mapping[str, Any] | None = None) -> MIOpenPlan | No:
        """Returns the saved plan, or the solution that MIOpen expects to be fastest."""
        plans = self.plans(p, 1, choice)
        return plans if isinstance(plans, No) else plans[0]

    def plans(self, p: ConvProblem, count: int = 8, choice: Mapping[str, Any] | None = None) -> list[MIOpenPlan] | No:
        """Returns at most `count` plans, best guess first."""
        refusal = self._refusal(p)
        if refusal is not None:
            return refusal
        x = Descriptors(self.api, p)
        try:
            if p.epilogue:
                return [FusedPlan(self, p, x)]
            if choice is not None and choice.get("library") == "miopen":
                return [ImmediatePlan(self, p, x, int(choice["solution"]), int(choice["workspace"]))]
            found = [s for s in x.solutions(self.handle, count) if s.workspace <= self.max_workspace]
            if not found:
                return No(f"MIOpen has no solution for {p} within {self.max_workspace} bytes of workspace")
            return [ImmediatePlan(self, p, x, s.id, s.workspace) for s in found]
        except DeviceError as error:
            return No(f"miopen conv {p}: {error}")

    def _refusal(self, p: ConvProblem) -> No | None:
        if any(before != after or before < 0 for before, after in p.pads):
            return No(f"MIOpen requires equal padding before and after, of at least 0, got {p.pads}")
        if p.dtype.name not in DATA_TYPES or p.out_dtype not in (None, p.dtype) or p.bias_dtype not in (None, p.dtype):
            return No(f"MIOpen requires one element type for all operands, got {p.dtype}")
        parts = split(p.epilogue)
        if p.alpha != 1:
            return No(f"MIOpen does not scale the result, got {p}")
        if parts is None or parts[1]:
            return No(f"MIOpen fuses a bias followed by one activation, got {p}")
        if parts[2] is not None and activation_mode(parts[2]) is None:
            return No(f"MIOpen has no activation {parts[2]}")
        return None


def _version(library: Any) -> str:
    function = getattr(library, "miopenGetVersion", None)
    if function is None:
        return "?"
    parts = [ctypes.c_size_t() for _ in range(3)]
    function(*map(ctypes.byref, parts))
    return ".".join(str(part.value) for part in parts)


class Descriptors:
    """MIOpen's descriptors of a problem's tensors and its convolution."""

    def __init__(self, api: Api, p: ConvProblem) -> None:
        self.api = api
        self.tensors: list[Any] = []
        self.x = self._tensor(p, p.dims, channels_last(p.dims, p.x_pitch))
        w_dims = (p.filters, p.dims[1] // p.groups, *p.kernel)
        self.w = self._tensor(p, w_dims, channels_last(w_dims, 0))
        self.y = self._tensor(p, p.out_dims, channels_last(p.out_dims, p.y_pitch))
        bias = (1, p.filters, *(1 for _ in p.kernel))
        self.bias = self._tensor(p, bias, channels_last(bias, 0))
        self.conv, pointer = out()
        api.call("miopenCreateConvolutionDescriptor", pointer)
        pads = [before for before, _ in p.pads]
        api.call(
            "miopenInitConvolutionNdDescriptor",
            self.conv, len(p.kernel), ints(pads), ints(p.stride), ints(p.dilation), CONVOLUTION,
        )  # fmt: skip
        if p.groups > 1:
            api.call("miopenSetConvolutionGroupCount", self.conv, p.groups)

    def _tensor(self, p: ConvProblem, dims: Sequence[int], strides: Sequence[int]) -> Any:
        made, pointer = out()
        self.api.call("miopenCreateTensorDescriptor", pointer)
        self.tensors.append(made)
        self.api.call("miopenSetTensorDescriptor", made, DATA_TYPES[p.dtype.name], len(dims), ints(dims), ints(strides))
        return made

    def solutions(self, handle: Any, count: int) -> list[Solution]:
        operands = (handle, self.w, self.x, self.conv, self.y)
        most, pointer = out(ctypes.c_size_t)
        self.api.call("miopenConvolutionForwardGetSolutionCount", *operands, pointer)
        wanted = min(count, most.value)
        if not wanted:
            return []
        found = (Solution * wanted)()
        given, pointer = out(ctypes.c_size_t)
        self.api.call("miopenConvolutionForwardGetSolution", *operands, wanted, pointer, found)
        return list(found[: given.value])

    def __del__(self) -> None:
        try:
            for tensor in self.tensors:
                self.api.call("miopenDestroyTensorDescriptor", tensor)
            self.api.call("miopenDestroyConvolutionDescriptor", self.conv)
        except (DeviceError, TypeError, AttributeError):  # at exit the library may have been unloaded first
            pass


class MIOpenPlan:
    """A launchable convolution.  workspace: bytes required; choice: JSON-able, see MIOpen.plan."""

    workspace = 0
    solution = 0

    def __init__(self, miopen: MIOpen, problem: ConvProblem, descriptors: Descriptors) -> None:
        self.miopen = miopen
        self.problem = problem
        self.descriptors = descriptors
        self.name = f"miopen conv {problem}"

    @property
    def choice(self) -> dict[str, Any]:
        return {"library": "miopen", "solution": self.solution, "workspace": self.workspace}

    def launch(
        self, stream: int, *, x: int, w: int, y: int, bias: int | None = None, workspace: int | None = None
    ) -> None:
        """Enqueues on a stream; all operands are device addresses.

        Errors: ParameterError if an address that the problem requires is missing; DeviceError from the library.
        """
        if (bias is None) == ("bias" in self.problem.epilogue):
            raise ParameterError(f"{self.name}: a bias must be given if and only if the epilogue has one")
        if workspace is None and self.workspace:
            raise ParameterError(f"{self.name} requires a workspace of {self.workspace} bytes")
        with self.miopen.lock:
            if stream != self.miopen.stream:
                self.miopen.api.call("miopenSetStream", self.miopen.handle, stream)
                self.miopen.stream = stream
            self._run(x, w, y, bias, workspace)

    def _run(self, x: int, w: int, y: int, bias: int | None, workspace: int | None) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.name


class ImmediatePlan(MIOpenPlan):
    """A convolution without epilogue, by one of MIOpen's solutions."""

    def __init__(
        self, miopen: MIOpen, problem: ConvProblem, descriptors: Descriptors, solution: int, workspace: int
    ) -> None:
        super().__init__(miopen, problem, descriptors)
        self.solution = solution
        self.workspace = workspace
        d = descriptors
        miopen.api.call("miopenConvolutionForwardCompileSolution", miopen.handle, d.w, d.x, d.conv, d.y, solution)

    def _run(self, x: int, w: int, y: int, bias: int | None, workspace: int | None) -> None:
        d = self.descriptors
        self.miopen.api.call(
            "miopenConvolutionForwardImmediate",
            self.miopen.handle, d.w, w, d.x, x, d.conv, d.y, y, workspace, self.workspace, self.solution,
        )  # fmt: skip


class FusedPlan(MIOpenPlan):
    """A convolution with bias or activation, by a fusion plan."""

    def __init__(self, miopen: MIOpen, problem: ConvProblem, descriptors: Descriptors) -> None:
        super().__init__(miopen, problem, descriptors)
        api, d = miopen.api, descriptors
        parts = split(problem.epilogue)
        assert parts is not None
        bias, _, self.activation = parts
        self.plan, pointer = out()
        api.call("miopenCreateFusionPlan", pointer, VERTICAL, d.x)
        self.args, pointer = out()
        api.call("miopenCreateOperatorArgs", pointer)
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self.scalars = (ctypes.pointer(self.one), ctypes.pointer(self.zero))
        self.conv_op, pointer = out()
        api.call("miopenCreateOpConvForward", self.plan, pointer, d.conv, d.w)
        self.bias_op = None
        if bias:
            self.bias_op, pointer = out()
            api.call("miopenCreateOpBiasForward", self.plan, pointer, d.bias)
        if self.activation is not None:
            mode = activation_mode(self.activation)
            assert mode is not None
            op, pointer = out()
            api.call("miopenCreateOpActivationForward", self.plan, pointer, mode[0])
            api.call("miopenSetOpArgsActivForward", self.args, op, *self.scalars, *mode[1:])
        api.call("miopenCompileFusionPlan", miopen.handle, self.plan)

    def _run(self, x: int, w: int, y: int, bias: int | None, workspace: int | None) -> None:
        api, d = self.miopen.api, self.descriptors
        api.call("miopenSetOpArgsConvForward", self.args, self.conv_op, *self.scalars, w)
        if self.bias_op is not None:
            api.call("miopenSetOpArgsBiasForward", self.args, self.bias_op, *self.scalars, bias)
        api.call("miopenExecuteFusionPlan", self.miopen.handle, self.plan, d.x, x, d.y, y, self.args)

    def __del__(self) -> None:
        try:
            self.miopen.api.call("miopenDestroyOperatorArgs", self.args)
            self.miopen.api.call("miopenDestroyFusionPlan", self.plan)
        except (DeviceError, TypeError, AttributeError):  # at exit the library may have been unloaded first
            pass
