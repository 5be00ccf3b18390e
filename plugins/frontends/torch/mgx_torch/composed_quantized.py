"""Decompositions of fake quantization, as quantization-aware training inserts it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fake_quantize", "fake_quantize_by_tensors", "fake_quantize_channels"]


def fake_quantize(x: Tensor, scale: float, zero: int, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Returns x rounded to a multiple of the scale within the range, and where it is within."""
    size = torch.full((), scale, dtype=torch.float32, device=x.device)
    return _quantized(x, size, torch.full((), zero, device=x.device), low, high)


def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """The same with scale, zero point, which is truncated to an integer, and a switch in tensors of one element."""
    found, within = _quantized(x, scale.reshape(()), zero.reshape(()).long(), low, high)
    on = enabled.reshape(()) != 0
    return torch.where(on, found, x), within | ~on


def fake_quantize_channels(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """The same with one scale and zero point for each place along an axis; zero points may be fractions."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return _quantized(x, scales.reshape(shape), zeros.reshape(shape), low, high)


def _quantized(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    wide = x if x.dtype is torch.float64 else x.float()
    fraction = zero.is_floating_point()
    scale, zero = scale.to(wide.dtype), zero.to(wide.dtype)
    code = wide * scale.reciprocal()
    code = (code + zero).round() if fraction else code.round() + zero
    within = (code >= low) & (code <= high)
    return ((code.clamp(low, high) - zero) * scale).to(x.dtype), within
