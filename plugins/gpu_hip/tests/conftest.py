"""What the tests of the gpu target share: a cache of their own, emulated devices, a stand-in for AMD's runtime."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mgx_gpu_hip.compile import gxx
from mgx_gpu_hip.compile.host import HostDevice
from mgx_gpu_hip.runtime import Device, Driver, open_device

needs_cxx = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler here")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(needs_cxx)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MGX_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(params=[32, 64], ids=["wave32", "wave64"])
def emulated(request):
    """An emulated device by itself, of either wave."""
    return HostDevice(request.param)


@pytest.fixture(scope="session")
def fake_hip(cache_folder):
    """Path of the stand-in libamdhip64."""
    source = Path(__file__).parent / "fake_hip" / "fake_hip.cpp"
    emulator = gxx.EMULATOR
    return gxx.build([emulator / "device.cpp", source], "libamdhip64", [f'-DEMULATOR="{emulator}"'])


@pytest.fixture(scope="session")
def fake_driver(fake_hip):
    return Driver("hip", str(fake_hip))


@pytest.fixture(params=["host:0", "host:1", "hip:0", "hip:1"])
def device(request):
    """A device of the emulated driver and of the stand-in for AMD's, of either wave."""
    kind, index = request.param.split(":")
    if kind == "host":
        return open_device("host", int(index))
    return Device(request.getfixturevalue("fake_driver"), int(index))


@pytest.fixture
def rng():
    return np.random.default_rng(5)
