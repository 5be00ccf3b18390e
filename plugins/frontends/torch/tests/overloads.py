"""Single calls of torch operators, computed by mgx: a graph of one node, converted and run."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from mgx_torch.compiled import CompiledGraph
from mgx_torch.decompositions import all_converters
from mgx_torch.options import TorchOptions

CONVERTERS = all_converters()


def one_call(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """Returns a graph of one call whose tensors are its inputs, and those tensors."""
    flat, spec = tree_flatten((tuple(args), dict(kwargs)))
    graph = torch.fx.Graph()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    tensors: list[torch.Tensor] = []
    nodes, fakes = [], []
    for value in flat:
        if isinstance(value, torch.Tensor):
            made = graph.placeholder(f"x{len(tensors)}")
            made.meta["val"] = mode.from_tensor(value, static_shapes=True)
            tensors.append(value)
            nodes.append(made)
            fakes.append(made.meta["val"])
        else:
            nodes.append(value)
            fakes.append(value)
    given, named = tree_unflatten(nodes, spec)
    call = graph.call_function(op, given, named)
    given, named = tree_unflatten(fakes, spec)
    with mode:
        call.meta["val"] = op(*given, **named)
    value = call.meta["val"]
    results: Any = call
    if isinstance(value, (tuple, list)):
        results = []
        for i, item in enumerate(value):
            got = graph.call_function(operator.getitem, (call, i))
            got.meta["val"] = item
            results.append(got)
        results = tuple(results)
    else:
        results = (call,)
    graph.output(results)
    return torch.fx.GraphModule(torch.nn.Module(), graph), tensors


def computed(op: Any, args: Sequence[Any], kwargs: dict[str, Any], target: str) -> list[Any]:
    """Returns the results of one call on a target.  Errors: those of conversion."""
    gm, tensors = one_call(op, args, kwargs)
    return CompiledGraph(gm, CONVERTERS, TorchOptions(target=target))(*tensors)


class Recorder(TorchDispatchMode):
    """Records the calls of operators that are made while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        held_args, held = tree_map(_kept, (args, kwargs))
        out = func(*args, **kwargs)
        self.calls.append((func, held_args, held, tree_map(_kept, out)))
        return out


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def recorded(run: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yields the calls (overload, args, kwargs, result) that a function makes."""
    with Recorder() as recorder:
        run()
    yield from recorder.calls
