"""Flex attention: attention whose scores and mask are functions of the position."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mgx_core import Instruction

from ..calls import flat
from ..converter import converts
from ..extents import DECIDED
from ..node import Node, described
from .attention import attended

__all__: list[str] = []


@converts("flex_attention", domain="higher_order")
def flex_attention(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    score: torch.fx.GraphModule,
    block_mask: Sequence[Any],
    scale: float,
    options: Any,
    score_buffers: Sequence[Any] = (),
    mask_buffers: Sequence[Any] = (),
) -> list[Instruction | None]:
    """Returns attention and, if they are used, logarithms to base 2 of the sums of powers, and the largest scores.

    score, and the last item of block_mask: graphs for one position.  The rest of block_mask only speeds up torch's kernels.
    """
    allowed = block_mask[-1]
    sizes = [*n.result().shape[:3], n.given(1).shape[2]]
    read = [s if place.users else 1 for s, place in zip(sizes, _placeholders(allowed), strict=False)]
    given, device = described(n.fx.args), n.given(0).device

    def mask(q: Any, k: Any, *buffers: torch.Tensor) -> torch.Tensor:  # q and k, of which some buffers may be sizes
        return everywhere(allowed, (), read, buffers, device)

    (where,) = _traced(n, mask, [*given[:2], *given[8]], [q, k, *mask_buffers])
    used = [True, n.output_used(1), n.output_used(2)]
    if _is_identity(score) and used == [True, False, False]:
        return [attended(n, q, k, v, where, False, scale), None, None]

    def compute(q: Any, k: Any, v: Any, where: Any, *buffers: torch.Tensor) -> list[torch.Tensor]:
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = everywhere(score, (q.to(wide) @ k.to(wide).mT * scale,), sizes, buffers, device)
        scores = scores.to(wide).masked_fill(~where, -math.inf)
        found = [torch.ops.aten._safe_softmax(scores, -1).to(q.dtype) @ v]
        if used[1]:
            found.append(scores.logsumexp(-1) / math.log(2))
        if used[2]:
            found.append(scores.amax(-1) / math.log(2))
        return found

    with n.given(0).fake_mode:
        fake = torch.empty(read, dtype=torch.bool, device=device)
    found = iter(_traced(n, compute, [*given[:3], fake, *given[7]], [q, k, v, where, *score_buffers]))
    return [next(found) if u else None for u in used]


def everywhere(
    graph: torch.fx.GraphModule,
    scores: Sequence[torch.Tensor],
    sizes: Sequence[Any],
    buffers: Sequence[torch.Tensor],
    device: torch.device,
) -> torch.Tensor:
    """Applies a graph of a score (or none) and its batch, head, query and key to all positions; buffers are passed whole."""
    places = [torch.arange(s, dtype=torch.int32, device=device) for s in sizes]
    function: Callable[..., Any] = OnTensors(graph).run
    for axis in (3, 2, 1, 0):
        dims = [0] * len(scores) + [0 if a == axis else None for a in range(4)] + [None] * len(buffers)
        function = torch.vmap(function, tuple(dims))
    return function(*scores, *places, *buffers)


class OnTensors(torch.fx.Interpreter):
    """Runs a graph; sizes become tensors where an operator takes a tensor, since vmap does not accept them there."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, torch._ops.OpOverload):
            args = tuple(
                torch.scalar_tensor(x, dtype=torch.int64)
                if isinstance(x, torch.SymInt) and str(argument.type) == "Tensor"
                else x
                for x, argument in zip(args, target._schema.arguments, strict=False)
            )
        return super().call_function(target, args, kwargs)


def _placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _is_identity(score: torch.fx.GraphModule) -> bool:
    """Returns True if a graph returns its first argument."""
    (output,) = (node for node in score.graph.nodes if node.op == "output")
    return flat(output.args[0]) == [_placeholders(score)[0]]


def _traced(n: Node, function: Callable[..., Any], given: Sequence[Any], values: Sequence[Any]) -> list[Instruction]:
    """Traces a function of tensors, of which `given` is torch's metadata, and converts the graph for their values."""
    if not all(isinstance(g, (torch.Tensor, torch.SymInt)) for g in given):
        n.unsupported("its functions read numbers that torch computes; pass them as tensors")
    try:
        with n.given(0).fake_mode:
            traced = make_fx(function)(*given)
    except DECIDED:
        raise
    except RuntimeError as error:  # of vmap, e.g. for an index that is constant beside one that is not
        n.unsupported(f"torch cannot vectorize its functions: {str(error).splitlines()[0]}")
    found = n.graph.convert(traced.graph, values)
    return flat(found)
