"""Arguments in device memory allocated by the caller."""

from __future__ import annotations

import os

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_gpu_hip.runtime import DeviceArray


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [])  # a context for this test only


@pytest.mark.parametrize("of", [np.float32, np.int64, np.bool_, np.float16])
def test_there_and_back(of) -> None:
    array = (np.arange(12) % 5).astype(of).reshape(3, 4)
    held = mgx.to_gpu(array.T)
    assert (held.shape.dims, held.shape.dtype.numpy) == ((4, 3), array.dtype)
    np.testing.assert_array_equal(mgx.from_gpu(held).to_numpy(), array.T)
    assert mgx.from_gpu(mgx.to_gpu(np.zeros((0, 3), of))).shape.dims == (0, 3)


def test_a_program_on_memory_of_the_caller() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    shape = mgx.Shape("float", [2, 3])
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", shape))])
    program.compile(mgx.get_gpu_context(), offload_copy=False)
    x, y = mgx.to_gpu(mgx.Argument(np.array([[-1, 2, -3], [4, -5, 6]], np.float32))), mgx.allocate_gpu(shape)
    (result,) = program.run_async({"x": x, "main:#output_0": y})
    mgx.gpu_sync()
    assert result.data_ptr() == y.data_ptr()
    np.testing.assert_array_equal(mgx.from_gpu(y).to_numpy(), [[0, 2, 0], [4, 0, 6]])


@pytest.mark.parametrize(
    ("dims", "strides"), [((1, 3), (1, 1)), ((1, 1, 3), (9, 3, 1)), ((3, 1), (1, 5)), ((0, 3), (1, 1))]
)
def test_axes_of_one_element_may_have_any_stride(dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """The last step of a sequence, with the caller's strides of all steps, counts as contiguous."""
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("neg"), m.add_parameter("x", mgx.Shape("float", dims)))])
    context = mgx.get_gpu_context()
    program.compile(context)
    held = mgx.to_gpu(np.float32([1, 2, 3]))
    (result,) = program.run({"x": DeviceArray(held.value.buffer, dt.float32, dims, strides)})
    np.testing.assert_array_equal(result.to_numpy(), -np.float32([1, 2, 3][: np.prod(dims)]).reshape(dims))


@pytest.mark.parametrize("around", [False, True])
def test_host_steps_read_the_callers_memory(around: bool) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    y = m.add_parameter("x", mgx.Shape("float", [1, 1, 4, 4]))
    y = m.add(mgx.op("neg"), y) if around else y
    y = m.add(mgx.op("inverse"), y)
    m.add_return([m.add(mgx.op("neg"), y) if around else y])
    program.compile(mgx.get_gpu_context(), offload_copy=False)
    for shift in (0, 100):
        x = np.diag(np.float32([1, 2, 3, 4])).reshape(1, 1, 4, 4) * (1 + shift)
        for run in (program.run, program.run_async):
            (result,) = run({"x": mgx.to_gpu(x)})
            mgx.gpu_sync()
            np.testing.assert_allclose(mgx.from_gpu(result).to_numpy(), np.linalg.inv(x), rtol=1e-6)


def test_non_tensors_and_tensors_elsewhere() -> None:
    with pytest.raises(ParameterError, match="in device memory is required"):
        mgx.from_gpu(mgx.Argument(np.ones(2)))
    with pytest.raises(ParameterError, match="a tensor is required"):
        mgx.to_gpu(mgx.Argument((np.ones(2), np.ones(3))))


def relu_on_the_device() -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float", [2, 3])))])
    program.compile(mgx.get_gpu_context(), offload_copy=False)
    return program


