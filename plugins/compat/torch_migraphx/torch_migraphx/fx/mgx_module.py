"""A compiled program as a module, with torch_migraphx's constructor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mgx_torch
from mgx_core import Program
from mgx_torch.options import TorchOptions

__all__ = ["MGXModule"]


class MGXModule(mgx_torch.MgxModule):
    """A program of mgx as a torch module: `mgx_torch.MgxModule` with torch_migraphx's parameters."""

    def __init__(
        self,
        program: Program,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        quantize_fp16: bool = False,
        quantize_bf16: bool = False,
        exhaustive_tune: bool = False,
        layout: Any = None,
        template: Sequence[Any] = (),
    ) -> None:
        options = TorchOptions.of({"fp16": quantize_fp16, "bf16": quantize_bf16, "exhaustive_tune": exhaustive_tune})
        super().__init__(program, input_names, output_names, options, layout, template)

    @classmethod
    def of(cls, lowered: mgx_torch.MgxModule) -> MGXModule:
        """Returns a lowered module as this class."""
        options = lowered.options
        return cls(
            lowered.program,
            lowered.input_names,
            lowered.output_names,
            options.fp16,
            options.bf16,
            options.exhaustive_tune,
            lowered.layout,
            lowered.template,
        )
