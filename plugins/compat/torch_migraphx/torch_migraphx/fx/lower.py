"""`lower_to_mgx` with torch_migraphx's keywords."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import torch

import mgx_torch
from mgx_core import ParameterError, UnsupportedError

from .mgx_module import MGXModule

__all__ = ["LowerPrecision", "lower_to_mgx"]

log = logging.getLogger("torch_migraphx")


class LowerPrecision(Enum):
    """The type in which a module computes."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"

    @classmethod
    def from_str(cls, label: str | LowerPrecision) -> LowerPrecision:
        """Parses a name.  Errors: ParameterError for an unknown one."""
        if isinstance(label, LowerPrecision):
            return label
        names = {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
        name = str(label).lower()
        try:
            return cls(names.get(name, name))
        except ValueError:
            raise ParameterError(f"lower_precision must be fp32, fp16, bf16 or int8, got {label!r}") from None


def lower_to_mgx(
    module: torch.nn.Module,
    input: Sequence[Any],
    lower_precision: LowerPrecision | str = LowerPrecision.FP32,
    min_acc_module_size: int = 10,
    use_aten: bool = False,
    verbose_log: bool = False,
    suppress_accuracy_check: bool = False,
    save_subgraph_programs: bool = False,
    tracer_base_cls: Any = None,
    leaf_modules: Any = None,
) -> MGXModule:
    """Lowers a torch module with example inputs to a module that runs on mgx.

    suppress_accuracy_check: if False, results for the example are compared with the torch module's, and a difference of more
    than half of the maximum is logged.  `min_acc_module_size`, `use_aten`, `tracer_base_cls` and `leaf_modules` have no effect: a
    module is lowered as a whole.
    Errors: UnsupportedError for an operator without a converter, and for int8, which requires a quantized module;
    ParameterError if `module` is not a module or `input` is not a list.
    """
    precision = LowerPrecision.from_str(lower_precision)
    if precision is LowerPrecision.INT8:
        raise UnsupportedError("int8 requires a quantized module: quantize it, then lower it in fp32")
    lowered = mgx_torch.lower_to_mgx(
        module, input, fp16=precision is LowerPrecision.FP16, bf16=precision is LowerPrecision.BF16
    )
    with suppress(NotImplementedError):  # the mode of exported modules is fixed
        module.eval()
    made = MGXModule.of(lowered)
    if verbose_log:
        log.info("%s", lowered.program)
    if save_subgraph_programs:
        lowered.save("mgx_submodule_0.mxr")
    if not suppress_accuracy_check:
        _compare(module, made, input)
    return made


def _compare(module: torch.nn.Module, lowered: MGXModule, inputs: Sequence[Any]) -> None:
    from torch.utils._pytree import tree_leaves

    with torch.no_grad():
        pairs = zip(tree_leaves(lowered(*inputs)), tree_leaves(module(*inputs)), strict=True)
        for number, (got, want) in enumerate(pairs):
            if isinstance(want, torch.Tensor) and not torch.allclose(got, want, rtol=0.5, atol=0.5):
                log.warning("result %d differs from the module's own", number)
