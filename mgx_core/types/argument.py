"""Runtime values with types: tensors, which share memory with numpy, torch and others, and nested tuples and sequences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self, TypeAlias

import numpy as np

from ..errors import ParameterError, ShapeError
from . import dtype as dt
from .dtype import Array
from .shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape
from .strings import as_strings, decoded

__all__ = ["Argument", "Array", "Value", "as_argument", "as_value", "shape_of"]

# the representation that ops compute on: an array, a tuple, a list (sequence) or None (absent optional)
Value: TypeAlias = "Any"


class Argument:
    """A value with its shape.

    data: anything with DLPack, the buffer protocol or an array interface, a number, a nested list, another Argument, or
    for tuples and sequences a Python sequence of these.  Host memory is borrowed if its layout permits (copied only if
    necessary) and kept alive; results of `run` own their memory.
    Errors: ParameterError for data that is not a tensor; ShapeError if `shape` is given and does not fit.
    """

    __slots__ = ("_shape", "_value")  # the array second: see `buffer`

    def __init__(self, data: Any, shape: AnyShape | None = None) -> None:
        self._value: Value = as_value(data)
        self._shape: AnyShape | None = shape_of(self._value) if shape is None else shape
        if isinstance(shape, Shape) and isinstance(self._value, np.ndarray):
            found = shape_of(self._value)
            if not isinstance(found, Shape) or (found.dtype, found.dims) != (shape.dtype, shape.dims):
                raise ShapeError(f"data of shape {found} given for shape {shape}")

    @classmethod
    def from_value(cls, value: Value, shape: AnyShape | None = None) -> Self:
        """Wraps an op's result without checks."""
        self = cls.__new__(cls)
        self._value = value
        self._shape = shape  # computed on first access
        return self

    @property
    def shape(self) -> AnyShape:
        if self._shape is None:
            self._shape = shape_of(self._value)
        return self._shape

    @property
    def value(self) -> Value:
        """The data in the representation that ops compute on: an array, a tuple, a list or None; not copied."""
        return self._value

    def get_shape(self) -> AnyShape:
        return self.shape

    @property
    def on_device(self) -> bool:
        """True for a tensor in a device's memory."""
        return hasattr(self._value, "to_host")

    def to_numpy(self) -> Array:
        """Returns the tensor as an array that shares its memory.  Errors: ParameterError for tuples, sequences and optionals."""
        if self.on_device:  # a copy of it
            return np.asarray(self._value.to_host())
        if not isinstance(self._value, np.ndarray):
            raise ParameterError(f"a value of type {self.shape} is not a tensor; see get_sub_objects()")
        return self._value

    def get_sub_objects(self) -> list[Argument]:
        """Returns the items of a tuple or sequence; none for a tensor or an absent optional."""
        if isinstance(self._value, (tuple, list)):
            return [Argument.from_value(v) for v in self._value]
        return []

    def data_ptr(self) -> int:
        """Address of the first element, in the memory space that holds the tensor."""
        if hasattr(self._value, "device_address"):
            return int(self._value.device_address)
        return int(self.to_numpy().__array_interface__["data"][0])

    def save(self, filename: Any) -> None:
        """Writes the tensor, or tuple of tensors, to a file; `load` reads it.  Errors: ParameterError for other values."""
        from .argument_file import write_value

        write_value(self.copy().value, self.shape, filename)

    @classmethod
    def load(cls, filename: Any) -> Self:
        """Returns the argument in a file that `save` wrote.  Errors: StoreError for anything else."""
        from .argument_file import read_value

        return cls.from_value(read_value(filename))

    def tolist(self) -> Any:
        """Returns the elements in row-major order as a list; nested items for tuples and sequences, a dict for a map.

        An absent optional has no items.
        """
        if isinstance(self._value, np.ndarray) or self.on_device:
            flat: list[Any] = self.to_numpy().reshape(-1).tolist()
            return flat
        if isinstance(self._value, dict):
            return dict(self._value)
        return [a.tolist() for a in self.get_sub_objects()]

    def copy(self) -> Argument:
        """Returns a copy in host memory that owns its memory."""
        return Argument.from_value(_copied(self._value), self.shape)

    # exchange with other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.to_numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to convert {array.dtype} to {np.dtype(dtype)}")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        array = self._value
        # ml_dtypes have no type string, and nothing would own a copy of device memory: use __array__ or DLPack for these
        if not isinstance(array, np.ndarray) or array.dtype.isbuiltin == 2:
            raise AttributeError("__array_interface__")
        return dict(array.__array_interface__, _owner=array)

    def __buffer__(self, flags: int) -> memoryview:  # called by Python 3.12 and later
        return memoryview(self.to_numpy())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found: dict[str, Any] = self._value.__cuda_array_interface__  # raises AttributeError for host memory
        return found

    def __dlpack__(self, **options: Any) -> Any:
        if hasattr(self._value, "device_address"):
            return self._value.__dlpack__(**options)
        from .dlpack import export

        return export(self.to_numpy(), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        if hasattr(self._value, "device_address"):
            kind, index = self._value.__dlpack_device__()
            return int(kind), int(index)
        return 1, 0

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Argument) and _equal(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self._value, np.ndarray) or self.on_device:
            return f"{self.shape} {np.array2string(self.to_numpy(), threshold=16, separator=', ')}"
        return f"{self.shape} {self._value!r}"


