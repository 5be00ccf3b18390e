"""The runtime on the emulated driver and on a fake of AMD's: equal calls and results."""

from __future__ import annotations

import functools
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mgx_core.errors import DeviceError, ParameterError
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.compile.rtc import Hiprtc
from mgx_gpu_hip.compile.source import parameter_codes
from mgx_gpu_hip.runtime import Driver, NullDevice, OutOfMemoryError, open_device, properties_of
from mgx_gpu_hip.runtime import device as device_module
from mgx_gpu_hip.runtime.driver import candidates
from mgx_gpu_hip.runtime.failures import CallError
from mgx_gpu_hip.runtime.graph import Capture
from mgx_gpu_hip.runtime.module import Function

TEXT = """KERNEL(256) axpy(const float* x, float* y, float a, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
KERNEL(256) mean(const half_t* x, half_t* y, u32 n) {
  SHARED(float, scratch, [32]);
  float s = 0;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) s += to_f(x[i]);
  s = block_reduce<Sum>(s, scratch);
  if (threadIdx.x == 0) y[0] = to_h(s / n);
}"""


class Axpy:
    name = "axpy"
    text = TEXT


@pytest.fixture
def code(device, request, monkeypatch):
    if device.kind == "host":
        compiler = compiler_for(device.arch)
    else:
        monkeypatch.setenv("MGX_HIPRTC_LIBRARY", str(request.getfixturevalue("fake_hip")))
        compiler = Hiprtc()
    return build([Axpy()], device.arch, compiler=compiler)[0]


@pytest.fixture
def axpy(device, code):
    return device.load(code.image).function("axpy", parameter_codes(TEXT, "axpy"))


@pytest.fixture
def x():
    return np.arange(1000, dtype=np.float32)


def test_properties(device):
    p = device.properties
    assert p.wave == (64 if device.index == 0 else 32)
    assert p.arch == (f"host{p.wave}" if device.kind == "host" else ["gfx90a", "gfx1100"][device.index])
    assert p.vendor == ("host" if device.kind == "host" else "amd")
    assert p.units > 0 and p.threads == 1024 and p.memory > 1 << 30 and p.shared >= p.shared_static >= 48 << 10
    free, total = device.memory()
    assert 0 < free <= total == p.memory


def test_launches_add_up(device, axpy, x):
    stream = device.stream()
    a, b = device.upload(x), device.upload(x)
    launch = axpy.bind((4,), (256,), 0, [a, b, 2.0, 1000])
    launch(stream.handle)
    launch.set(2, 0.5)
    launch(stream.handle)
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 3.5 * x)
    axpy.launch(stream, (4,), (256,), 0, [a.address, b.address, -3.5, 10])
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream)[:12], [0] * 10 + [35.0, 38.5])


def test_other_kernels_of_a_module(device, code, x):
    half = x.astype(np.float16)
    a, b = device.upload(half), device.allocate(2)
    device.load(code.image).function("mean", "PPI").launch(device.default_stream, (1,), (256,), 0, [a, b, 1000])
    assert device.download(np.empty(1, np.float16), b)[0] == np.float16(499.5)


def test_a_module_is_loaded_once(device, code):
    assert device.load(code.image) is device.load(bytes(bytearray(code.image)))


def test_graphs_replay_with_new_data_and_take_new_arguments(device, axpy, x):
    stream = device.stream()
    a, b = device.upload(x), device.upload(np.zeros_like(x))
    launch = axpy.bind((4,), (256,), 0, [a, b, 1.0, 1000])

    def record(times):
        with device.capture(stream) as capture:
            for _ in range(times):
                launch(stream.handle)
        return capture.graph

    graph = record(2)
    assert graph.nodes() == 2
    exec = graph.instantiate()
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 0 * x)  # nothing has run yet
    exec.launch(stream.handle)
    exec.launch(stream.handle)
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 4 * x)
    stream.copy_in(a.address, x[::-1].copy())
    stream.fill(b.address, 0, b.size)
    exec.launch(stream.handle)
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 2 * x[::-1])
    launch.set(2, 10.0)
    exec.launch(stream.handle)  # the arguments are those at capture time
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 4 * x[::-1])
    assert exec.update(record(2))
    exec.launch(stream.handle)
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, stream), 24 * x[::-1])
    assert not exec.update(record(3))


