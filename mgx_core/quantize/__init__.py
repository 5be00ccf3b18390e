"""Lower precision: programs that compute in narrower types."""

from __future__ import annotations

from .truncate import quantize_bf16, quantize_fp16

__all__ = ["quantize_bf16", "quantize_fp16"]
