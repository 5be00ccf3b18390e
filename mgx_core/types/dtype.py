"""Element types of tensors and their numpy representation."""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import numpy as np

from ..errors import ShapeError

__all__ = [
    "ALL", "Array", "DType", "bfloat16", "bool_", "complex128", "complex64", "float16", "float32", "float4_e2m1fn",
    "float64", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "int16", "int2", "int32", "int4", "int64", "int8", "of", "string", "uint16", "uint2", "uint32",
    "uint4", "uint64", "uint8", "unpacked",
]  # fmt: skip

Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]  # `numpy.typing.NDArray[Any]`, less the import


class DType:
    """One element type.

    name: used in text and files (``float32``); alias: MIGraphX's name (``float``); kind: ``b``
    bool, ``i`` signed, ``u`` unsigned, ``f`` float, ``c`` complex, ``s`` string; bits: width of the value; numpy: the dtype
    of host arrays (narrower types than a byte use one per element, strings are objects); None: that of ml_dtypes with this name.
    """

    __slots__ = ("alias", "bits", "kind", "name", "numpy")

    numpy: np.dtype[Any]

    def __init__(self, name: str, kind: str, bits: int, numpy: Any, alias: str = "") -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self.alias = alias or name
        if numpy is not None:
            self.numpy = np.dtype(numpy)

    def __getattr__(self, attribute: str) -> Any:
        """Loads ml_dtypes when its dtype is first read: its import takes as long as defining all our shapes and ops."""
        if attribute != "numpy":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {attribute!r}", name=attribute, obj=self
            )
        import ml_dtypes

        self.numpy = np.dtype(vars(ml_dtypes)[self.name])
        return self.numpy

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return of, (self.name,)

    @property
    def size(self) -> int:
        """Bytes per element in a host array."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_number(self) -> bool:
        return self.kind in "iufc"

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc"

    @property
    def is_computable(self) -> bool:
        """True if the type supports arithmetic (all but strings)."""
        return self.kind != "s"

    @property
    def accumulate(self) -> np.dtype[Any]:
        """The numpy dtype in which the reference computes: narrow floats in float32, sub-byte integers in bytes."""
        if self.kind == "f":
            return self.numpy if self.bits >= 32 else np.dtype(np.float32)
        if self.kind in "iu" and self.bits < 8:
            return np.dtype(np.int8 if self.kind == "i" else np.uint8)
        return self.numpy

    @property
    def lowest(self) -> Any:
        """The most negative finite value (False for bool)."""
        return _limits(self)[0]

    @property
    def highest(self) -> Any:
        """The largest finite value (True for bool)."""
        return _limits(self)[1]

    @property
    def epsilon(self) -> float:
        """Machine epsilon: distance from 1 to the next larger value; 0 for exact types."""
        return float(_finfo(self.numpy).eps) if self.kind == "f" else 0.0

    @property
    def smallest_normal(self) -> float:
        """Smallest positive normal value of a float type; 0 for exact types."""
        return float(_finfo(self.numpy).smallest_normal) if self.kind == "f" else 0.0


def _finfo(dtype: np.dtype[Any]) -> Any:
    """Returns the limits of a float type."""
    if dtype.isbuiltin == 1:
        return np.finfo(dtype)
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(dtype)


@cache
def _limits(dtype: DType) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    if dtype.kind == "f":
        info = _finfo(dtype.numpy)
        return float(info.min), float(info.max)
    if dtype.kind in "iu":
        span = 1 << dtype.bits
        return (-(span >> 1), (span >> 1) - 1) if dtype.kind == "i" else (0, span - 1)
    raise ShapeError(f"{dtype.name} has no smallest and largest value")


def unpacked(raw: Array, bits: int, count: int) -> Array:
    """Returns the codes of packed elements narrower than a byte, one per byte; the first is in the lowest bits of `raw`."""
    whole = math.lcm(8, bits)  # bits after which an element starts at a byte again
    if whole > 8:
        words = np.zeros((-(-8 * raw.size // whole), 4), np.uint8)
        parts = np.zeros((len(words), whole // 8), np.uint8)
        parts.reshape(-1)[: raw.size] = raw
        words[:, : whole // 8] = parts
        raw = words.view("<u4")[:, 0]
    shifts = np.arange(whole // bits, dtype=raw.dtype) * bits
    codes: Array = ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.uint8)
    return codes


bool_: Final = DType("bool", "b", 8, np.bool_)
int8: Final = DType("int8", "i", 8, np.int8)
int16: Final = DType("int16", "i", 16, np.int16)
int32: Final = DType("int32", "i", 32, np.int32)
int64: Final = DType("int64", "i", 64, np.int64)
uint8: Final = DType("uint8", "u", 8, np.uint8)
uint16: Final = DType("uint16", "u", 16, np.uint16)
uint32: Final = DType("uint32", "u", 32, np.uint32)
uint64: Final = DType("uint64", "u", 64, np.uint64)
int4: Final = DType("int4", "i", 4, None)
uint4: Final = DType("uint4", "u", 4, None)
int2: Final = DType("int2", "i", 2, None)
uint2: Final = DType("uint2", "u", 2, None)
float16: Final = DType("float16", "f", 16, np.float16, "half")
bfloat16: Final = DType("bfloat16", "f", 16, None, "bf16")
float32: Final = DType("float32", "f", 32, np.float32, "float")
float64: Final = DType("float64", "f", 64, np.float64, "double")
float8_e4m3fn: Final = DType("float8_e4m3fn", "f", 8, None, "fp8e4m3fn")
float8_e4m3fnuz: Final = DType("float8_e4m3fnuz", "f", 8, None, "fp8e4m3fnuz")
float8_e5m2: Final = DType("float8_e5m2", "f", 8, None, "fp8e5m2")
float8_e5m2fnuz: Final = DType("float8_e5m2fnuz", "f", 8, None, "fp8e5m2fnuz")
float8_e8m0fnu: Final = DType("float8_e8m0fnu", "f", 8, None, "fp8e8m0fnu")
float6_e2m3fn: Final = DType("float6_e2m3fn", "f", 6, None, "fp6e2m3fn")
float6_e3m2fn: Final = DType("float6_e3m2fn", "f", 6, None, "fp6e3m2fn")
float4_e2m1fn: Final = DType("float4_e2m1fn", "f", 4, None, "fp4e2m1fn")
complex64: Final = DType("complex64", "c", 64, np.complex64)
complex128: Final = DType("complex128", "c", 128, np.complex128)
string: Final = DType("string", "s", 64, object)

ALL: Final[tuple[DType, ...]] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, int4, uint4, int2, uint2,
    float16, bfloat16, float32, float64,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn,
    complex64, complex128, string,
)  # fmt: skip

# MIGraphX's `shape.type_t`: element types by MIGraphX's names
TYPE_T: Final = SimpleNamespace(**{f"{t.alias}_type": t for t in ALL})

_BY_NAME: Final = {word: t for t in ALL for word in (t.name, t.alias, t.name + "_type", t.alias + "_type")}
_OF_ML_DTYPES: Final = frozenset({
    int4, uint4, int2, uint2, bfloat16,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn,
})  # fmt: skip
_BY_NUMPY: Final = {t.numpy: t for t in ALL if t not in _OF_ML_DTYPES}


@cache
def _by_ml_dtypes() -> dict[np.dtype[Any], DType]:
    return {t.numpy: t for t in _OF_ML_DTYPES}


def of(value: Any) -> DType:
    """Returns the element type for a DType, a name (``"float32"``, ``"half"``, ``"float_type"``) or a numpy dtype-like.

    Errors: ShapeError if mgx has no such element type.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        found = _BY_NAME.get(value)
        if found is not None:
            return found
    try:
        numpy = np.dtype(value)
    except TypeError:
        numpy = None
    if numpy is not None:
        if numpy.kind in "USO" or numpy.kind == "T":
            return string
        native = numpy.newbyteorder("=")
        found = _BY_NUMPY.get(native)
        if found is None and native.isbuiltin == 2:  # a type that another package has registered
            found = _by_ml_dtypes().get(native)
        if found is not None:
            return found
    raise ShapeError(f"{value!r} is not an element type; known are {', '.join(t.name for t in ALL)}")
