"""The caching allocator of device memory."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from mgx_core.errors import DeviceError
from mgx_gpu_hip.runtime import Device, memory, open_device
from mgx_gpu_hip.runtime.failures import CallError
from mgx_gpu_hip.runtime.memory import OutOfMemoryError, Pool


@pytest.fixture
def device(fake_driver):
    return Device(fake_driver, 0)


def test_freed_memory_is_reused(device):
    first = device.allocate(10_000)
    address = first.address
    first.free()
    assert device.pool.cached == device.pool.reserved == 10_240
    second = device.allocate(9_900)
    assert second.address == address and device.pool.cached == 0
    third = device.allocate(9_900)
    assert third.address != address
    assert device.pool.reserved == 2 * 10_240


def test_a_block_that_is_much_larger_is_not_wasted(device):
    device.allocate(100 << 20).free()
    small = device.allocate(50 << 20)
    assert device.pool.reserved == 150 << 20
    small.free()
    assert device.pool.trim() == 150 << 20
    assert device.pool.reserved == device.pool.cached == 0


def test_dropping_the_last_reference_frees(device):
    buffer = device.allocate(4096)
    part = buffer.part(1024, 16)
    del buffer
    gc.collect()
    assert device.pool.cached == 0
    del part
    gc.collect()
    assert device.pool.cached == 4096


def test_memory_in_use_on_a_stream_waits_for_it(device, monkeypatch):
    stream = device.stream()
    buffer = device.allocate(4096)
    buffer.used_on(stream)
    monkeypatch.setattr("mgx_gpu_hip.runtime.stream.Event.done", lambda self: False)
    buffer.free()
    assert device.pool.cached == 0
    other = device.allocate(4096)
    assert device.pool.reserved == 8192
    monkeypatch.undo()
    again = device.allocate(4096)
    assert device.pool.reserved == 8192 and again.address != other.address


def test_all_cached_memory_is_released_before_memory_runs_out(device, monkeypatch):
    """On a device of 100 MiB, because the emulated device writes all memory that it allocates."""
    real = device.driver.out

    def out(call, *arguments):
        if call == "malloc" and device.pool.reserved + arguments[0] > 100 << 20:
            return real("malloc", 1 << 60)  # which the driver rejects, as it does when memory runs out
        return real(call, *arguments)

    monkeypatch.setattr(device.driver, "out", out)
    device.allocate(50 << 20).free()
    assert device.pool.cached == 50 << 20
    large = device.allocate(80 << 20)
    assert (large.size, device.pool.cached) == (80 << 20, 0)
    with pytest.raises(OutOfMemoryError):
        device.allocate(80 << 20)


def test_sizes(device):
    empty = device.allocate(0)
    assert (empty.size, empty.address) == (0, 0)
    with pytest.raises(DeviceError, match="at least 0 bytes"):
        device.allocate(-1)
    exact = Pool(device, exact=True)
    buffer = exact.allocate(1000)
    assert exact.reserved == 1000
    buffer.free()
    assert exact.reserved == 0


def test_random_sizes_from_threads_stay_flat(device):
    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(300):
            held.append(device.allocate(int(rng.integers(1, 200_000))))
            if len(held) > 8:
                held.pop(int(rng.integers(8))).free()

    for _ in range(2):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    gc.collect()
    assert device.pool.reserved == device.pool.cached < 4 * 10 * 200_000 * 4
    device.pool.trim()
    assert device.pool.reserved == 0


def test_sizes_that_keep_growing_leave_little_unused(device, monkeypatch):
    monkeypatch.setattr(memory, "MAX_IDLE", 4 << 20)
    for n in range(1, 12):
        device.allocate(n * (2 << 20)).free()
        assert device.pool.cached <= (4 << 20) + n * (2 << 20)
    assert device.pool.reserved == device.pool.cached


@pytest.mark.parametrize("number", [0, 1], ids=["wave64", "wave32"])
def test_memory_is_allocated_while_a_stream_is_captured(number):
    device = open_device("host", number)
    stream = device.stream()
    with device.capture(stream) as capture:
        with pytest.raises(CallError, match="captured"):
            device.driver.out("malloc", 4096)
        buffer = device.allocate(3 << 20)
        stream.fill(buffer.address, 7, buffer.size)
    capture.instantiate().launch(stream.handle)
    assert (device.download(np.empty(3 << 20, np.uint8), buffer, stream) == 7).all()
