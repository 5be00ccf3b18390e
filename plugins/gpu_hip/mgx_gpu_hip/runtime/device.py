"""Devices: their properties, and the objects created on them."""

from __future__ import annotations

import ctypes
import re
import threading
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from mgx_core.errors import DeviceError

from ..compile.compiler import capability_of
from .driver import Driver, available, load_driver
from .driver_context import DriverContext
from .failures import CallError
from .graph import Capture
from .memory import DeviceBuffer, PinnedBuffer, Pool, RegisteredMemory
from .module import Module
from .stream import Event, Stream
from .symbols import ATTRIBUTES, IpcHandle

PEERS_TOO = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the memory may belong to a peer device

__all__ = ["Device", "NullDevice", "Properties", "open_device", "properties_of"]


class Properties(NamedTuple):
    """Device properties for code generation.

    arch: ``gfx942``, ``sm_90`` or ``host64``; units: compute units or multiprocessors; wave: lanes per wave; shared: most bytes
    of shared memory per block (`shared_static`: without opting in); threads: maximum per block; memory, l2: bytes.
    """

    name: str
    arch: str
    units: int
    wave: int
    shared: int
    shared_static: int
    threads: int = 1024
    memory: int = 0
    l2: int = 0

    @property
    def vendor(self) -> str:
        return "nvidia" if self.arch.startswith("sm_") else "host" if self.arch.startswith("host") else "amd"

    @property
    def dependent_launches(self) -> bool:
        """True if a kernel can be launched before the preceding one has ended, and waits for it by itself (from sm_90 on)."""
        return capability_of(self.arch) >= 90


# architectures with cross-compilation: units, shared memory and L2 of a typical part
_KNOWN = {
    "gfx908": (120, 65536, 8 << 20),
    "gfx90a": (104, 65536, 8 << 20),
    "gfx942": (304, 65536, 4 << 20),
    "gfx950": (256, 163840, 4 << 20),
    "gfx1030": (80, 65536, 4 << 20),
    "gfx1100": (96, 65536, 6 << 20),
    "gfx1101": (60, 65536, 4 << 20),
    "gfx1200": (32, 65536, 4 << 20),
    "gfx1201": (64, 65536, 8 << 20),
    "sm_80": (108, 166912, 40 << 20),
    "sm_86": (84, 101376, 6 << 20),
    "sm_89": (128, 101376, 72 << 20),
    "sm_90": (132, 232448, 50 << 20),
    "sm_100": (148, 232448, 126 << 20),
    "sm_120": (170, 101376, 96 << 20),
    "host32": (4, 232448, 1 << 20),
    "host64": (4, 65536, 1 << 20),
}


def properties_of(arch: str) -> Properties:
    """Returns the properties of a typical device of an architecture, for cross-compilation.

    Errors: DeviceError if unknown.
    """
    plain = arch.split(":", maxsplit=1)[0]
    nvidia = plain.startswith("sm_")
    plain = plain.removesuffix("a") if nvidia else plain
    if plain not in _KNOWN:
        raise DeviceError(f"an architecture must be one of {', '.join(_KNOWN)}, got {arch!r}")
    units, shared, l2 = _KNOWN[plain]
    wave = 64 if plain.startswith("gfx9") or plain == "host64" else 32
    static = min(shared, 49152 if nvidia else 65536)
    return Properties(f"any {plain}", plain, units, wave, shared, static, l2=l2)