if sys.version_info < (3, 12):
    from .buffer import forward_buffer

    forward_buffer(Argument)


def as_value(data: Any) -> Value:
    """Returns the array (or nested arrays) of any object that holds a tensor; borrowed if possible.

    Errors: ParameterError if nothing in `data` can be read as a tensor, and for masked elements.
    """
    if isinstance(data, np.ndarray):
        return _native(data if type(data) is np.ndarray else _plain(data))
    if isinstance(data, Argument):
        return data.value
    if data is None or isinstance(data, dict):
        return data
    if isinstance(data, np.generic):
        return _native(np.asarray(data))
    if isinstance(data, (str, bytes)):
        return np.array(decoded(data) if isinstance(data, bytes) else data, dtype=object)
    if isinstance(data, (bool, int, float, complex)):
        return np.asarray(data)
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        from .dlpack import import_array

        return import_array(data)
    if hasattr(data, "__array_interface__") or hasattr(data, "__array__"):
        return _native(np.asarray(data))
    if isinstance(data, (bytearray, memoryview)) or hasattr(data, "__buffer__"):
        return _native(np.asarray(memoryview(data)))
    if isinstance(data, (list, tuple)):
        if any(isinstance(v, tuple) or _holds_tensor(v) for v in data):
            return type(data)(as_value(v) for v in data)
        try:
            return _native(np.asarray(data))
        except ValueError as error:
            raise ParameterError(f"a nested list of unequal lengths is not a tensor: {error}") from None
    try:
        return _native(np.asarray(memoryview(data)))
    except TypeError:
        raise ParameterError(
            f"{type(data).__name__} is not a tensor: it has neither DLPack, an array interface nor the buffer protocol"
        ) from None


def as_argument(data: Any) -> Argument:
    """Returns `data` as an Argument, unchanged if it is one."""
    return data if isinstance(data, Argument) else Argument(data)


def _holds_tensor(value: Any) -> bool:
    return not isinstance(value, np.generic) and (hasattr(value, "__array__") or hasattr(value, "__dlpack__"))


def _plain(array: Array) -> Array:
    """Returns an array of a subclass as numpy's own: operators of others differ (`*` of np.matrix multiplies matrices)."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ParameterError("an array has masked elements, which have no value: pass array.filled(value)")
    return np.asarray(array)


def _native(array: Array) -> Array:
    if array.dtype.kind in "OSTU":
        return as_strings(array)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    dt.of(array.dtype)
    if any(step % array.dtype.itemsize for step in array.strides):  # record fields may have such strides
        return array.copy()
    return array


@lru_cache(maxsize=1024)
def _row_major(dtype: np.dtype[Any], lens: tuple[int, ...]) -> Shape:
    """Returns the shape of a contiguous array; cached, since every run needs it and few shapes occur."""
    return Shape(dt.of(dtype), lens)


def shape_of(value: Value) -> AnyShape:
    """Returns the shape of a value; for a sequence, one that covers all items (unranked if ranks differ)."""
    if isinstance(value, np.ndarray):
        if value.flags.c_contiguous or not value.dtype.itemsize:
            return _row_major(value.dtype, value.shape)
        steps = [s // value.dtype.itemsize for s in value.strides]
        return Shape(dt.of(value.dtype), value.shape, steps)
    if isinstance(value, np.generic):
        return Shape(dt.of(value.dtype), ())
    if hasattr(value, "device_shape"):
        found: AnyShape = value.device_shape
        return found
    if isinstance(value, tuple):
        return TupleShape(map(shape_of, value))
    if isinstance(value, list):
        shapes = [shape_of(v) for v in value]
        if not shapes:
            return SequenceShape(Shape.unranked(dt.float32))
        first = shapes[0]
        if isinstance(first, Shape) and any(s != first for s in shapes):
            return SequenceShape(Shape.unranked(first.dtype))
        return SequenceShape(first)
    if value is None:
        return OptionalShape(Shape.unranked(dt.float32))
    if isinstance(value, dict):  # a map has the type of its keys and values
        return TupleShape(Shape.of(_item_type(items), (len(items),)) for items in (list(value), list(value.values())))
    raise ParameterError(f"a {type(value).__name__} is not a value of mgx")


def _item_type(items: Sequence[Any]) -> dt.DType:
    """Returns the element type of a map's keys or values; Python floats are float32."""
    first = items[0] if items else 0.0
    return dt.float32 if type(first) is float else dt.of(np.asarray(first).dtype)


def _copied(value: Value) -> Value:
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if hasattr(value, "to_host"):
        return value.to_host()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_copied, value))
    return value


def _equal(a: Value, b: Value) -> bool:
    if a is b:
        return True
    a, b = (v.to_host() if hasattr(v, "to_host") else v for v in (a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a == b
    return a is None and b is None
