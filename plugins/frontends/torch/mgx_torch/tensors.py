"""Zero-copy conversion between torch tensors and mgx values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from mgx_core import Argument, UnsupportedError
from mgx_core.types.argument import Array, Value
from mgx_core.types.dtype import of

from .element_types import dtype_of, torch_dtype

__all__ = ["as_tensor", "borrowed", "host_array"]

NUMPY: Final = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
)
SAME_WIDTH: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def host_array(tensor: torch.Tensor) -> Array:
    """Returns an array that shares a host tensor's memory.

    Errors: UnsupportedError for a layout that is not strided.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in NUMPY and not tensor.is_neg():
        found: Array = tensor.numpy()
        return found
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"a tensor with a strided layout is required, got {tensor.layout}")
    tensor = tensor.resolve_neg()
    if tensor.dtype in NUMPY:
        return tensor.numpy()
    bits: Array = tensor.view(SAME_WIDTH[tensor.element_size()]).numpy()
    return bits.view(dtype_of(tensor.dtype).numpy)


def borrowed(tensor: torch.Tensor, name: str) -> Any:
    """Returns a weight as a value that shares its memory; copied to the host from other devices.

    Errors: UnsupportedError for tensors that are not plain real tensors.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise UnsupportedError(f"{name!r} is a {type(tensor).__name__}, where a plain tensor is required")
    if tensor.is_complex():
        raise UnsupportedError(f"{name!r} is complex, where a tensor of reals is required")
    return host_array(tensor.detach().cpu())


def as_tensor(value: Value) -> torch.Tensor:
    """Returns a result as a tensor that shares, and then owns, its memory."""
    if not isinstance(value, np.ndarray):  # in device memory
        found: torch.Tensor = torch.from_dlpack(Argument.from_value(value))
        return found
    if not value.flags.c_contiguous:  # a broadcast: torch may write to its results
        value = value.copy(order="C")
    kind = value.dtype
    if not value.size:  # numpy's strides are 0, those of torch's own tensors are not
        return torch.empty(value.shape, dtype=torch_dtype(of(kind)))
    if kind.isbuiltin == 1:
        return torch.from_numpy(value)
    return torch.from_numpy(value.view(f"i{kind.itemsize}")).view(torch_dtype(of(kind)))
