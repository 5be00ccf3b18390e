"""Reads a FlatBuffer model into plain records, with every reference checked against the file's size."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

import numpy as np

from mgx_core import ParseError, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.records import dataclass
from mgx_core.sources import mistaken
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.strings import decoded

from .budget import Budget
from .schema import OPERATORS, OPTIONS, OPTIONS_2, root

__all__ = ["Model", "Operator", "Quantization", "Signature", "Subgraph", "Tensor", "read_model"]

DTYPES: Final = {
    0: dt.float32, 1: dt.float16, 2: dt.int32, 3: dt.uint8, 4: dt.int64, 5: dt.string, 6: dt.bool_, 7: dt.int16, 8: dt.complex64,
    9: dt.int8, 10: dt.float64, 11: dt.complex128, 12: dt.uint64, 15: dt.uint32, 16: dt.uint16, 17: dt.int4, 18: dt.bfloat16,
}  # fmt: skip
RESOURCE: Final = (13, 14)
DAMAGED: Final = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError)


@dataclass(frozen=True)
class Quantization:
    """Affine quantization: real = scale * (q - zero point), per tensor or per index of `axis`."""

    scale: Array
    zero_point: Array
    axis: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantization):
            return NotImplemented
        same = np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)
        return same and (self.scale.size == 1 or self.axis == other.axis)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph; dims is -1 for unknown extents, `value` the array of a constant."""

    name: str
    dtype: DType | None
    dims: list[int]
    value: Array | None
    quantization: Quantization | None
    variable: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator: its name, input (-1 if omitted) and output tensors, attributes."""

    name: str
    inputs: list[int]
    outputs: list[int]
    intermediates: list[int]
    options: Any
    custom: bytes
    place: int


@dataclass(frozen=True)
class Subgraph:
    """Tensors and operators in order."""

    name: str
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: list[int]
    outputs: list[int]


@dataclass(frozen=True)
class Signature:
    """An entry point of a model: tensors by input and output names."""

    name: str
    subgraph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass
class Model:
    """A model: its subgraphs and signatures."""

    subgraphs: list[Subgraph]
    signatures: dict[str, Signature] = field(default_factory=dict)


def read_model(data: Any, limit: int) -> Model:
    """Parses a model from bytes (or a memory map); constants are borrowed from them.

    Errors: ParseError if it is not a model, is truncated, or has references outside the file.
    """
    if len(data) < 8 or bytes(data[4:8]) != b"TFL3":
        raise ParseError(f"not a TFLite model{mistaken(data) or ': bytes 4 to 7 are not TFL3'}")
    try:
        return _Reader(data, limit).model()
    except DAMAGED as error:
        raise ParseError(f"damaged TFLite model: {type(error).__name__}: {error}") from None


class _Reader:
    def __init__(self, data: Any, limit: int) -> None:
        self.data = data
        self.limit = limit
        self.budget = Budget(len(data), limit)
        self.table: Any = root(data)

    def model(self) -> Model:
        if self.table.Version() != 3:
            raise UnsupportedError(f"TFLite schema {self.table.Version()} is not supported, this frontend reads 3")
        self.codes = [self._code(c) for c in self._each(self.table, "OperatorCodes")]
        self.buffers = self._each(self.table, "Buffers")
        subgraphs = [self._subgraph(s, k) for k, s in enumerate(self._each(self.table, "Subgraphs"))]
        if not subgraphs:
            raise ParseError("the model has no subgraph")
        model = Model(subgraphs)
        for s in self._each(self.table, "SignatureDefs"):
            key = self._name(s.SignatureKey())
            index = s.SubgraphIndex()
            if not 0 <= index < len(subgraphs):
                raise ParseError(f"signature {key!r} refers to subgraph {index} of {len(subgraphs)}")
            inputs, outputs = (self._map(s, side, len(subgraphs[index].tensors)) for side in ("Inputs", "Outputs"))
            model.signatures[key] = Signature(key, index, inputs, outputs)
        return model

    def _each(self, table: Any, name: str) -> list[Any]:
        """Returns the tables of a vector.  Errors: ParseError if the total exceeds what the file can hold."""
        count = getattr(table, name + "Length")()
        self.budget.records(count, name)
        at: Callable[[int], Any] = getattr(table, name)
        return [at(k) for k in range(count)]

    def _numbers(self, table: Any, name: str) -> list[int]:
        found = getattr(table, name + "AsNumpy")()  # as stored in the file
        self.budget.read(4 * len(found))
        numbers: list[int] = found.tolist()
        return numbers

    def _name(self, held: bytes | None, errors: str = "strict") -> str:
        self.budget.read(len(held or b""))
        return (held or b"").decode("utf-8", errors)

    def _map(self, signature: Any, side: str, count: int) -> dict[str, int]:
        found = {}
        for entry in self._each(signature, side):
            index = entry.TensorIndex()
            if not 0 <= index < count:
                raise ParseError(f"a signature refers to tensor {index} of {count}")
            found[self._name(entry.Name())] = int(index)
        return dict(sorted(found.items()))

    def _code(self, code: Any) -> str:
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number == 32:
            return "CUSTOM:" + self._name(code.CustomCode())
        return OPERATORS[number] if 0 <= number < len(OPERATORS) else f"operator {number}"

    def _subgraph(self, table: Any, place: int) -> Subgraph:
        tensors = [self._tensor(t, k) for k, t in enumerate(self._each(table, "Tensors"))]
        inputs, outputs = self._numbers(table, "Inputs"), self._numbers(table, "Outputs")
        operators = [self._operator(o, k) for k, o in enumerate(self._each(table, "Operators"))]
        used = [*inputs, *outputs, *(i for o in operators for i in (*o.outputs, *(x for x in o.inputs if x != -1)))]
        for index in used:
            if not 0 <= index < len(tensors):
                raise ParseError(f"subgraph {place} refers to tensor {index} of {len(tensors)}")
        name = self._name(table.Name(), "replace") or f"subgraph_{place}"
        return Subgraph(name, tensors, operators, inputs, outputs)

    def _operator(self, table: Any, place: int) -> Operator:
        code = table.OpcodeIndex()
        if not 0 <= code < len(self.codes):
            raise ParseError(f"operator {place} has code {code} of {len(self.codes)}")
        options = self._options(table, "BuiltinOptions", OPTIONS) or self._options(table, "BuiltinOptions2", OPTIONS_2)
        self.budget.read(table.CustomOptionsLength())
        custom = bytes(table.CustomOptionsAsNumpy()) if table.CustomOptionsLength() else b""
        read, made, between = (self._numbers(table, w) for w in ("Inputs", "Outputs", "Intermediates"))
        return Operator(self.codes[code], read, made, between, options, custom, place)

    def _options(self, table: Any, name: str, kinds: tuple[str, ...]) -> Any:
        """Returns the attributes of an operator; None if it has none, or has those of a newer schema."""
        kind = getattr(table, name + "Type")()
        return table.union(name, kinds[kind]) if 0 < kind < len(kinds) else None

    def _tensor(self, table: Any, place: int) -> Tensor:
        name = self._name(table.Name(), "replace") or f"tensor_{place}"
        try:
            return self._checked_tensor(table, name)
        except ParseError as error:
            raise error.located(f"tensor {name!r}") from None

    def _checked_tensor(self, table: Any, name: str) -> Tensor:
        code = table.Type()
        dtype = DTYPES.get(code)
        if dtype is None and code not in RESOURCE:
            raise ParseError(f"{code} is not a TFLite element type")
        dims = self._numbers(table, "Shape")
        given = self._numbers(table, "ShapeSignature")
        if given and len(given) == len(dims):
            dims = given
        if any(d < -1 for d in dims):
            raise ParseError(f"extents must be at least -1, got {dims}")
        value = None
        if dtype is not None:
            value = self._value(table, dtype, dims)
        return Tensor(name, dtype, dims, value, self._quantization(table, dims), bool(table.IsVariable()))

    def _value(self, table: Any, dtype: DType, dims: list[int]) -> Array | None:
        index = table.Buffer()
        if not 0 <= index < len(self.buffers):
            raise ParseError(f"buffer {index} of {len(self.buffers)}")
        buffer = self.buffers[index]
        if buffer.DataLength():
            raw = np.asarray(buffer.DataAsNumpy())
        elif buffer.Size() and buffer.Offset() > 1:
            start, size = buffer.Offset(), buffer.Size()
            if start + size > len(self.data):
                raise ParseError(f"a buffer of {size} bytes at {start} is outside a file of {len(self.data)}")
            raw = np.frombuffer(self.data, np.uint8, size, start)
        else:
            empty = index and 0 in dims and min(dims) == 0 and dtype.kind != "s"
            return np.zeros(dims, dtype.numpy) if empty else None
        if any(d < 0 for d in dims):
            raise ParseError(f"a constant must have known extents, got {dims}")
        count = math.prod(dims)
        if count * max(dtype.bits, 8) // 8 > self.limit:
            raise ParseError(f"{dims} of {dtype} takes more than the {self.limit} bytes that option limit_bytes allows")
        if dtype.kind == "s":
            self.budget.expand(raw.size + 64 * count, f"{dims} strings")
            return _strings(raw.tobytes(), count).reshape(dims)
        if table.Sparsity() is not None:
            from .sparse import dense

            self.budget.expand(count * np.dtype(dtype.numpy).itemsize, f"{dims} of {dtype}")
            return dense(raw, dtype, dims, table.Sparsity(), self.limit)
        if dtype.bits == 4:
            self.budget.expand(count, f"{dims} of {dtype}")
            if raw.size != (count + 1) // 2:
                raise ParseError(f"{(count + 1) // 2} bytes are required for {dims} of {dtype}, got {raw.size}")
            codes = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count].astype(np.int8)
            return np.where(codes > 7, codes - 16, codes).astype(np.int8).reshape(dims)
        wanted = count * np.dtype(dtype.numpy).itemsize
        if raw.size != wanted:
            raise ParseError(f"{wanted} bytes are required for {dims} of {dtype}, got {raw.size}")
        return raw.view(dtype.numpy).reshape(dims)

    def _quantization(self, table: Any, dims: list[int]) -> Quantization | None:
        given = table.Quantization()
        if given is None or not given.ScaleLength():
            return None
        self.budget.read((given.ScaleLength() + given.ZeroPointLength()) * 4)
        scale = np.array(given.ScaleAsNumpy(), np.float32)
        zero = np.array(given.ZeroPointAsNumpy(), np.int64) if given.ZeroPointLength() else np.zeros(1, np.int64)
        axis = int(given.QuantizedDimension())
        if zero.size == 1 and scale.size > 1:
            zero = np.repeat(zero, scale.size)
        if zero.size != scale.size:
            raise ParseError(f"{scale.size} scales and {zero.size} zero points")
        if scale.size > 1 and (not 0 <= axis < len(dims) or dims[axis] != scale.size):
            raise ParseError(f"{scale.size} scales do not fit axis {axis} of {dims}")
        if not np.isfinite(scale).all() or (scale <= 0).any():
            if (scale == 0).all():
                return None
            raise ParseError("scales must be positive and finite")
        return Quantization(scale, zero, axis)


def _strings(raw: bytes, count: int) -> Array:
    """Returns the strings of a buffer, stored as count, offsets and bytes."""
    (number,) = struct.unpack_from("<i", raw, 0)
    if number != count or (number + 2) * 4 > len(raw):
        raise ParseError(f"{count} strings are required, got {number}")
    offsets = struct.unpack_from(f"<{number + 1}i", raw, 4)
    out = np.empty(count, object)
    for k in range(count):
        if not 0 <= offsets[k] <= offsets[k + 1] <= len(raw):
            raise ParseError("a string is outside its buffer")
        out[k] = decoded(raw[offsets[k] : offsets[k + 1]])
    return out
