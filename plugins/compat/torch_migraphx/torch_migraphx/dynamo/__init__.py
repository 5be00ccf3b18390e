"""Backends of ``torch.compile`` under torch_migraphx's names."""

from __future__ import annotations

from .backends import migraphx

__all__ = ["migraphx"]
