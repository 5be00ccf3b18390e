"""Shared-memory regions on a device, shared by clients through a driver handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import Context, MgxError, Shape, UnsupportedError

from .errors import BadRequest, Unsupported
from .shared_memory import Memory, Region

__all__ = ["DeviceRegion"]


@dataclass(frozen=True)
class DeviceRegion(Region):
    """The first size bytes of an allocation on a device.

    handle: IPC handle from the owner's driver; device: index; target: the device's target, "" for the best one on this machine.
    """

    handle: bytes
    device: int
    target: str = ""

    def opened(self) -> Memory:
        try:
            target = mgx.get_target(self.target or mgx.best_target())
            if not target.own_memory:
                raise Unsupported(
                    f"region {self.name!r}: target {target.name!r} has no device memory that clients could share; a server "
                    "with a GPU, and the gpu target, is required"
                )
            context = target.get_context()
            return _DeviceMemory(self.name, context, context.open_shared(self.handle, self.size, self.device))
        except UnsupportedError as error:
            raise Unsupported(f"region {self.name!r}: {error}") from error
        except MgxError as error:
            raise BadRequest(f"region {self.name!r}: {error}") from error


class _DeviceMemory(Memory):
    """Another process's device memory, mapped at `address`; copies are synchronous and go through the target's context.

    name: the region's name for messages; context: context of the device's target.
    """

    def __init__(self, name: str, context: Context, address: int) -> None:
        self._name, self._context, self._address = name, context, address

    def _part(self, at: int, size: int) -> Any:
        return self._context.borrow(Shape("uint8", [size]), self._address + at)

    def read(self, at: int, size: int) -> memoryview:
        made = memoryview(np.empty(size, np.uint8)).cast("B")
        self.read_into(at, made)
        return made

    def read_into(self, at: int, place: memoryview) -> None:
        if len(place):
            self._copy(self._part(at, len(place)), np.frombuffer(place, np.uint8))

    def write(self, at: int, data: bytes | memoryview) -> None:
        if len(data):
            self._copy(np.frombuffer(data, np.uint8), self._part(at, len(data)))

    def _copy(self, source: Any, place: Any) -> None:
        try:
            self._context.copy(source, place)
        except MgxError as error:
            raise BadRequest(f"region {self._name!r}: {error}") from error

    def close(self) -> None:
        self._context.close_shared(self._address)