def test_run_writes_to_the_places_of_results() -> None:
    program = relu_on_the_device()
    assert program.get_parameter_names() == ["x", "main:#output_0"]
    assert program.get_parameter_shapes()["main:#output_0"] == mgx.Shape("float", [2, 3])
    x, y = mgx.to_gpu(np.array([[-1, 2, -3], [4, -5, 6]], np.float32)), mgx.allocate_gpu(mgx.Shape("float", [2, 3]))
    (result,) = program.run({"x": x, "main:#output_0": y})
    assert result.data_ptr() == y.data_ptr()
    np.testing.assert_array_equal(mgx.from_gpu(y).to_numpy(), [[0, 2, 0], [4, 0, 6]])
    own = program.run({"x": x})[0]
    assert own == y
    assert own.data_ptr() != y.data_ptr()


def test_places_that_do_not_fit() -> None:
    program = relu_on_the_device()
    x = mgx.to_gpu(np.ones((2, 3), np.float32))
    with pytest.raises(ParameterError, match=r"'main:#output_0' must be float32\[2, 3\], got float32\[3, 2\]"):
        program.run({"x": x, "main:#output_0": mgx.allocate_gpu(mgx.Shape("float", [3, 2]))})
    with pytest.raises(ParameterError, match="'main:#output_1'"):
        program.run({"x": x, "main:#output_1": mgx.allocate_gpu(mgx.Shape("float", [2, 3]))})


def test_values_on_the_device_compare_and_print() -> None:
    x, same, other = (mgx.to_gpu(np.array(v, np.float32)) for v in ([1, 2], [1, 2], [1, 3]))
    assert x == x
    assert x == same
    assert x == mgx.Argument(np.array([1, 2], np.float32))
    assert x != other
    assert x.tolist() == [1, 2]
    assert "[1., 2.]" in repr(x)


def test_addresses_of_device_memory() -> None:
    held = mgx.to_gpu(np.arange(6, dtype=np.float32))
    seen = mgx.argument_from_pointer(mgx.Shape("float", [3, 2]), held.data_ptr())
    assert seen.on_device
    np.testing.assert_array_equal(mgx.from_gpu(seen).to_numpy(), [[0, 1], [2, 3], [4, 5]])
    array = np.ones(3, np.float32)
    assert not mgx.argument_from_pointer(mgx.Shape("float", [3]), array.ctypes.data).on_device


def test_addresses_of_host_memory_open_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from mgx_gpu_hip import context

    def opened(kind: str, index: int) -> None:
        raise AssertionError(f"{kind}:{index} was opened")

    monkeypatch.setattr(context, "open_device", opened)
    monkeypatch.setattr(context, "in_use", lambda kind, index: False)
    array = np.ones(3, np.float32)
    seen = mgx.argument_from_pointer(mgx.Shape("float", [3]), array.ctypes.data)
    assert not seen.on_device
    assert "device" not in vars(mgx.get_gpu_context())


@pytest.mark.parametrize("kind", ["", "cuda", "hip"])
def test_a_driver_that_is_not_loaded_is_not_in_use(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgx_gpu_hip.runtime import driver

    def loaded(path: str, mode: int = 0) -> None:
        assert mode & os.RTLD_NOLOAD, f"{path} is loaded"
        raise OSError

    monkeypatch.setattr(driver.ctypes, "CDLL", loaded)
    assert not driver.in_use(kind, 0)


def test_host_copies_of_the_same_functions() -> None:
    array = np.ones((2, 2), np.float32)
    kept = mgx.to_gpu(array, host=True)
    assert not kept.on_device
    assert kept.data_ptr() != array.ctypes.data
    assert mgx.allocate_gpu(mgx.Shape("half", [3, 4]), host=True).get_shape() == mgx.Shape("half", [3, 4])


def test_numpy_copies_of_device_memory_persist() -> None:
    array = np.arange(4096, dtype=np.float32)
    held = mgx.to_gpu(array)
    taken = np.asarray(held)  # numpy requests a buffer, then an array interface, and keeps only the argument alive
    others = [np.zeros_like(array) for _ in range(8)]
    np.testing.assert_array_equal(taken, array)
    assert not any(o.any() for o in others) and not hasattr(held, "__array_interface__")
