"""Fast internal functions of torch, used by its own compiler; the public ones take several times as long."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["current_stream", "empty_on_host", "have_addresses", "memory_of"]


def empty_on_host(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a new tensor in host memory, not initialized."""
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")


def have_addresses(tensors: list[Any], addresses: list[int], numbers: list[int]) -> bool:
    """True if the tensors at these indices have the addresses at the same indices of another list."""
    return all(tensors[n].data_ptr() == addresses[n] for n in numbers)


def current_stream(device: int) -> int:
    """Returns the handle of a device's current stream."""
    return torch.cuda.current_stream(device).cuda_stream


def memory_of(tensor: torch.Tensor) -> Any:
    """Returns the DLPack capsule of a host tensor, which may be written to."""
    return tensor.detach().__dlpack__(max_version=(1, 0))


try:
    empty_on_host = torch._C._dynamo.guards._empty_strided_cpu
    memory_of = torch._C._to_dlpack_versioned
    current_stream = torch._C._cuda_getCurrentRawStream
    have_addresses = torch._C._tensors_data_ptrs_at_indices_equal
except AttributeError:  # CPU-only builds and other versions: the definitions above are used
    pass
