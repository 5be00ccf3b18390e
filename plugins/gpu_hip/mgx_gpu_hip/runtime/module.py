"""Loaded code: modules, their kernels, and launches with prepacked arguments."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from mgx_core.errors import DeviceError, ParameterError, counted

from .driver_context import DriverContext
from .stream import Stream

__all__ = ["Function", "Launch", "Module"]

SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8, "P": 8}


class Module:
    """Code loaded on a device; `image` is a cubin, a code object, or the emulated device's shared object."""

    __slots__ = ("__weakref__", "device", "handle")

    def __init__(self, device: DriverContext, image: bytes) -> None:
        device.activate()
        self.device = device
        self.handle = 0
        self.handle = device.driver.out("module_load", ctypes.cast(ctypes.c_char_p(image), ctypes.c_void_p).value)

    def function(self, name: str, codes: str) -> Function:
        """Returns a kernel; `codes` has a struct format character per parameter, P for addresses.

        Errors: DeviceError if the module has no such kernel.
        """
        return Function(self, name, codes)

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self.device.dispose("module_unload", self.handle)


class Function:
    """A kernel of a module."""

    __slots__ = ("_dynamic", "codes", "device", "handle", "module", "name")

    def __init__(self, module: Module, name: str, codes: str) -> None:
        unknown = set(codes) - set(SIZES)
        if unknown:
            raise ParameterError(f"parameter codes must be among {''.join(SIZES)}, got {''.join(sorted(unknown))!r}")
        self.module = module
        self.device = module.device
        self.name = name
        self.codes = codes
        self.handle: int = self.device.driver.out("module_function", module.handle, name.encode())
        self._dynamic = 48 << 10

    def attributes(self) -> dict[str, int]:
        """Resources of the compiled kernel: maximum threads per block, bytes of shared and of spilled memory, registers."""
        numbers = {"threads": 0, "shared": 1, "spilled": 3, "registers": 4}
        out = self.device.driver.out
        return {
            key: int(out("function_get", number, self.handle, type=ctypes.c_int)) for key, number in numbers.items()
        }

    def resident(self, threads: int) -> int:
        """Returns the number of blocks resident on one unit at a time."""
        return int(self.device.driver.out("occupancy", self.handle, threads, 0, type=ctypes.c_int))

    def bind(
        self, grid: Sequence[int], block: Sequence[int], shared: int, args: Sequence[Any], overlap: bool = False
    ) -> Launch:
        """Returns a prepacked launch, cheap to repeat; `args` are addresses (or device buffers) and numbers."""
        return Launch(self, grid, block, shared, args, overlap)

    def launch(
        self, stream: Stream, grid: Sequence[int], block: Sequence[int], shared: int, args: Sequence[Any]
    ) -> None:
        Launch(self, grid, block, shared, args)(stream.handle)

    def allow_shared(self, size: int) -> None:
        """Opts in to more than 48 KiB of dynamic shared memory, as CUDA requires."""
        if size > self._dynamic:
            driver = self.device.driver
            if driver.kind == "cuda":
                driver.function_set(self.handle, 8, size)
            self._dynamic = size

    def __repr__(self) -> str:
        return f"kernel {self.name}"


class Launch:
    """A kernel with its grid and packed arguments: ``launch(stream handle)`` enqueues it.

    overlap: the kernel may start before the previous one has ended (programmatic dependent launch); it must call grid_wait() of
    the prelude before it accesses memory that other kernels write or read.  Devices without it run launches in order.
    """

    __slots__ = (
        "_call",
        "_config",
        "_head",
        "_memory",
        "_pack",
        "_params",
        "_tail",
        "block",
        "function",
        "grid",
        "shared",
    )

    def __init__(
        self,
        function: Function,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        args: Sequence[Any],
        overlap: bool = False,
    ) -> None:
        if len(args) != len(function.codes):
            raise ParameterError(f"{function.name} takes {counted(len(function.codes), 'argument')}, got {len(args)}")
        self.function = function
        self.grid = (*(int(n) for n in grid), 1, 1)[:3]
        self.block = (*(int(n) for n in block), 1, 1)[:3]
        self.shared = int(shared)
        function.allow_shared(self.shared)
        driver = function.device.driver
        self._pack = (ctypes.c_ulonglong * max(len(args), 1))()  # 8 bytes per argument
        base = ctypes.addressof(self._pack)
        self._params = (ctypes.c_size_t * max(len(args), 1))(*[base + 8 * i for i in range(len(args))])
        self._config: Any = None
        if overlap and driver.launch_extended is not None:
            self._config = _Extended(driver, self)
        self._call = driver.launch
        self._head = (function.handle, *self.grid, *self.block, self.shared)
        self._tail = (ctypes.addressof(self._params), 0)
        for index, value in enumerate(args):
            self.set(index, value)

    @property
    def early(self) -> bool:
        """True if it may start before the previous kernel has ended."""
        return self._config is not None

    def set(self, index: int, value: Any) -> None:
        """Changes an argument of later launches."""
        code = self.function.codes[index]
        if code == "P":
            struct.pack_into("=Q", self._pack, 8 * index, int(getattr(value, "address", value) or 0))
        elif code in "fd":
            struct.pack_into("=" + code, self._pack, 8 * index, float(value))
        else:
            struct.pack_into("=" + code, self._pack, 8 * index, int(value))

    def move(self, memory: Any, start: int) -> None:
        """Keeps the arguments in a caller's array of 8 bytes per argument from a position on, which may then be changed there."""
        size = len(self.function.codes)
        base = memory.ctypes.data + 8 * start
        ctypes.memmove(base, self._pack, 8 * size)
        self._pack = (ctypes.c_ulonglong * max(size, 1)).from_address(base)
        self._memory = memory
        self._params[:size] = [base + 8 * i for i in range(size)]

    def regrid(self, grid: Sequence[int]) -> None:
        """Changes the grid of later launches."""
        self.grid = (*(int(n) for n in grid), 1, 1)[:3]
        self._head = (self.function.handle, *self.grid, *self.block, self.shared)
        if self._config is not None:
            self._config.regrid(self.grid)

    def __call__(self, stream: int = 0) -> None:
        try:
            if self._config is not None:
                self._config(stream, self._tail[0])
            else:
                self._call(*self._head, stream, *self._tail)
        except DeviceError as error:
            raise error.located(f"launch of {self.function.name} on grid {self.grid} of blocks {self.block}") from None


class _Extended:
    """The arguments of cuLaunchKernelEx with programmatic stream serialization."""

    SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

    def __init__(self, driver: Any, launch: Launch) -> None:
        self.driver = driver
        self.function = launch.function.handle
        self.attribute = (ctypes.c_ulonglong * 9)()  # id, padding to 8, a union of 64 bytes
        struct.pack_into("=IIi", self.attribute, 0, self.SERIALIZATION, 0, 1)
        self.config = (ctypes.c_ulonglong * 7)()
        struct.pack_into("=7I", self.config, 0, *launch.grid, *launch.block, launch.shared)
        struct.pack_into("=QI", self.config, 40, ctypes.addressof(self.attribute), 1)

    def regrid(self, grid: Sequence[int]) -> None:
        struct.pack_into("=3I", self.config, 0, *grid)

    def __call__(self, stream: int, params: int) -> None:
        struct.pack_into("=Q", self.config, 32, stream)
        self.driver.launch_extended(self.config, self.function, params, 0)
