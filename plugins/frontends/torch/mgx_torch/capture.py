"""Captures modules by torch.export; a refusal names the line that cannot be captured, what it depends on, and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from mgx_core import UnsupportedError

__all__ = ["captured"]


def captured(
    module: torch.nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Returns the exported program of a module.

    Errors: UnsupportedError if Python code or sizes depend on the elements of tensors; torch's own otherwise.
    """
    try:
        return torch.export.export(module, tuple(inputs), dict(kwargs), dynamic_shapes=dynamic_shapes)
    except DynamicOutputShapeException as error:
        reason = f"the sizes of results of {error.func} depend on elements of tensors"
        raise _refusal(error, reason) from error
    except DataDependentOutputException as error:
        raise _refusal(error, f"{error.func} returns a Python number that depends on elements of tensors") from error
    except GuardOnDataDependentSymNode as error:
        raise _refusal(
            error, f"Python code needs the value of {error.cond}, which depends on elements of tensors"
        ) from error


def _refusal(error: Exception, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch.export cannot capture the module{_place(error)}: {reason}; run it with torch.compile(backend='mgx'), "
        "which leaves such calls to torch"
    )


def _place(error: Exception) -> str:
    """Returns the innermost line outside of torch, for messages; empty if there is none."""
    library = Path(torch.__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_absolute() and library not in file.parents and file != Path(__file__):
            return f" at {frame.filename}:{frame.lineno}"
    return ""
