"""Devices: one runtime over the HIP runtime, the CUDA driver and the emulated device."""

from .device import Device, Properties, open_device
from .driver import DRIVERS, Driver, available, load_driver
from .failures import OutOfMemoryError
from .graph import Graph, GraphExec
from .memory import DeviceBuffer, PinnedBuffer
from .module import Function, Launch, Module
from .stream import Event, Stream

__all__ = [
    "DRIVERS",
    "Device",
    "DeviceBuffer",
    "Driver",
    "Event",
    "Function",
    "Graph",
    "GraphExec",
    "Launch",
    "Module",
    "OutOfMemoryError",
    "PinnedBuffer",
    "Properties",
    "Stream",
    "available",
    "load_driver",
    "open_device",
]