def test_capture_keeps_what_failed_inside_visible(device, axpy, x):
    stream = device.stream()
    with pytest.raises(ZeroDivisionError), device.capture(stream):
        1 / 0  # noqa: B018
    with pytest.raises(CallError, match="not allowed while a stream is captured"), device.capture(stream):
        stream.wait()
    stream.wait()
    launch = axpy.bind((4,), (256,), 0, [device.upload(x), device.upload(x), 1.0, 1000])
    with device.capture(stream) as capture:
        launch(stream.handle)
    assert capture.graph.nodes() == 1


class Plan:
    """An object in a reference cycle whose finalizer a driver would not allow during a capture."""

    def __init__(self, ended):
        self.itself, self.ended = self, ended

    def __del__(self):
        self.ended.append(gc.isenabled())


def test_garbage_is_not_collected_inside_a_capture(device):
    ended = []
    for _ in range(10):
        Plan(ended)
    with device.capture(device.stream()):
        kept = [[] for _ in range(2 * gc.get_threshold()[0])]  # one of which would start a collection
        assert not ended and kept
    gc.collect()
    assert len(ended) == 10


def test_buffers_dropped_inside_a_capture_are_freed_after_it(device):
    stream = device.stream()
    device.pool.trim()
    before = device.memory()[0]
    address = device.driver.out("malloc", 1 << 20)
    with device.capture(stream):
        device.dispose("free", address)
        assert device.memory()[0] < before
    assert device.memory()[0] == before


def test_events_time_and_order(device, axpy, x):
    stream, other = device.stream(), device.stream()
    a, b = device.upload(x), device.upload(x)
    start = device.event(timing=True).record(stream)
    axpy.launch(stream, (4,), (256,), 0, [a, b, 1.0, 1000])
    end = device.event(timing=True).record(stream)
    end.wait()
    assert end.done() and stream.done() and end.since(start) > 0
    other.after(end)
    other.after(stream)
    other.wait()
    with pytest.raises(CallError):
        device.event(timing=True).since(start)


def test_an_outside_stream_is_used_and_left_alone(device, axpy, x):
    mine = device.stream()
    theirs = device.stream(mine.handle)
    a, b = device.upload(x), device.upload(x)
    axpy.launch(theirs, (4,), (256,), 0, [a, b, 1.0, 1000])
    del theirs
    gc.collect()
    np.testing.assert_array_equal(device.download(np.empty_like(x), b, mine), 2 * x)


def test_copies_between_buffers_and_pinned_memory(device, x):
    stream = device.stream()
    pinned = device.pinned(x.nbytes)
    view = pinned.array(np.float32, (10, 100))
    view[...] = x.reshape(10, 100)
    a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
    stream.copy_in(a.address, view)
    stream.copy(b.address, a.part(400, 400).address, 400)
    stream.fill(b.address + 400, 0, x.nbytes - 400)
    out = device.download(np.empty_like(x), b, stream)
    np.testing.assert_array_equal(out, np.r_[x[100:200], np.zeros(900, np.float32)])
    with pytest.raises(DeviceError, match="bytes 3900 to 4100 exceed a buffer of 4000"):
        a.part(3900, 200)


def test_a_callers_memory_is_reached_while_it_is_registered(device, x):
    own, stream = np.zeros_like(x), device.stream()
    address, uploaded = own.__array_interface__["data"][0], device.upload(x)
    registered = device.registered(address, own.nbytes)
    stream.copy(address, uploaded.address, own.nbytes)
    stream.wait()
    np.testing.assert_array_equal(own, x)
    with pytest.raises(DeviceError):
        device.registered(address, own.nbytes)
    del registered
    gc.collect()
    device.registered(address, own.nbytes)


def test_running_out_of_memory_reports_the_request(device):
    free, total = device.memory()
    with pytest.raises(OutOfMemoryError, match=r"TiB|GiB requested, .* GiB of 8.00 GiB free") as caught:
        device.allocate(total + 1)
    assert caught.value.asked == total + 1 and caught.value.total == total and 0 < caught.value.free <= free
    assert device.allocate(64).size == 64


def test_faults_of_a_kernel_reach_the_caller(device, axpy):
    size = 1 << 21  # a whole block of the pool, with nothing after it
    a, b = device.allocate(size), device.allocate(size)
    n = size // 4
    message = (
        rf"launch of axpy on grid \(2049, 1, 1\).*IllegalAddress \(700\).*byte {size} of an allocation of {size} bytes"
    )
    with pytest.raises(DeviceError, match=message):
        axpy.launch(device.default_stream, (2049,), (256,), 0, [a, b, 1.0, n + 1])
    axpy.launch(device.default_stream, (2048,), (256,), 0, [a, b, 1.0, n])


