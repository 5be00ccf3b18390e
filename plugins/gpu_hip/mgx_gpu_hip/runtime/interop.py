"""Exchange of device arrays with other libraries: DLPack and ``__cuda_array_interface__``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, ParameterError

from .device import Device
from .dlpack import CPU, CUDA, ROCM, make_capsule, take_capsule
from .memory import DeviceBuffer
from .stream import Stream

__all__ = ["DeviceArray", "import_array", "is_device_array"]

DEVICES: Final = {"cuda": CUDA, "hip": ROCM, "host": CPU}


class DeviceArray:
    """A tensor in device memory.

    strides: in elements, row-major by default; normalized to row-major if equivalent (strides of axes of extent 1 do not matter).
    stream: the stream that writes the contents, if the work may still be in flight; a consumer that names its own stream is made
    to wait for it.
    """

    __slots__ = ("__weakref__", "_shape", "buffer", "dims", "dtype", "offset", "stream", "strides")

    def __init__(
        self,
        buffer: DeviceBuffer,
        dtype: dt.DType,
        dims: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
        stream: Stream | None = None,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.dims = tuple(dims)
        rows = row_major(self.dims)
        self.strides = rows if strides is None or _alike(self.dims, strides, rows) else tuple(strides)
        self.offset = offset  # bytes
        self.stream = stream
        self._shape: Shape | None = None  # computed on first use

    @property
    def address(self) -> int:
        return self.buffer.address + self.offset if self.buffer.address else 0

    # protocol of mgx_core for values in device memory

    @property
    def device_shape(self) -> Shape:
        if self._shape is None:
            self._shape = Shape(self.dtype, self.dims, self.strides)
        return self._shape

    @property
    def device_address(self) -> int:
        return self.address

    @property
    def device(self) -> Device:
        return cast(Device, self.buffer.device)  # all our buffers come from a device's pool

    def to_host(self) -> Any:
        """Returns a row-major copy in host memory."""
        if self.stream is not None:
            self.stream.wait()
        span = Shape(self.dtype, self.dims, self.strides).element_space()
        flat = np.empty(span, self.dtype.numpy)
        if span:
            self.device.download(flat, self.address)
        steps = [s * self.dtype.size for s in self.strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, self.dims, steps)).reshape(self.dims)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.numpy.isbuiltin != 1 or self.device.kind == "host":
            raise AttributeError("__cuda_array_interface__")
        size = self.dtype.size
        stream = None if self.stream is None else self.stream.handle or 1
        return {
            "version": 3,
            "shape": self.dims,
            "typestr": self.dtype.numpy.str,
            "data": (self.address, False),
            "strides": None if self.strides == row_major(self.dims) else tuple(s * size for s in self.strides),
            "stream": stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _place(self.device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Errors: BufferError, as the protocol requires, for another device, a copy or an unsupported type."""
        if (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()) or copy:
            raise BufferError("a device array is exported without a copy; copy it in the consumer")
        if self.stream is not None and stream != -1:
            if stream is None:
                self.stream.wait()
            else:  # 0, 1 and 2 denote default streams
                Stream(self.buffer.device, 0 if stream in (0, 1, 2) else stream).after(self.stream)
        return make_capsule(self.address, self.__dlpack_device__(), self.dtype, self.dims, self.strides, self)


def _alike(dims: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Returns True if both strides address the same elements."""
    return 0 in dims or all(n == 1 or a == b for n, a, b in zip(dims, strides, others, strict=True))


def _place(device: Device) -> tuple[int, int]:
    return DEVICES[device.kind], 0 if device.kind == "host" else device.index


def row_major(dims: Sequence[int]) -> tuple[int, ...]:
    out = [1] * len(dims)
    for axis in range(len(dims) - 2, -1, -1):
        out[axis] = out[axis + 1] * max(dims[axis + 1], 1)
    return tuple(out)


def is_device_array(value: Any) -> bool:
    """Returns True if a value declares that its data is in GPU memory."""
    if isinstance(value, DeviceArray):
        return True
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (CUDA, ROCM, 13)
    return hasattr(value, "__cuda_array_interface__")


def import_array(device: Device, value: Any, stream: Stream | None = None) -> DeviceArray:
    """Returns a view of another library's device array, kept alive; work enqueued on `stream` afterwards sees its contents.

    Errors: DeviceError for memory of another device; ParameterError for a type that mgx does not support.
    """
    if isinstance(value, DeviceArray):
        if value.buffer.device is not device:
            raise DeviceError(f"an array on {device} is required, got one on {value.buffer.device}")
        if stream is not None and value.stream is not None:
            stream.after(value.stream)
        return value
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(device, value, stream)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise ParameterError(
            f"a {type(value).__name__} is not a device array: it has neither DLPack nor __cuda_array_interface__"
        )
    address, _ = interface["data"]
    dtype = dt.of(interface["typestr"])
    dims = tuple(interface["shape"])
    steps = interface.get("strides")
    strides = row_major(dims) if steps is None else tuple(s // dtype.size for s in steps)
    made_on = interface.get("stream")
    if made_on is not None and stream is not None:
        stream.after(Stream(device, 0 if made_on in (1, 2) else int(made_on)))
    return DeviceArray(
        DeviceBuffer(device, address or 0, _span(dims, strides) * dtype.size, value), dtype, dims, strides
    )


def _span(dims: Sequence[int], strides: Sequence[int]) -> int:
    """Returns the number of elements from the first to past the last."""
    if 0 in dims:
        return 0
    return 1 + sum((n - 1) * abs(s) for n, s in zip(dims, strides, strict=True))


def _from_dlpack(device: Device, value: Any, stream: Stream | None) -> DeviceArray:
    kind, index = (int(n) for n in value.__dlpack_device__())
    if (kind, index) != _place(device):
        raise DeviceError(f"a tensor on {device} is required, got one on DLPack device {kind}:{index}")
    if device.kind == "host":
        capsule = value.__dlpack__()
    else:  # CUDA denotes its legacy default stream by 1, ROCm by 0
        mine = stream.handle if stream is not None else 0
        capsule = value.__dlpack__(stream=mine or (1 if device.kind == "cuda" else 0))
    tensor = take_capsule(capsule)
    strides = tensor.strides if tensor.strides is not None else row_major(tensor.dims)
    size = _span(tensor.dims, strides) * tensor.dtype.size
    return DeviceArray(DeviceBuffer(device, tensor.address, size, tensor.lease), tensor.dtype, tensor.dims, strides)
