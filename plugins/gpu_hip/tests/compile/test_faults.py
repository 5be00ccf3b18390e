"""Faults injected into kernels are detected by the emulated device."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mgx_core.errors import DeviceError

SUM = """KERNEL(256) k(const float* x, float* y) {{
  SHARED(float, part, [256]);
  u32 i = threadIdx.x;
  part[i] = x[i];
  {FIRST}
  for (u32 s = 128; s; s /= 2) {{
    if (i < s) part[i] += part[i + s];
    {SECOND}
  }}
  y[i] = part[0];
}}"""
SYNC = "__syncthreads();"


def run(emulated, text, grid, block, args, order="forward", shared=0):
    emulated.compile(text).launch(grid, block, shared, args, order)


def sums(emulated, order, first=SYNC, second=SYNC):
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    run(emulated, SUM.format(FIRST=first, SECOND=second), (1,), (256,), [x, y], order)
    return (y == x.sum()).all()


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_the_right_kernel_passes_in_every_order(emulated, order):
    assert sums(emulated, order)


@pytest.mark.parametrize("missing", ["first", "second"])
def test_a_missing_barrier_shows_in_some_order(emulated, missing):
    assert not all(sums(emulated, order, **{missing: ""}) for order in ("forward", "backward", "shuffled"))


def test_a_barrier_that_some_threads_skip(emulated):
    with pytest.raises(DeviceError, match=r"divergent barrier, 228 of 256 threads wait"):
        sums(emulated, "forward", first="if (i < 228) __syncthreads();")


def test_a_thread_that_leaves_before_a_barrier(emulated):
    with pytest.raises(DeviceError, match="divergent barrier"):
        sums(emulated, "forward", first="if (i == 255) return; __syncthreads();")


CLUSTERS = """KERNEL(64) CLUSTER(2) k(float* y) {{
  SHARED(float, part, [64]);
  cluster_arrive();
  {WAIT}
  {ENDS}
  if (blockIdx.x % 2 == {FROM}) cluster_store(part + threadIdx.x, {TO}, (float)(blockIdx.x + threadIdx.x));
  cluster_arrive();
  cluster_wait();
  y[blockIdx.x * 64 + threadIdx.x] = part[threadIdx.x];
}}"""


def clusters(emulated, blocks=4, order="forward", wait="cluster_wait();", ranks=(1, 0), ends=""):
    """Returns what the blocks find in their shared memory."""
    y = np.zeros(64 * blocks, np.float32)
    text = CLUSTERS.format(WAIT=wait, ENDS=ends, FROM=f"{ranks[0]}u", TO=f"{ranks[1]}u")
    run(emulated, text, (blocks,), (64,), [y], order)
    return y.reshape(blocks, 64)


@pytest.mark.parametrize("ranks", [(1, 0), (0, 1)])
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_a_block_finds_what_others_of_its_cluster_stored(emulated, order, ranks):
    y = clusters(emulated, order=order, ranks=ranks)
    np.testing.assert_array_equal(y[ranks[1] :: 2], np.arange(64) + ranks[0] + np.array([[0], [2]]))
    assert np.isnan(y[ranks[0] :: 2]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(blocks=3), "in clusters of 2 blocks"),
        (dict(wait=""), "whose blocks may not have started"),
        (dict(ranks=(0, 1), ends="if (blockIdx.x % 2) return;"), "block 1 of a cluster, which has ended"),
        (dict(ranks=(1, 2)), "block 2 of a cluster of 2"),
    ],
    ids=["a part of a cluster", "a store too early", "a store too late", "a store outside"],
)
def test_faults_of_clusters(emulated, given, message):
    with pytest.raises(DeviceError, match=message):
        clusters(emulated, **given)


RING = """KERNEL(64) k(float* y) {
  SHARED(ring_t, full, [1]);
  if (threadIdx.x == 0) ring_init(full, ARRIVALS);
  __syncthreads();
  if (threadIdx.x < 32) { y[32 + threadIdx.x] = 3; ring_arrive(full); return; }
  ring_wait(full, 0);
  y[threadIdx.x - 32] = y[threadIdx.x];  // group_mma: asks for the prelude's rings
}"""


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_threads_wait_until_a_stage_is_full(emulated, order):
    y = np.zeros(64, np.float32)
    run(emulated, RING.replace("ARRIVALS", "32"), (1,), (64,), [y], order)
    assert (y == 3).all()


def test_a_wait_that_nothing_ends(emulated):
    with pytest.raises(DeviceError, match="32 threads wait for others, which make no progress"):
        run(emulated, RING.replace("ARRIVALS", "33"), (1,), (64,), [np.zeros(64, np.float32)])


def test_a_shuffle_without_all_lanes(emulated):
    text = "KERNEL(64) k(float* y) { u32 i = threadIdx.x; if (i < 20) y[i] = wave_xor((float)i, 16); }"
    with pytest.raises(DeviceError, match="shuffle from lane 20, which takes no part"):
        run(emulated, text, (1,), (64,), [np.zeros(64, np.float32)])


def test_reads_and_writes_past_an_end(emulated):
    text = "KERNEL(64) k(const float* x, float* y, u32 n) { u32 i = threadIdx.x; if (i < n) y[i] = x[i]; }"
    x, y = np.ones(40, np.float32), np.zeros(64, np.float32)
    with pytest.raises(
        DeviceError, match=r"thread \(40, 0, 0\): access out of bounds .*byte 160 of an allocation of 160 bytes"
    ):
        run(emulated, text, (1,), (64,), [x, y, 41])
    with pytest.raises(DeviceError, match=r"byte 160 of an allocation of 160 bytes"):
        run(emulated, text, (1,), (64,), [y, x, 41])
    run(emulated, text, (1,), (64,), [x, y, 40])
    assert y.sum() == 40


def test_writes_into_the_slack_of_an_odd_size(emulated):
    text = "KERNEL(64) k(float* y, u32 n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }"
    with pytest.raises(DeviceError, match="bytes next to an allocation of 28 bytes"):
        run(emulated, text, (1,), (64,), [np.zeros(7, np.float32), 8])


def test_writes_before_a_start(emulated):
    text = "KERNEL(64) k(float* y) { if (threadIdx.x == 0) y[-2] = 1; }"
    with pytest.raises(DeviceError, match="bytes next to an allocation"):
        run(emulated, text, (1,), (64,), [np.zeros(8, np.float32)])


@pytest.fixture
def guard_before(emulated):
    """An emulated device whose allocations start at a guard page."""
    emulated.library.hostSetGuard(0x11, 1)
    yield emulated
    emulated.library.hostSetGuard(0xFF, 0)


def test_reads_before_a_start(guard_before):
    text = "KERNEL(64) k(const float* x, float* y, int n) { if (threadIdx.x == 0) y[0] = x[n]; }"
    with pytest.raises(DeviceError, match="byte -4 of an allocation of 32 bytes"):
        run(guard_before, text, (1,), (64,), [np.ones(8, np.float32), np.zeros(1, np.float32), -1])
    text = "KERNEL(64) k(float* y) { if (threadIdx.x == 0) y[8] = 1; }"
    with pytest.raises(DeviceError, match="bytes next to an allocation of 32 bytes"):
        run(guard_before, text, (1,), (64,), [np.zeros(8, np.float32)])


def test_memory_that_may_only_be_read_and_memory_out_of_reach(emulated):
    kernel = emulated.compile("KERNEL(64) k(float* y, i32 put) { if (put) y[0] = 1; else if (y[0] == 7) y[0] = 2; }")
    held = emulated.array(np.zeros(4, np.float32))
    protect = emulated.library.hostProtect
    assert protect(ctypes.c_size_t(held + 4), 1) and protect(ctypes.c_size_t(held), 3)  # no allocation; no such access
    assert protect(ctypes.c_size_t(held), 1) == 0
    kernel.launch((1,), (64,), 0, [held, 0])
    with pytest.raises(DeviceError, match="of 16 bytes that may only be read now"):
        kernel.launch((1,), (64,), 0, [held, 1])
    assert protect(ctypes.c_size_t(held), 0) == 0
    with pytest.raises(DeviceError, match="of 16 bytes that may not be touched now"):
        kernel.launch((1,), (64,), 0, [held, 0])
    assert protect(ctypes.c_size_t(held), 2) == 0
    kernel.launch((1,), (64,), 0, [held, 1])
    emulated.free(held)


def test_a_block_that_needs_another_shows_when_they_run_backwards(emulated):
    text = "KERNEL(64) k(float* y) { if (threadIdx.x == 0) y[blockIdx.x] = blockIdx.x ? y[blockIdx.x - 1] + 1 : 1; }"
    forward, backward = np.zeros(9, np.float32), np.zeros(9, np.float32)
    run(emulated, text, (9,), (64,), [forward])
    run(emulated, text, (9,), (64,), [backward], "backward")
    assert (forward == np.arange(1, 10)).all() and (backward == 1).all()


def test_memory_that_was_never_written_is_nan(emulated):
    text = """KERNEL(64) k(float* y) { SHARED(float, s, [64]); if (threadIdx.x != 9) s[threadIdx.x] = 1;
      __syncthreads(); y[threadIdx.x] = s[threadIdx.x]; }"""
    y = np.zeros(64, np.float32)
    run(emulated, text, (1,), (64,), [y])
    assert np.isnan(y[9]) and np.isnan(y).sum() == 1


def test_shared_memory_does_not_survive_a_block(emulated):
    text = """KERNEL(64) k(float* y) { SHARED(float, s, [64]); if (blockIdx.x == 0) s[threadIdx.x] = 1;
      __syncthreads(); y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x]; }"""
    y = np.zeros(128, np.float32)
    run(emulated, text, (2,), (64,), [y])
    assert (y[:64] == 1).all() and np.isnan(y[64:]).all()


@pytest.mark.parametrize("dynamic", [False, True])
def test_shared_arrays_end_where_declared(emulated, dynamic):
    array = "SHARED_DYNAMIC(float, s)" if dynamic else "SHARED(float, s, [64])"
    text = f"""KERNEL(64) k(float* y, u32 n) {{ {array}; s[threadIdx.x + n] = 1; __syncthreads();
      y[threadIdx.x] = s[threadIdx.x + n]; }}"""
    y = np.zeros(64, np.float32)
    run(emulated, text, (1,), (64,), [y, 0], shared=256)
    assert (y == 1).all()
    with pytest.raises(DeviceError, match="256 bytes from the start of a shared array of 256 bytes"):
        run(emulated, text, (1,), (64,), [y, 1], shared=256)


def test_too_much_shared_memory(emulated):
    text = """KERNEL(64) k(float* y) { SHARED(float, s, [12000]); SHARED(float, t, [5000]);
      s[threadIdx.x] = 0; y[threadIdx.x] = t[0]; }"""
    with pytest.raises(DeviceError, match=r"declares 68000 bytes of shared memory, at most (49152|65536) are allowed"):
        run(emulated, text, (1,), (64,), [np.zeros(64, np.float32)])


def test_too_much_shared_memory_including_the_launchs_request(emulated):
    text = """KERNEL(64) k(float* y) { SHARED(float, s, [12000]); SHARED_DYNAMIC(float, t);
      s[threadIdx.x] = 0; y[threadIdx.x] = t[0]; }"""
    most = 65536 if emulated.wave == 64 else 232448
    run(emulated, text, (1,), (64,), [np.zeros(64, np.float32)], shared=most - 48000)
    with pytest.raises(DeviceError, match=f"{most + 16} bytes of shared memory, the device has {most}"):
        run(emulated, text, (1,), (64,), [np.zeros(64, np.float32)], shared=most - 47984)


def test_vectors_that_are_not_aligned(emulated):
    text = "KERNEL(64) k(const float* x, float* y) { stv(y, ldv<float, 4>(x + 1)); }"
    with pytest.raises(DeviceError, match=r"access of 16 bytes .* is not aligned"):
        run(emulated, text, (1,), (64,), [np.zeros(64, np.float32), np.zeros(64, np.float32)])


def test_division_by_zero_and_wild_pointers(emulated):
    with pytest.raises(DeviceError, match="integer division by zero"):
        run(emulated, "KERNEL(64) k(i32* y, i32 z) { y[0] = 7 / z; }", (1,), (64,), [np.zeros(1, np.int32), 0])
    with pytest.raises(DeviceError, match="which is in no allocation"):
        run(emulated, "KERNEL(64) k(i32* y, u64 at) { y[0] = *(i32*)at; }", (1,), (64,), [np.zeros(1, np.int32), 64])


def test_a_stack_that_is_too_small(emulated):
    text = """DEV int deep(int n, volatile int* p) { volatile int a[4096]; a[0] = n;
      return n ? deep(n - 1, a) + a[0] : p[0]; } KERNEL(64) k(i32* y) { y[0] = deep(100, y); }"""
    text = text.replace("DEV int", "int")
    with pytest.raises(DeviceError, match=r"past the end of the thread's stack|out of bounds"):
        run(emulated, text, (1,), (64,), [np.zeros(1, np.int32)])


def test_launches_that_no_device_accepts(emulated):
    kernel = emulated.compile("KERNEL(64) k(float* y) { y[0] = 1; }")
    for grid, block in (((1,), (2048,)), ((0,), (64,)), ((1, 70000), (64,))):
        with pytest.raises(DeviceError, match="ErrorInvalidValue"):
            kernel.launch(grid, block, 0, [np.zeros(1, np.float32)])


def test_the_device_works_after_a_fault(emulated):
    for _ in range(3):
        with pytest.raises(DeviceError):
            sums(emulated, "forward", first="if (i < 3) __syncthreads();")
        assert sums(emulated, "forward")