def test_vendor_errors_have_their_name_and_advice(device, code):
    prefix = device.kind
    with pytest.raises(
        CallError, match=rf"{prefix}ModuleGetFunction: {prefix}ErrorNotFound \(500\).*; the module has no kernel"
    ) as caught:
        device.load(code.image).function("nope", "P")
    assert (caught.value.code, caught.value.error) == (500, f"{prefix}ErrorNotFound")
    with pytest.raises(CallError, match=r"ErrorNoBinaryForGpu \(209\)"):
        device.load(b"no code at all" * 10)
    wrong = compiler_for("host32" if device.properties.wave == 64 else "host64").compile(
        TEXT, (), f"host{96 - device.properties.wave}"
    )
    with pytest.raises(CallError, match="another architecture"):
        device.load(wrong)


def test_wrong_arguments_are_refused(axpy):
    with pytest.raises(ParameterError, match="axpy takes 4 arguments, got 3"):
        axpy.bind((1,), (64,), 0, [1, 2, 3])
    with pytest.raises(ParameterError, match=r"^parameter codes must be among .*P.*, got 'Xx'$"):
        Function(axpy.module, "axpy", "PxX")


def test_what_cannot_be_filled_or_was_not_captured_is_refused():
    device = open_device("host")
    held = device.upload(np.zeros((4, 4), np.float32))
    with pytest.raises(DeviceError, match=r"^a contiguous array is required$"):
        device.download(np.zeros((4, 8), np.float32)[:, ::2], held)
    with pytest.raises(DeviceError, match=r"^nothing was captured$"):
        Capture(device.default_stream).result()


def test_devices_that_are_not_there(device):
    with pytest.raises(DeviceError, match="device 7 is required, but only 2 are visible"):
        type(device)(device.driver, 7)
    with pytest.raises(DeviceError, match="a driver must be one of hip, cuda, host"):
        open_device("metal")


def test_shared_memory_that_cannot_be_measured_is_closed(monkeypatch):
    device, closed = open_device("host"), []

    def fails(*given):
        raise CallError("hostMemGetAddressRange", "hostErrorInvalidValue", 1, "")

    monkeypatch.setattr(device.driver, "ipc_open", lambda result, handle, flags: setattr(result._obj, "value", 4096))
    monkeypatch.setattr(device.driver, "ipc_close", closed.append)
    monkeypatch.setattr(device.driver, "address_range", fails)
    with pytest.raises(CallError, match="hostMemGetAddressRange"):
        device.open_shared(bytes(64), 16)
    assert closed == [4096]


def test_the_library_can_be_named(monkeypatch):
    monkeypatch.setenv("MGX_HIP_LIBRARY", "/nowhere/libamdhip64.so")
    assert candidates("hip") == ["/nowhere/libamdhip64.so"]
    with pytest.raises(
        DeviceError, match=r"the hip driver is not installed: none of /nowhere/libamdhip64.so could be loaded"
    ):
        Driver("hip")


def test_the_null_device_knows_its_architecture_and_runs_nothing():
    null = NullDevice("gfx1100")
    assert (null.arch, null.properties.wave, null.kind) == ("gfx1100", 32, "null")
    assert NullDevice("gfx942:sramecc+").properties.wave == 64 and NullDevice("sm_90a").arch == "sm_90"
    with pytest.raises(DeviceError, match="compiled for gfx1100 without a device"):
        null.allocate(8)
    with pytest.raises(DeviceError, match="an architecture must be one of"):
        NullDevice("gfx1")


def test_architectures_whose_launches_overlap() -> None:
    overlapping = [
        a
        for a in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "host32")
        if properties_of(a).dependent_launches
    ]
    assert overlapping == ["sm_90", "sm_100", "sm_120"]


def test_concurrent_requests_get_the_same_device(monkeypatch) -> None:
    opened: list[int] = []
    all_ask = threading.Barrier(4)

    def slow(driver: Driver, index: int) -> NullDevice:
        opened.append(index)
        time.sleep(0.1)  # the other threads request it meanwhile
        return NullDevice("gfx942")

    def ask(_: int) -> object:
        all_ask.wait(10)
        return open_device("host", 77)

    monkeypatch.setattr(device_module, "_opened", functools.cache(device_module._opened.__wrapped__))
    monkeypatch.setattr(device_module, "Device", slow)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert opened == [77] and all(d is found[0] for d in found)
