"""Zero-copy conversion between torch tensors and mgx values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from mgx_core import Argument, UnsupportedError
from mgx_core.types.argument import Array, Value
from mgx_core.types.dtype import of

from .element_types import dtype_of, torch_dtype
from .torch_internals import memory_of

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


class Memory:
    """A host tensor's memory for `numpy.from_dlpack`.

    `Tensor.numpy` would forbid torch to resize the memory later, as sharded training does.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return memory_of(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host


def host_array(tensor: torch.Tensor) -> Array:
    """Returns an array that shares a host tensor's memory.

    Errors: UnsupportedError for a layout that is not strided.
    """
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"a tensor with a strided layout is required, got {tensor.layout}")
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.dtype in NUMPY:
        return np.from_dlpack(Memory(tensor))
    bits: Array = np.from_dlpack(Memory(tensor.detach().view(SAME_WIDTH[tensor.element_size()])))
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
