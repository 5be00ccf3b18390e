"""Quantization and reduced precision: converts programs to narrower types."""

from __future__ import annotations

from .config import QuantizeConfig
from .dynamic import quantize_dynamic
from .record import QuantizeReport
from .static import autocast_fp8, quantize, quantize_fp8, quantize_int8
from .truncate import quantize_bf16, quantize_fp16
from .weights import quantize_int4_weights

__all__ = [
    "QuantizeConfig", "QuantizeReport", "autocast_fp8", "quantize", "quantize_bf16", "quantize_dynamic",
    "quantize_fp8", "quantize_fp16", "quantize_int4_weights", "quantize_int8",
]  # fmt: skip
