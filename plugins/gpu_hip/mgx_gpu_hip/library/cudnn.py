"""cuDNN's backend API: descriptors, engines and plans of operation graphs.

Without a GPU a description of one (`device`, what `Cudnn.describe_device` gives) is enough to search plans and to build those
whose kernels come with the library; engines that compile kernels need the driver, and launching needs the device.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mgx_core import dtype
from mgx_core.errors import DeviceError, No, ParameterError
from mgx_core.types.dtype import DType

from .cudnn_graph import Convolve, Graph, MatMul, Node, Pointwise, Reduce, Tensor
from .cudnn_tables import (
    CROSS_CORRELATION,
    CUDNN,
    DATA_TYPES,
    POINTWISE,
    REDUCTION,
    SIGNATURES,
    STATUSES,
    Attr,
    Behavior,
    Heuristic,
    Kind,
    Note,
    Type,
)
from .loading import Api, find, out

__all__ = ["Cudnn", "CudnnPlan", "Descriptor"]

CTYPES: Final[Mapping[int, Any]] = {
    Type.BOOLEAN: ctypes.c_bool,
    Type.INT64: ctypes.c_int64,
    Type.FLOAT: ctypes.c_float,
    Type.DOUBLE: ctypes.c_double,
    Type.INT32: ctypes.c_int32,
    Type.CHAR: ctypes.c_char,
    Type.HANDLE: ctypes.c_void_p,
    Type.VOID_PTR: ctypes.c_void_p,
    Type.DESCRIPTOR: ctypes.c_void_p,
}
NUMBERS: Final[Mapping[DType, Any]] = {
    dtype.float32: ctypes.c_float, dtype.float64: ctypes.c_double, dtype.int32: ctypes.c_int32, dtype.int64: ctypes.c_int64
}  # fmt: skip

# float32 stays float32: no engine that rounds its operands to TF32 or half, and none whose transform loses digits
EXACT: Final = frozenset({
    Note.TENSOR_CORE, Note.DOWN_CONVERT_INPUTS, Note.REDUCED_PRECISION_REDUCTION, Note.WINOGRAD_6X6, Note.WINOGRAD_13X13
})  # fmt: skip
NARROW: Final = frozenset(
    {Note.DOWN_CONVERT_INPUTS, Note.REDUCED_PRECISION_REDUCTION, Note.WINOGRAD_6X6, Note.WINOGRAD_13X13}
)


class Descriptor:
    """One descriptor of the backend, destroyed with the object; `children` are kept alive."""

    def __init__(self, cudnn: Cudnn, kind: Kind) -> None:
        self.cudnn = cudnn
        self.kind = kind
        self.children: list[Any] = []
        self.handle, pointer = out()
        cudnn.api.call("cudnnBackendCreateDescriptor", int(kind), pointer)

    def set(self, attribute: Attr, kind: Type, *values: Any) -> Descriptor:
        """Errors: DeviceError that names the attribute."""
        status = self.try_set(attribute, kind, *values)
        if status:
            raise self.cudnn.error(f"cudnnBackendSetAttribute({self.kind.name}, {attribute.name})", status)
        return self

    def try_set(self, attribute: Attr, kind: Type, *values: Any) -> int:
        if kind is Type.DESCRIPTOR:
            self.children += values
            values = tuple(v.handle.value for v in values)
        array = (CTYPES.get(kind, ctypes.c_int) * len(values))(*values)
        return self.cudnn.api.status(
            "cudnnBackendSetAttribute", self.handle, int(attribute), int(kind), len(values), array
        )

    def set_bytes(self, attribute: Attr, text: bytes) -> Descriptor:
        status = self.cudnn.api.status(
            "cudnnBackendSetAttribute", self.handle, int(attribute), int(Type.CHAR), len(text), text
        )
        if status:
            raise self.cudnn.error(f"cudnnBackendSetAttribute({self.kind.name}, {attribute.name})", status)
        return self

    def finalize(self) -> Descriptor:
        status = self.try_finalize()
        if status:
            raise self.cudnn.error(f"cudnnBackendFinalize({self.kind.name})", status)
        return self

    def try_finalize(self) -> int:
        return self.cudnn.api.status("cudnnBackendFinalize", self.handle)

    def get(self, attribute: Attr, kind: Type, count: int = 1) -> list[Any]:
        """At most `count` values.  Errors: DeviceError."""
        array = (CTYPES.get(kind, ctypes.c_int) * max(count, 1))()
        return list(array[: self._get(attribute, kind, count, array)])

    def get_bytes(self, attribute: Attr) -> bytes:
        size = self._get(attribute, Type.CHAR, 0, None)
        text = ctypes.create_string_buffer(max(size, 1))
        found = self._get(attribute, Type.CHAR, size, text)
        return text.raw[:found].rstrip(b"\0")

    def get_descriptors(self, attribute: Attr, kind: Kind, count: int) -> list[Descriptor]:
        """Descriptors of a kind, filled from the attribute."""
        made = [Descriptor(self.cudnn, kind) for _ in range(count)]
        array = (ctypes.c_void_p * count)(*[d.handle.value for d in made])
        found = self._get(attribute, Type.DESCRIPTOR, count, array)
        for d in made[:found]:
            d.children.append(self)
        return made[:found]

    def count(self, attribute: Attr, kind: Type) -> int:
        return self._get(attribute, kind, 0, None)

    def _get(self, attribute: Attr, kind: Type, count: int, array: Any) -> int:
        found, pointer = out(ctypes.c_int64)
        status = self.cudnn.api.status(
            "cudnnBackendGetAttribute", self.handle, int(attribute), int(kind), count, pointer, array
        )
        if status:
            raise self.cudnn.error(f"cudnnBackendGetAttribute({self.kind.name}, {attribute.name})", status)
        return int(found.value)

    def __del__(self) -> None:
        try:
            if self.handle:
                self.cudnn.api.status("cudnnBackendDestroyDescriptor", self.handle)
                self.handle.value = None
        except (DeviceError, TypeError, AttributeError):  # at exit the library may be gone first
            pass


class Cudnn:
    """The library with a handle on the current device, or with the description of a device that is not there.

    Errors: DeviceError if the library is not found, or gives no handle and no description was given.
    """

    def __init__(
        self, library: Any = None, device: Mapping[str, Any] | None = None, workspace: int = 256 << 20
    ) -> None:
        found = find(CUDNN) if library is None else library
        self.library = found
        self.api = Api(found, SIGNATURES, self._describe)
        self.max_workspace = workspace
        self.lock = threading.Lock()
        self.device: Descriptor | None = None
        self.handle: Any = None
        self.stream: int | None = None
        version = found.cudnnGetVersion
        if isinstance(found, ctypes.CDLL):
            version.restype = ctypes.c_size_t
            found.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(version())
        if device is None:
            self.handle, pointer = out()
            self.api.call("cudnnCreate", pointer)
        else:
            self.device = Descriptor(self, Kind.DEVICE_PROPERTIES)
            self.device.set_bytes(Attr.DEVICE_JSON, json.dumps(dict(device)).encode()).finalize()

    def describe_device(self) -> dict[str, Any]:
        """The device that the handle is on, as JSON-able facts that serve another process to compile for it."""
        properties = Descriptor(self, Kind.DEVICE_PROPERTIES)
        properties.set(Attr.DEVICE_HANDLE, Type.HANDLE, self.handle.value).finalize()
        facts: dict[str, Any] = json.loads(properties.get_bytes(Attr.DEVICE_JSON))
        return facts

    def close(self) -> None:
        """Give the handle back; plans made with it must not be launched afterwards."""
        if self.handle:
            self.api.call("cudnnDestroy", self.handle)
            self.handle = None

    def _describe(self, status: int) -> str:
        function = getattr(self.library, "cudnnGetErrorString", None)
        text = function(status) if function is not None else None
        return text.decode() if isinstance(text, bytes) else STATUSES.get(status, "unknown status")

    def error(self, call: str, status: int) -> DeviceError:
        return DeviceError(f"{call}: {self._describe(status)} ({status}){self.last_words()}")

    def last_words(self) -> str:
        """The library's own text on its last failure, if it has one."""
        function = getattr(self.library, "cudnnGetLastErrorString", None)
        if function is None:
            return ""
        buffer = ctypes.create_string_buffer(1024)
        function(buffer, ctypes.c_size_t(len(buffer)))
        text = buffer.value.decode(errors="replace").strip()
        return f": {text.splitlines()[0]}" if text else ""

    # -- graphs

    def operation_graph(self, graph: Graph) -> Descriptor:
        """The finalized descriptor of a graph.  Errors: DeviceError."""
        made: dict[int, Descriptor] = {t.id: self._tensor(t) for t in graph.tensors}
        operations = [self._operation(node, made) for node in graph.nodes]
        descriptor = Descriptor(self, Kind.OPERATION_GRAPH)
        if self.handle is not None:
            descriptor.set(Attr.GRAPH_HANDLE, Type.HANDLE, self.handle.value)
        return descriptor.set(Attr.GRAPH_OPS, Type.DESCRIPTOR, *operations).finalize()

    def _tensor(self, t: Tensor) -> Descriptor:
        d = Descriptor(self, Kind.TENSOR)
        d.set(Attr.TENSOR_ID, Type.INT64, t.id)
        d.set(Attr.TENSOR_DATA_TYPE, Type.DATA_TYPE, DATA_TYPES[t.dtype.name])
        d.set(Attr.TENSOR_DIMENSIONS, Type.INT64, *t.dims)
        d.set(Attr.TENSOR_STRIDES, Type.INT64, *t.strides)
        d.set(Attr.TENSOR_ALIGNMENT, Type.INT64, t.align)
        if t.virtual:
            d.set(Attr.TENSOR_IS_VIRTUAL, Type.BOOLEAN, True)
        if t.value is not None:
            d.set(Attr.TENSOR_IS_BY_VALUE, Type.BOOLEAN, True)
        return d.finalize()

    def _operation(self, node: Node, made: Mapping[int, Descriptor]) -> Descriptor:
        def reads(d: Descriptor, attribute: Attr, t: Tensor | None) -> None:
            if t is not None:
                d.set(attribute, Type.DESCRIPTOR, made[t.id])

        compute = DATA_TYPES[node.compute.name]
        if isinstance(node, Convolve):
            rank = len(node.stride)
            what = Descriptor(self, Kind.CONVOLUTION)
            what.set(Attr.CONVOLUTION_SPATIAL_DIMS, Type.INT64, rank)
            what.set(Attr.CONVOLUTION_COMP_TYPE, Type.DATA_TYPE, compute)
            what.set(Attr.CONVOLUTION_CONV_MODE, Type.CONVOLUTION_MODE, CROSS_CORRELATION)
            what.set(Attr.CONVOLUTION_PRE_PADDINGS, Type.INT64, *node.pads)
            what.set(Attr.CONVOLUTION_POST_PADDINGS, Type.INT64, *node.pads)
            what.set(Attr.CONVOLUTION_DILATIONS, Type.INT64, *node.dilation)
            what.set(Attr.CONVOLUTION_FILTER_STRIDES, Type.INT64, *node.stride)
            d = Descriptor(self, Kind.OPERATION_CONVOLUTION_FORWARD)
            d.set(Attr.CONVOLUTION_FORWARD_DESC, Type.DESCRIPTOR, what.finalize())
            reads(d, Attr.CONVOLUTION_FORWARD_X, node.x)
            reads(d, Attr.CONVOLUTION_FORWARD_W, node.w)
            reads(d, Attr.CONVOLUTION_FORWARD_Y, node.y)
            scalar = Type.DOUBLE if node.compute is dtype.float64 else Type.FLOAT
            d.set(Attr.CONVOLUTION_FORWARD_ALPHA, scalar, 1.0)
            d.set(Attr.CONVOLUTION_FORWARD_BETA, scalar, 0.0)
        elif isinstance(node, Pointwise):
            what = Descriptor(self, Kind.POINTWISE)
            what.set(Attr.POINTWISE_MODE, Type.POINTWISE_MODE, POINTWISE[node.mode])
            what.set(Attr.POINTWISE_MATH_PREC, Type.DATA_TYPE, compute)
            if node.axis is not None:
                what.set(Attr.POINTWISE_AXIS, Type.INT64, node.axis)
            if node.activation is not None:
                a = node.activation
                if a.kind == "relu":
                    what.set(Attr.POINTWISE_RELU_LOWER_CLIP, Type.DOUBLE, a.low)
                    if a.high is not None:
                        what.set(Attr.POINTWISE_RELU_UPPER_CLIP, Type.DOUBLE, a.high)
                    if a.slope:
                        what.set(Attr.POINTWISE_RELU_LOWER_CLIP_SLOPE, Type.DOUBLE, a.slope)
                elif a.kind in ALPHA:
                    what.set(ALPHA[a.kind], Type.DOUBLE, a.alpha)
            d = Descriptor(self, Kind.OPERATION_POINTWISE)
            d.set(Attr.OPERATION_POINTWISE_DESC, Type.DESCRIPTOR, what.finalize())
            reads(d, Attr.OPERATION_POINTWISE_X, node.x)
            reads(d, Attr.OPERATION_POINTWISE_B, node.b)
            reads(d, Attr.OPERATION_POINTWISE_T, node.t)
            reads(d, Attr.OPERATION_POINTWISE_Y, node.y)
        elif isinstance(node, MatMul):
            what = Descriptor(self, Kind.MATMUL).set(Attr.MATMUL_COMP_TYPE, Type.DATA_TYPE, compute)
            d = Descriptor(self, Kind.OPERATION_MATMUL)
            reads(d, Attr.OPERATION_MATMUL_A, node.a)
            reads(d, Attr.OPERATION_MATMUL_B, node.b)
            reads(d, Attr.OPERATION_MATMUL_C, node.c)
            d.set(Attr.OPERATION_MATMUL_DESC, Type.DESCRIPTOR, what.finalize())
        else:
            assert isinstance(node, Reduce)
            what = Descriptor(self, Kind.REDUCTION)
            what.set(Attr.REDUCTION_COMP_TYPE, Type.DATA_TYPE, compute)
            what.set(Attr.REDUCTION_OPERATOR, Type.REDUCTION_OPERATOR, REDUCTION[node.mode])
            d = Descriptor(self, Kind.OPERATION_REDUCTION)
            reads(d, Attr.OPERATION_REDUCTION_X, node.x)
            reads(d, Attr.OPERATION_REDUCTION_Y, node.y)
            d.set(Attr.OPERATION_REDUCTION_DESC, Type.DESCRIPTOR, what.finalize())
        return d.finalize()

    # -- engines and plans

    def configurations(
        self,
        operations: Descriptor,
        banned: frozenset[Note],
        modes: Sequence[Heuristic] = (Heuristic.A, Heuristic.FALLBACK),
    ) -> Iterator[tuple[Descriptor, list[int], list[int]]]:
        """Engine configurations without banned notes, the best guess first, with their numerical and behavior notes."""
        for mode in modes:
            heuristic = Descriptor(self, Kind.ENGINE_HEURISTIC)
            heuristic.set(Attr.HEUR_OPERATION_GRAPH, Type.DESCRIPTOR, operations)
            heuristic.set(Attr.HEUR_MODE, Type.HEUR_MODE, int(mode))
            if self.device is not None:
                heuristic.set(Attr.HEUR_DEVICE_PROPERTIES, Type.DESCRIPTOR, self.device)
            if heuristic.try_finalize():
                continue
            count = heuristic.count(Attr.HEUR_RESULTS, Type.DESCRIPTOR)
            for config in heuristic.get_descriptors(Attr.HEUR_RESULTS, Kind.ENGINE_CONFIG, count):
                (engine,) = config.get_descriptors(Attr.CONFIG_ENGINE, Kind.ENGINE, 1)
                numerical = engine.get(Attr.ENGINE_NUMERICAL_NOTE, Type.NUMERICAL_NOTE, 16)
                behavior = engine.get(Attr.ENGINE_BEHAVIOR_NOTE, Type.BEHAVIOR_NOTE, 16)
                if not banned.intersection(numerical):
                    yield config, numerical, behavior

    def plan(
        self, name: str, graph: Graph, banned: frozenset[Note], choice: Mapping[str, Any] | None = None
    ) -> CudnnPlan | No:
        """The saved plan if it is of this version of the library, else the first that the heuristics find."""
        if choice is not None and choice.get("version") == self.version:
            restored = self.restore(name, graph, str(choice["plan"]))
            if not isinstance(restored, No):
                return restored
        for plan in self.search(name, graph, banned):
            if not isinstance(plan, No):
                return plan
            last = plan
        return last

    def plans(
        self, name: str, graph: Graph, banned: frozenset[Note], count: int = 8, compiled: bool = True
    ) -> list[CudnnPlan] | No:
        """At most `count` plans, the best guess first, from every heuristic; for timing.

        compiled: also engines that compile kernels for the graph, a fraction of a second each.
        """
        found: list[CudnnPlan] = []
        last = No(f"{name}: no engine")
        for plan in self.search(name, graph, banned, (Heuristic.A, Heuristic.B, Heuristic.FALLBACK), compiled):
            if isinstance(plan, No):
                last = plan
            elif all(plan.saved != other.saved for other in found):
                found.append(plan)
                if len(found) == count:
                    break
        return found or last

    def search(
        self, name: str, graph: Graph, banned: frozenset[Note],
        modes: Sequence[Heuristic] = (Heuristic.A, Heuristic.FALLBACK), compiled: bool = True,
    ) -> Iterator[CudnnPlan | No]:  # fmt: skip
        """Plans as they are found, with a refusal for each engine that fails and one at the end."""
        try:
            operations = self.operation_graph(graph)
        except DeviceError as error:
            yield No(f"{name}: {error}")
            return
        for config, _, behavior in self.configurations(operations, banned, modes):
            compiles = Behavior.RUNTIME_COMPILATION in behavior
            if compiles and not compiled:
                continue
            descriptor = Descriptor(self, Kind.PLAN)
            if self.handle is not None:
                descriptor.set(Attr.PLAN_HANDLE, Type.HANDLE, self.handle.value)
            if self.device is not None:
                descriptor.set(Attr.PLAN_DEVICE_PROPERTIES, Type.DESCRIPTOR, self.device)
            descriptor.set(Attr.PLAN_ENGINE_CONFIG, Type.DESCRIPTOR, config)
            status = descriptor.try_finalize()
            if status:
                yield No(f"{name}: cudnnBackendFinalize(PLAN): {self._describe(status)} ({status}){self.last_words()}")
                continue
            plan = CudnnPlan(self, name, graph, descriptor, compiles)
            if plan.workspace > self.max_workspace:
                yield No(
                    f"{name}: an engine needs a workspace of {plan.workspace} bytes, allowed are {self.max_workspace}"
                )
                continue
            yield plan
        yield No(f"{name}: no (further) engine of cuDNN {self.version} serves this graph{self.last_words()}")

    def restore(self, name: str, graph: Graph, saved: str) -> CudnnPlan | No:
        """The plan that `saved` describes; `graph` must be the one it was made from."""
        descriptor = Descriptor(self, Kind.PLAN)
        if self.handle is not None:
            descriptor.set(Attr.PLAN_HANDLE, Type.HANDLE, self.handle.value)
        if self.device is not None:
            descriptor.set(Attr.PLAN_DEVICE_PROPERTIES, Type.DESCRIPTOR, self.device)
        descriptor.set_bytes(Attr.PLAN_JSON, saved.encode())
        status = descriptor.try_finalize()
        if status:
            return No(f"{name}: the saved plan is not taken: {self._describe(status)} ({status}){self.last_words()}")
        return CudnnPlan(self, name, graph, descriptor, False)


