"""Devices: one runtime over the HIP runtime, the CUDA driver and the emulated device."""

from .device import Device, NullDevice, Properties, open_device, properties_of
from .driver import DRIVERS, Driver, available, in_use, load_driver
from .failures import CallError, OutOfMemoryError
from .graph import Graph, GraphExec
from .interop import DeviceArray, import_array, is_device_array
from .memory import DeviceBuffer, PinnedBuffer
from .module import Function, Launch, Module
from .stream import Event, Stream

__all__ = [
    "CallError", "DRIVERS", "Device", "DeviceArray", "DeviceBuffer", "Driver", "Event", "Function", "Graph",
    "GraphExec", "Launch", "Module", "NullDevice", "OutOfMemoryError", "PinnedBuffer", "Properties", "Stream",
    "available", "import_array", "in_use", "is_device_array", "load_driver", "open_device", "properties_of",
]  # fmt: skip
