"""Calls of programs on the memory of host tensors, without arrays in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Final

import torch

from mgx_core import Shape
from mgx_core.run.executable import Executable

from .element_types import torch_dtype
from .torch_internals import empty_on_host

__all__ = ["direct_call"]

# bytes of a result up to which torch's allocator reuses memory; above, only that of the program's arrays does
RECYCLED: Final = 1 << 16


def direct_call(
    executable: Executable, given: Sequence[torch.Tensor]
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] | None:
    """Returns a call of a program that has run with these tensors, for contiguous ones of the same types and sizes.

    None for tensors other than plain ones, for large results, and if the target has no such call.
    """
    wanted = executable.module.output_shapes()
    shapes = [s for s in wanted if isinstance(s, Shape) and not s.dynamic() and s.bytes() <= RECYCLED]
    if len(shapes) < len(wanted):
        return None
    if any(type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or x.is_neg() for x in given):
        return None
    run = executable.addressed()
    if run is None:
        return None
    made = [(tuple(s.lens()), tuple(s.as_standard().strides()), torch_dtype(s.dtype)) for s in shapes]

    address = torch.Tensor.data_ptr  # mapped, which takes half as long as a comprehension

    def call(taken: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = list(starmap(empty_on_host, made))
        run(list(map(address, taken)), list(map(address, results)))
        return results

    return call
