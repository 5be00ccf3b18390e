"""Arguments that callers put into device memory themselves."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ParameterError
from mgx_gpu_hip import transfer


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    transfer.get_gpu_context.cache_clear()
    yield
    transfer.get_gpu_context.cache_clear()


@pytest.mark.parametrize("of", [np.float32, np.int64, np.bool_, np.float16])
def test_there_and_back(of) -> None:
    array = (np.arange(12) % 5).astype(of).reshape(3, 4)
    held = transfer.to_gpu(array.T)
    assert (held.shape.dims, held.shape.dtype.numpy) == ((4, 3), array.dtype)
    np.testing.assert_array_equal(transfer.from_gpu(held).to_numpy(), array.T)
    assert transfer.from_gpu(transfer.to_gpu(np.zeros((0, 3), of))).shape.dims == (0, 3)


def test_a_program_on_memory_of_the_caller() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    shape = mgx.Shape("float", [2, 3])
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", shape))])
    program.compile(transfer.get_gpu_context(), offload_copy=False)
    x, y = transfer.to_gpu(mgx.Argument(np.array([[-1, 2, -3], [4, -5, 6]], np.float32))), transfer.allocate_gpu(shape)
    (result,) = program.run_async({"x": x, "main:#output_0": y})
    transfer.gpu_sync()
    assert result.data_ptr() == y.data_ptr()
    np.testing.assert_array_equal(transfer.from_gpu(y).to_numpy(), [[0, 2, 0], [4, 0, 6]])


def test_what_is_no_tensor_or_not_on_the_device() -> None:
    with pytest.raises(ParameterError, match="in device memory is required"):
        transfer.from_gpu(mgx.Argument(np.ones(2)))
    with pytest.raises(ParameterError, match="a tensor is required"):
        transfer.to_gpu(mgx.Argument((np.ones(2), np.ones(3))))
