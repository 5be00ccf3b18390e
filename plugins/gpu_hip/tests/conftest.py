"""Fixtures of the gpu target's tests: a separate cache, emulated devices, a fake of AMD's runtime."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from emulated_device import HostDevice

from mgx_gpu_hip.compile import gxx
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.source import kernels, parameter_codes, signature
from mgx_gpu_hip.runtime import Device, Driver, available, open_device


def pytest_collection_modifyitems(items):
    if any(map(shutil.which, ("g++", "clang++", "c++"))):
        return
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.skip(reason="no C++ compiler is installed"))


@pytest.fixture(scope="session", autouse=True)
def cache_folder(request, tmp_path_factory):
    """A cache for this session, except for compiled code, which is keyed by its inputs and persists."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        cache = getattr(request.config, "cache", None)  # missing with -p no:cacheprovider
        if cache is not None:
            for name in ("kernels", "emulator"):
                (folder / name).symlink_to(cache.mkdir(f"mgx-{name}").resolve())
        patch.setenv("MGX_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(params=[0, 1, pytest.param(None, marks=pytest.mark.gpu)], ids=["wave64", "wave32", "gpu"])
def driver_and_device(request):
    """Arguments of `GpuTarget` for each emulated device, and none for a real GPU."""
    if request.param is not None:
        return "host", request.param
    if not available():
        pytest.skip("no GPU found")
    return ()


class RealDevice:
    """A real GPU with the interface of the emulated device."""

    def __init__(self, flags=()):
        found = available()
        if not found:
            pytest.skip("no GPU found")
        self.device = open_device(found[0])
        self.wave = self.device.properties.wave
        self.flags = tuple(flags)

    def compile(self, text, name="", flags=()):
        name = name or kernels(text)[0]
        source = SimpleNamespace(name=name, text=text, flags=(*self.flags, *flags))
        code = build([source], self.device.arch)[0]
        function = self.device.load(code.image).function(name, parameter_codes(text, name))
        return RealKernel(self.device, function, signature(text, name))


class RealKernel:
    def __init__(self, device, function, parameters):
        self.device, self.function, self.parameters = device, function, parameters

    def launch(self, grid, block, shared, args, order=None):
        held = [self.device.upload(a) if isinstance(a, np.ndarray) else a for a in args]
        self.function.launch(self.device.default_stream, grid, block, shared, held)
        for array, buffer, parameter in zip(args, held, self.parameters, strict=True):
            if isinstance(array, np.ndarray) and not parameter.const:
                self.device.download(array, buffer)
        self.device.wait()

    __call__ = launch


@pytest.fixture(params=[32, 64], ids=["wave32", "wave64"])
def emulated(request):
    """An emulated device without the driver, for both wave sizes."""
    return HostDevice(request.param)


@pytest.fixture(params=[32, 64, pytest.param(0, marks=pytest.mark.gpu)], ids=["wave32", "wave64", "gpu"])
def runner(request):
    """An emulated device for both wave sizes, or the GPU if there is one."""
    return HostDevice(request.param) if request.param else RealDevice()


@pytest.fixture(params=[32, pytest.param(0, marks=pytest.mark.gpu)], ids=["wave32", "gpu"])
def lanes(request):
    """For tests that use single lanes only: the emulated device, or the GPU if there is one."""
    return HostDevice(request.param) if request.param else RealDevice()


@pytest.fixture
def gpu():
    """The GPU of this machine."""
    return RealDevice()


@pytest.fixture(scope="session")
def fake_hip(cache_folder):
    """Path of the fake libamdhip64.

    Its compiler's version depends on the emulator's headers, which kernels that it compiled before would not fit.
    """
    source = Path(__file__).parent / "fake_hip" / "fake_hip.cpp"
    emulator = gxx.EMULATOR
    version = zlib.crc32(b"".join(file.read_bytes() for file in sorted(emulator.glob("*.h")))) >> 1
    return gxx.build(
        [emulator / "device.cpp", source], "libamdhip64", [f'-DEMULATOR="{emulator}"', f"-DVERSION={version}"]
    )


@pytest.fixture(scope="session")
def fake_driver(fake_hip):
    return Driver("hip", str(fake_hip))


@pytest.fixture(params=["host:0", "host:1", "hip:0", "hip:1"])
def device(request):
    """A device of the emulated driver and of the fake of AMD's, for both wave sizes."""
    kind, index = request.param.split(":")
    if kind == "host":
        return open_device("host", int(index))
    return Device(request.getfixturevalue("fake_driver"), int(index))


@pytest.fixture
def rng():
    return np.random.default_rng(5)