ALPHA: Final = {
    "elu": Attr.POINTWISE_ELU_ALPHA, "softplus": Attr.POINTWISE_SOFTPLUS_BETA, "swish": Attr.POINTWISE_SWISH_BETA
}  # fmt: skip


class CudnnPlan:
    """A compiled graph.

    workspace: bytes it needs at launch; compiled: whether the engine compiled kernels for it; choice: JSON-able, brings the
    plan back without search.
    """

    def __init__(self, cudnn: Cudnn, name: str, graph: Graph, descriptor: Descriptor, compiled: bool) -> None:
        self.cudnn = cudnn
        self.name = name
        self.names = dict(graph.names)
        self.descriptor = descriptor
        self.compiled = compiled
        self.workspace = int(descriptor.get(Attr.PLAN_WORKSPACE_SIZE, Type.INT64)[0])
        self._values = [(t.id, NUMBERS[t.dtype](t.value)) for t in graph.values]
        self._packs: dict[tuple[Any, ...], Descriptor] = {}

    @property
    def saved(self) -> str:
        return self.descriptor.get_bytes(Attr.PLAN_JSON).decode()

    @property
    def choice(self) -> dict[str, Any]:
        return {"library": "cudnn", "version": self.cudnn.version, "plan": self.saved}

    def launch(self, stream: int, *, workspace: int | None = None, **addresses: int) -> None:
        """Enqueue on a stream with the device address of each named operand.  May be captured in a graph.

        Errors: ParameterError for missing or unknown names; DeviceError from the library.
        """
        cudnn = self.cudnn
        if workspace is None and self.workspace:
            raise ParameterError(f"{self.name} needs a workspace of {self.workspace} bytes")
        key = (workspace, *sorted(addresses.items()))
        with cudnn.lock:
            pack = self._packs.get(key)
            if pack is None:
                pack = self._pack(addresses, workspace)
                if len(self._packs) >= 4:
                    self._packs.clear()
                self._packs[key] = pack
            if stream != cudnn.stream:
                cudnn.api.call("cudnnSetStream", cudnn.handle, stream)
                cudnn.stream = stream
            status = cudnn.api.functions["cudnnBackendExecute"](cudnn.handle, self.descriptor.handle, pack.handle)
        if status:
            raise cudnn.error(f"cudnnBackendExecute ({self.name})", status)

    def _pack(self, addresses: Mapping[str, int], workspace: int | None) -> Descriptor:
        if addresses.keys() != self.names.keys():
            raise ParameterError(
                f"{self.name} takes the addresses {', '.join(self.names)}, got {', '.join(addresses) or 'none'}"
            )
        ids = [self.names[name] for name in addresses] + [id for id, _ in self._values]
        pointers = [*addresses.values(), *(ctypes.addressof(value) for _, value in self._values)]
        pack = Descriptor(self.cudnn, Kind.VARIANT_PACK)
        pack.set(Attr.PACK_IDS, Type.INT64, *ids)
        pack.set(Attr.PACK_POINTERS, Type.VOID_PTR, *pointers)
        pack.set(Attr.PACK_WORKSPACE, Type.VOID_PTR, workspace or 0)
        return pack.finalize()

    def __repr__(self) -> str:
        return self.name


def notes_for(of: DType, tf32: bool = False) -> frozenset[Note]:
    """The notes that an engine for this element type must not have."""
    return EXACT if of in (dtype.float32, dtype.float64) and not tf32 else NARROW