class Device(DriverContext):
    """One GPU, opened once per process; each thread must call ``activate`` before driver calls (the methods here do).

    Errors: DeviceError if there is no such device.
    """

    def __init__(self, driver: Driver, index: int = 0) -> None:
        super().__init__(driver, index)
        self._modules: WeakValueDictionary[bytes, Module] = WeakValueDictionary()
        self.activate()
        self.properties = self._properties()
        self.pool = Pool(self, exact=driver.kind == "host")
        self.default_stream = Stream(self, 0)

    @property
    def kind(self) -> str:
        """The driver: ``hip``, ``cuda`` or ``host``."""
        return self.driver.kind

    @property
    def arch(self) -> str:
        return self.properties.arch

    def _attribute(self, name: str, default: int = 0) -> int:
        number = ATTRIBUTES[self.driver.kind].get(name)
        if number is None:
            return default
        return int(self.driver.out("device_attribute", number, self._device, type=ctypes.c_int))

    def _properties(self) -> Properties:
        buffer = ctypes.create_string_buffer(256)
        self.driver.device_name(buffer, 256, self._device)
        wave = self._attribute("wave")
        static = self._attribute("shared")
        if self.driver.kind == "cuda":
            arch = f"sm_{self._attribute('major')}{self._attribute('minor')}"
        elif self.driver.kind == "host":
            arch = f"host{wave}"
        else:
            arch = self._gfx()
        return Properties(
            name=buffer.value.decode(),
            arch=arch,
            units=self._attribute("units"),
            wave=wave,
            shared=232448 if arch == "host32" else self._attribute("shared_most", static),
            shared_static=static,
            threads=self._attribute("threads"),
            memory=int(self.driver.out("device_memory", self._device)),
            l2=self._attribute("l2"),
        )

    def _gfx(self) -> str:
        """Searches hipDeviceProp_t for the architecture, whose offset differs between versions."""
        buffer = ctypes.create_string_buffer(8192)
        for name in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties"):
            function = getattr(self.driver.library, name, None)
            if function is not None:
                code = function(buffer, self._device)
                if code:
                    raise self.driver.error(name, code)
                found = re.search(rb"gfx[0-9a-f]{3,5}", buffer.raw)
                if found:
                    return found.group().decode()
        raise DeviceError("the HIP runtime does not report the device's architecture")

    # factories

    def stream(self, handle: int | None = None) -> Stream:
        """Returns a new stream, or a wrapper of a foreign one."""
        return Stream(self, handle)

    def event(self, timing: bool = False) -> Event:
        return Event(self, timing)

    def allocate(self, size: int) -> DeviceBuffer:
        return self.pool.allocate(size)

    def holds(self, address: int) -> bool:
        """Returns True if an address is in memory of this device, allocated here or by another library."""
        self.activate()
        base, size = ctypes.c_size_t(), ctypes.c_size_t()
        try:
            self.driver.address_range(ctypes.byref(base), ctypes.byref(size), address)
        except CallError:
            return False
        return base.value <= address < base.value + size.value

    def open_shared(self, handle: bytes, size: int) -> int:
        """Returns the address of memory shared by another process; release it with `close_shared`.

        Errors: DeviceError if the handle is invalid, or its memory smaller than `size` bytes.
        """
        self.activate()
        if len(handle) != ctypes.sizeof(IpcHandle):
            raise DeviceError(f"a handle of {ctypes.sizeof(IpcHandle)} bytes is required, got {len(handle)}")
        address = int(self.driver.out("ipc_open", IpcHandle.from_buffer_copy(handle), PEERS_TOO))
        try:
            base, there = ctypes.c_size_t(), ctypes.c_size_t()
            self.driver.address_range(ctypes.byref(base), ctypes.byref(there), address)
            left = base.value + there.value - address
            if left < size:
                raise DeviceError(f"{size} bytes are required, the memory behind the handle has {left}")
        except BaseException:
            self.driver.ipc_close(address)
            raise
        return address

    def close_shared(self, address: int) -> None:
        """Unmaps memory that `open_shared` returned."""
        self.activate()
        self.driver.ipc_close(address)

    def pinned(self, size: int) -> PinnedBuffer:
        return PinnedBuffer(self, size)

    def registered(self, address: int, size: int) -> RegisteredMemory:
        """Pins a caller's host memory.  Errors: DeviceError if the driver refuses."""
        return RegisteredMemory(self, address, size)

    def load(self, image: bytes) -> Module:
        """Loads code; equal images are loaded once.  Errors: DeviceError if it is for another architecture."""
        with self._lock:
            found = self._modules.get(image)
            if found is None:
                found = self._modules[image] = Module(self, image)
            return found

    def capture(self, stream: Stream) -> Capture:
        """``with device.capture(stream) as c: ...`` captures a graph; see `Capture`."""
        return Capture(stream)

    def upload(self, array: npt.NDArray[Any]) -> DeviceBuffer:
        """Copies an array to newly allocated device memory; blocks until done."""
        array = np.ascontiguousarray(array)
        buffer = self.allocate(array.nbytes)
        if array.nbytes:
            self.activate()
            self.default_stream.copy_in(buffer.address, array)
            self.default_stream.wait()
        return buffer

    def download(
        self, array: npt.NDArray[Any], address: int | DeviceBuffer, stream: Stream | None = None
    ) -> npt.NDArray[Any]:
        """Fills a contiguous array from device memory, after the stream's earlier work; blocks until done."""
        if not array.flags.c_contiguous:
            raise DeviceError("a contiguous array is required")
        stream = stream or self.default_stream
        if array.nbytes:
            self.activate()
            stream.copy_out(array, address.address if isinstance(address, DeviceBuffer) else address)
        stream.wait()
        return array

    def wait(self) -> None:
        """Blocks until all work on the device has finished."""
        self.activate()
        self.driver.context_sync()

    def __repr__(self) -> str:
        return (
            f"{self.driver.kind}:{self.index} ({self.properties.name})"
            if hasattr(self, "properties")
            else self.driver.kind
        )


class NullDevice:
    """Placeholder for an absent device: has its architecture's properties, but runs nothing.

    Errors: DeviceError for any operation that requires the device.
    """

    kind = "null"
    index = 0

    def __init__(self, arch: str) -> None:
        self.properties = properties_of(arch)

    @property
    def arch(self) -> str:
        return self.properties.arch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise DeviceError(
            f"compiled for {self.arch} without a device: {name} requires one; load the program on a machine that has it"
        )

    def __repr__(self) -> str:
        return f"null ({self.arch})"


def open_device(kind: str = "", index: int = 0) -> Device:
    """Returns the device of a driver (``hip``, ``cuda``, ``host``; by default the first real one), opened once per process.

    Emulated device 0 has waves of 64 lanes, device 1 of 32.
    Errors: DeviceError if there is none.
    """
    if not kind:
        found = available()
        if not found:
            raise DeviceError(
                "no GPU was found: neither libamdhip64 nor libcuda loads and sees a device; MGX_GPU_DEVICE=host chooses an "
                "emulated one, which is slow and meant for tests"
            )
        kind = found[0]
    with _opening:
        return _opened(kind, index)


_opening = threading.Lock()  # concurrent first calls must get the same device


@cache
def _opened(kind: str, index: int) -> Device:
    return Device(load_driver(kind), index)
