"""The emulated device without a driver: compiles kernel source with the host's C++ compiler and runs it on arrays."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from mgx_core.errors import DeviceError, ParameterError
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.gxx import HostCompiler, emulator_library
from mgx_gpu_hip.compile.source import Parameter, kernels, signature

__all__ = ["HostDevice", "HostFunction"]

ORDERS: Final = {"forward": 0, "backward": 1, "shuffled": 7}


class _Text(NamedTuple):
    name: str
    text: str
    flags: tuple[str, ...]


class HostFunction:
    """A kernel on the emulated device."""

    def __init__(self, device: HostDevice, handle: int, name: str, parameters: tuple[Parameter, ...]) -> None:
        self.device = device
        self.handle = handle
        self.name = name
        self.parameters = parameters

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        args: Sequence[Any],
        order: str | int | None = None,
    ) -> None:
        """Runs to completion.

        args: for pointers, numpy arrays (the kernel's writes are copied back; other memory is inaccessible, and reading past an
        end is an error) or addresses from ``HostDevice.array``; numbers for scalars.
        Errors: DeviceError for errors detected in the kernel.
        """
        self.device.run(self, grid, block, shared_bytes, args, order)

    __call__ = launch


class HostDevice:
    """An emulated GPU with waves of `wave` lanes; threads run ``forward``, ``backward``, ``shuffled`` or by a seed above 1."""

    def __init__(self, wave: int = 32, order: str | int = "forward", flags: Sequence[str] = ()) -> None:
        self.wave = wave
        self.order = order
        self.flags = tuple(flags)
        self.compiler = HostCompiler()
        self.library = ctypes.CDLL(str(emulator_library()), mode=ctypes.RTLD_LOCAL)
        self.library.hostLastFault.restype = self.library.hostGetErrorName.restype = ctypes.c_char_p
        self.library.hostInit(0)

    def compile(self, text: str, name: str = "", flags: Sequence[str] = ()) -> HostFunction:
        """Returns the kernel `name` of a source (its only or first one by default)."""
        names = kernels(text)
        if not names:
            raise ParameterError("the text defines no kernel with KERNEL(threads) name(...)")
        name = name or names[0]
        image = build([_Text(name, text, (*self.flags, *flags))], f"host{self.wave}", compiler=self.compiler)[0].image
        module, function = ctypes.c_size_t(), ctypes.c_size_t()
        buffer = ctypes.create_string_buffer(image, len(image))
        self.library.hostSetDevice(0 if self.wave == 64 else 1)
        self._check(
            self.library.hostModuleLoadData(ctypes.byref(module), ctypes.c_size_t(ctypes.addressof(buffer))), name
        )
        self._check(self.library.hostModuleGetFunction(ctypes.byref(function), module, name.encode()), name)
        return HostFunction(self, function.value, name, signature(text, name))

    def run(
        self,
        function: HostFunction,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        args: Sequence[Any],
        order: str | int | None = None,
    ) -> None:
        """Launches a kernel of this device; see ``HostFunction.launch``."""
        parameters = function.parameters
        if len(args) != len(parameters):
            raise ParameterError(f"{function.name} takes {len(parameters)} arguments, got {len(args)}")
        order = self.order if order is None else order
        self.library.hostSetOrder(ORDERS[order] if isinstance(order, str) else order)
        self.library.hostSetDevice(0 if self.wave == 64 else 1)
        held: dict[int, tuple[int, np.ndarray[Any, Any], bool]] = {}
        packed: list[Any] = []
        try:
            for parameter, value in zip(parameters, args, strict=True):
                if parameter.code != "P":
                    value = float(value) if parameter.code in "fd" else int(value)
                    packed.append(ctypes.create_string_buffer(struct.pack("=" + parameter.code, value)))
                    continue
                if isinstance(value, np.ndarray):
                    if not value.flags.c_contiguous:
                        raise ParameterError(f"argument {parameter.name} must be contiguous")
                    key = value.__array_interface__["data"][0]
                    if key not in held or not value.nbytes:
                        held[key] = (self.array(value), value, False)
                    address = held[key][0]
                    held[key] = (address, value, held[key][2] or not parameter.const)
                    value = address
                packed.append(ctypes.c_size_t(int(value or 0)))
            pointers = (ctypes.c_void_p * max(len(packed), 1))(*[ctypes.addressof(p) for p in packed])
            shape = [*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3]]
            code = self.library.hostModuleLaunchKernel(
                ctypes.c_size_t(function.handle),
                *map(int, shape),
                int(shared_bytes),
                ctypes.c_size_t(0),
                ctypes.c_size_t(ctypes.addressof(pointers)),
                ctypes.c_size_t(0),
            )
            self._check(code, function.name)
            self._check(self.library.hostDeviceSynchronize(), function.name)
            for address, array, written in held.values():
                if written and array.nbytes:
                    ctypes.memmove(array.__array_interface__["data"][0], address, array.nbytes)
        finally:
            for address, _, _ in held.values():
                self.library.hostFree(ctypes.c_size_t(address))

    def array(self, value: np.ndarray[Any, Any]) -> int:
        """Returns the address of a copy of the array between guard pages; ``free`` releases it."""
        address = ctypes.c_size_t()
        self._check(self.library.hostMalloc(ctypes.byref(address), ctypes.c_size_t(value.nbytes)), "malloc")
        if value.nbytes:
            ctypes.memmove(address.value, value.__array_interface__["data"][0], value.nbytes)
        return address.value

    def free(self, address: int) -> None:
        self._check(self.library.hostFree(ctypes.c_size_t(address)), "free")

    def _check(self, code: int, what: str) -> None:
        if code:
            name = self.library.hostGetErrorName(code).decode()
            fault = self.library.hostLastFault().decode()
            raise DeviceError(f"emulated device, {what}: {name} ({code}){': ' + fault if fault else ''}")
