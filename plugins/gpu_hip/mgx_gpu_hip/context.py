"""The context of the gpu target: one device, its traits for code generation, and its vendor libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, SupportsInt, cast
from weakref import WeakValueDictionary

import numpy as np

from mgx_core import Context, Shape, Target
from mgx_core.cache import Held
from mgx_core.errors import DeviceError, ParameterError, UnsupportedError
from mgx_core.settings import setting
from mgx_core.targets.tuning import KernelTuning
from mgx_core.types.argument import Array

from .codegen.source import DeviceTraits
from .codegen.source_cache import SourceCache
from .compile.build import Code, Key
from .constants import Constants
from .library.vendor import Libraries
from .runtime import Device, DeviceArray, DeviceBuffer, NullDevice, Stream, in_use, open_device, properties_of
from .runtime.conditional_graph import ConditionalGraph
from .runtime.ranges import profiler_ranges
from .tuning import Tuner

__all__ = ["GpuContext"]


class GpuContext(Context):
    """A device to compile for and to run on.

    kind: ``cuda``, ``hip``, ``host`` (emulated), or empty for the first real one; device_id: its index.
    """

    def __init__(self, target: Target, kind: str = "", device_id: int = 0) -> None:
        self.target = target
        self.kind = kind
        self.device_id = device_id
        self.constants = Constants()
        self.source_cache = SourceCache()
        self.codes: WeakValueDictionary[Key, Code] = WeakValueDictionary()  # held by runners
        self.kernel_tuning: KernelTuning | None = None  # set once kernels are timed

    @cached_property
    def device(self) -> Device:
        """The device, opened on first use; ``$MGX_GPU_DEVICE`` (``cuda:1``, ``host:0``) if the target names none.

        Errors: DeviceError if there is none; ParameterError if the variable's index is not a number.
        """
        return open_device(*self._chosen())

    def _chosen(self) -> tuple[str, int]:
        """Returns kind and index of the device; an empty kind selects the first real one.  Errors: as `device`."""
        if self.kind:
            return self.kind, self.device_id
        kind, colon, number = setting("MGX_GPU_DEVICE").partition(":")
        if colon and not number.isdecimal():
            raise ParameterError(f"MGX_GPU_DEVICE must name a device as in cuda:1, got {kind + colon + number!r}")
        return kind, int(number) if colon else self.device_id

    def is_for(self, arch: str) -> bool:
        """Returns True if there is a device of this architecture."""
        wanted = properties_of(arch).arch
        try:
            return self.device.arch == wanted
        except DeviceError:
            return False

    def compile_for(self, arch: str) -> None:
        """Compiles for an architecture without a device from now on.  Errors: DeviceError for an unknown one."""
        for name in ("traits", "libraries", "tuner"):
            self.__dict__.pop(name, None)
        self.kernel_tuning = None
        self.device = cast(Device, NullDevice(arch))

    @cached_property
    def traits(self) -> DeviceTraits:
        p = self.device.properties
        return DeviceTraits(
            wave=p.wave,
            max_threads=p.threads,
            shared_bytes=p.shared_static,
            sm_count=p.units,
            arch=p.arch,
            vendor=p.vendor,
            shared_most=p.shared,
        )

    @cached_property
    def libraries(self) -> Libraries | None:
        """The vendor libraries; None on the emulated device."""
        return None if self.device.kind in ("host", "null") else Libraries(self.device.kind)

    @cached_property
    def tuner(self) -> Tuner | None:
        """The tuner that times library plans; None without vendor libraries."""
        return None if self.libraries is None else Tuner(self.device, self.libraries)

    def profiler_ranges(self) -> tuple[Callable[[str], None], Callable[[], None]]:
        return profiler_ranges(self.device.kind)

    def finish(self) -> None:
        """Waits until all work queued on any stream has finished."""
        if self.device.kind != "null":
            self.device.wait()

    @cached_property
    def _queue(self) -> Stream:
        return Stream(self.device, joined=True)

    @property
    def queue(self) -> int:
        """Handle of a stream ordered with runs both ways: runs use the default stream, whose handle is null."""
        return self._queue.handle

    def wait_for(self, event: SupportsInt) -> None:
        """Makes later work on `queue`, and on the default stream, wait for an event given by its handle."""
        self.device.activate()
        for stream in (self._queue, self.device.default_stream):
            self.device.driver.stream_wait(stream.handle, int(event), 0)

    def record(self, event: SupportsInt) -> None:
        """Records an event, given by its handle, on `queue`: it is reached once all earlier work there has finished."""
        self.device.activate()
        self.device.driver.event_record(int(event), self._queue.handle)

    def allocate(self, shape: Shape) -> DeviceArray:
        size = shape.elements() * shape.dtype.size
        return DeviceArray(self.device.allocate(max(size, 16)), shape.dtype, shape.lens())

    def host_array(self, shape: Shape) -> Array:
        return self.device.pinned(shape.bytes()).owned_array(shape.dtype.numpy, tuple(shape.lens()))

    def pin(self, array: Array) -> object | None:
        if self.device.kind == "null":
            return None
        try:
            return self.device.registered(array.__array_interface__["data"][0], array.nbytes)
        except DeviceError:  # drivers may refuse memory mapped by other processes too
            return None

    def upload(self, array: Array) -> DeviceArray:
        shape = Shape(array.dtype, array.shape)
        return DeviceArray(self.device.upload(array), shape.dtype, shape.lens())

    def copy(self, source: Any, place: Any) -> None:
        """Copies between host and device memory in either direction; device results must be row-major and contiguous."""
        if not isinstance(place, DeviceArray):
            np.copyto(place, source.to_host() if isinstance(source, DeviceArray) else source)
            return
        if not place.device_shape.standard():
            raise UnsupportedError(f"the destination must be row-major and contiguous, got {place.device_shape}")
        self.device.activate()
        stream = self.device.default_stream
        if isinstance(source, DeviceArray) and source.device_shape.standard():
            stream.copy(place.address, source.address, place.device_shape.bytes())
        else:
            array = np.ascontiguousarray(source.to_host() if isinstance(source, DeviceArray) else source)
            if array.size:
                stream.copy_in(place.address, array)
        stream.wait()

    def holds(self, address: int) -> bool:
        if "device" not in self.__dict__ and not in_use(*self._chosen()):
            return False
        return self.device.kind != "null" and self.device.holds(address)

    def borrow(self, shape: Shape, address: int) -> DeviceArray:
        space = shape.element_space() * shape.dtype.size
        return DeviceArray(DeviceBuffer(self.device, address, space), shape.dtype, shape.lens(), shape.strides())

    def open_shared(self, handle: bytes, size: int, device: int) -> int:
        """Opens another process's memory; handle: from `hipIpcGetMemHandle` or `cuIpcGetMemHandle`, of a whole allocation."""
        if device != self.device.index:
            raise UnsupportedError(f"memory on device {self.device.index} is required, got device {device}")
        return self.device.open_shared(handle, size)

    def close_shared(self, address: int) -> None:
        self.device.close_shared(address)

    def untimed(self) -> GpuContext:
        made = GpuContext(self.target, self.kind, self.device_id)
        made.constants = self.constants
        made.__dict__ |= {
            "device": self.device,
            "libraries": self.libraries,
            "tuner": None if self.tuner is None else self.tuner.untimed(),
        }  # fills the cached properties
        return made

    def watch(self, values: Sequence[Any]) -> Any:
        from .watch import DeviceWatch

        return (
            DeviceWatch(self.device, values)
            if self.device.kind != "null" and ConditionalGraph.possible(self.device)
            else None
        )

    def memory(self) -> dict[str, Held]:
        """Returns the size of constants on host and device and of free pool blocks, and the number of timed library plans."""
        found = self.constants.held()
        if "device" in self.__dict__ and self.device.kind != "null":  # reporting must not open the device
            found["free device memory"] = self.device.pool.idle()
        if self.__dict__.get("tuner") is not None:
            found["timed plans"] = Held(len(self.__dict__["tuner"].found), 0)
        if self.kernel_tuning is not None:
            found["timed kernels"] = Held(len(self.kernel_tuning.choices), 0)
        return found

    def __repr__(self) -> str:
        return f"context of target 'gpu' ({self.kind or 'any'} device {self.device_id})"

    def __getstate__(self) -> Any:
        raise TypeError("contexts hold devices and cannot be stored")
