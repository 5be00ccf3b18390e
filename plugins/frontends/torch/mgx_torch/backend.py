"""The ``torch.compile`` backend, registered by entry point."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from mgx_core import DeviceError, MgxError, PluginError, UnsupportedError
from mgx_core.converting.converters import Converters

from .calls import is_assertion, name_of, subgraphs
from .compiled import CompiledGraph
from .converters.factorization import FACTORIZATIONS
from .decompositions import all_converters, differentiable_layers, kept_whole, traced_table
from .modes import autocasts, differentiates, nodes_of
from .node import NAME, place_of
from .options import TorchOptions
from .partition import eager_name, shared, split, stages
from .recurrent_setting import around_tracing

__all__ = ["Part", "Taken", "mgx"]


@dataclass
class Part:
    """A part of a partitioned graph: where it runs, its operators, and why it fell back to eager."""

    target: str
    operators: list[str]
    reasons: list[str] = field(default_factory=list)


def mgx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a Dynamo graph: forward for inference, or forward and backward.

    Errors: ParameterError for unknown options.
    """
    return compile_graph(gm, example_inputs, TorchOptions.of(options, mode), [])


around_tracing(mgx)


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: TorchOptions, parts: list[Part]
) -> Callable[..., Any]:
    """Returns a callable for a graph; its first call appends to `parts`."""
    converters = all_converters()

    def taken(inner: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return Taken(inner, converters, options, _static(), parts)

    def inferred(inner: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return Taken(inner, converters, options, _static(), parts, aliases=True)

    def bare(inner: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return Taken(inner, converters, options, (), parts, gradients=True)

    compiler = aot_autograd(
        fw_compiler=taken,
        bw_compiler=bare,
        inference_compiler=inferred,
        decompositions=traced_table(converters),
        keep_inference_input_mutations=True,
    )
    if differentiates(gm) or (
        torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)
    ):
        with differentiable_layers():
            return compiler(gm, example_inputs)
    with kept_whole(converters, autocasts(gm)):
        return compiler(gm, example_inputs)


def _static() -> tuple[int, ...]:
    """Returns the inputs of the graph being compiled that are parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    meta = None if context is None else context.fw_metadata
    return () if meta is None else tuple(meta.static_input_indices)


class Taken:
    """An ATen graph, of which mgx compiles all supported operators.

    The first call partitions it: unsupported operators fall back to eager torch, and `parts` records the reasons.
    Thread-safe: the first thread compiles while others wait.
    aliases: results alias each other and inputs as in eager mode; views of these are left to torch.  gradients: results are
    gradients, which callers may write to one by one.
    """

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        converters: Converters,
        options: TorchOptions,
        static: Sequence[int],
        parts: list[Part],
        aliases: bool = False,
        gradients: bool = False,
    ) -> None:
        self.gm = gm if isinstance(gm, torch.fx.GraphModule) else torch.fx.GraphModule(gm, gm.graph)
        self.converters = converters
        self.options = options
        self.parts = parts
        self.views = shared(self.gm) if aliases else []
        self.watches = aliases  # graphs for inference
        self.gradients = gradients
        for node in self.gm.graph.nodes:
            node.meta[NAME] = node.name
        self.assertions = _assertions(self.gm)
        self.asserts_on_host = _on_host(self.gm, len(self.assertions))
        self.writes = _writes(self.gm)
        changed = {i for i, _ in self.writes}
        self.static = [i for i in static if i not in changed]
        self.reasons: dict[torch.fx.Node, str] = {
            n: why for n in self.gm.graph.nodes if (why := not_ours(n, converters, options.strict))
        } | {n: f"{describe(n)} shares memory with another result" for n in self.views}
        self.ready: Callable[..., Any] | None = None
        self._lock = threading.RLock()
        # tells AOTAutograd that arguments are passed as one list; wrappers copy instance attributes
        self._boxed_call = True

    def __call__(self, args: list[Any]) -> list[Any]:
        """Returns the results; clears the list of arguments, so that unreferenced ones are freed."""
        if self.ready is None:
            args[:] = [plain(a) for a in args]
            found = self._first(args)
        else:
            found = self.ready(*args)
        if not self.writes and not self.assertions:
            args.clear()
            return found
        written = len(found) - len(self.writes)
        kept = written - len(self.assertions)
        # conditions on the host are checked together, those on a device without waiting for it
        if self.assertions and not (self.asserts_on_host and all(found[kept:written])):
            for message, condition in zip(self.assertions, found[kept:written], strict=True):
                assert_holds(condition, message)
        for (index, _), value in zip(self.writes, found[written:], strict=True):
            overwrite(args[index], value)
        args.clear()
        return list(found[:kept])

    def _first(self, args: Sequence[Any]) -> list[Any]:
        """Compiles and runs, unless another thread has compiled meanwhile.  Errors: those of `_compiled`."""
        with self._lock:
            if self.ready is None:
                return self._compiled(args)
        return list(self.ready(*args))

    def _compiled(self, args: Sequence[Any]) -> list[Any]:
        """Compiles and runs; retries with each node that fails to convert left to torch.

        Each attempt restores torch's random state, so that failed attempts do not change the random numbers.
        Errors: DeviceError, PluginError, and any other error that does not name a node; UnsupportedError with the option `strict`
        if a node would fall back to torch.
        """
        if self.options.strict:
            left = [why for node, why in self.reasons.items() if node not in self.views]
            if left:
                raise UnsupportedError(f"the option strict leaves nothing to torch: {'; '.join(left)}")
        restore = _random_numbers(self.gm, args)
        while True:
            try:
                return self._attempt(args)
            except (DeviceError, PluginError):
                raise
            except MgxError as error:
                if self.options.strict:
                    raise
                restore()
                node = self._culprit(error)
                if node is None:
                    if not isinstance(error, UnsupportedError):
                        raise
                    logging.getLogger("mgx").warning("a whole graph falls back to torch: %s", error)
                    self.ready = self.gm.forward
                    self.parts.append(Part("torch", _operators(self.gm), [str(error)]))
                    return list(self.gm.forward(*args))
                self.reasons[node] = str(error)

    def _culprit(self, error: MgxError) -> torch.fx.Node | None:
        """Returns the node of the unpartitioned graph that an error refers to, or whose subgraph has that node."""
        text = str(error)
        for node in self.gm.graph.nodes:
            if node.op in ("placeholder", "output") or node in self.reasons:
                continue
            if any(f"node {n.name!r} " in text for n in (node, *(n for gm in subgraphs(node) for n in nodes_of(gm)))):
                return node
        return None

    def _kept(self, piece: torch.fx.GraphModule) -> list[str]:
        """Returns why a part falls back to torch; views that only share memory are not mentioned."""
        names = {n.meta.get(NAME) for n in piece.graph.nodes}
        return [why for n, why in self.reasons.items() if n.name in names and n not in self.views]

    def _attempt(self, args: Sequence[Any]) -> list[Any]:
        if not self.reasons:
            first = len(next(n for n in self.gm.graph.nodes if n.op == "output").args[0]) - len(self.writes)
            places = {index: n for n, (index, _) in enumerate(self.writes, first)}
            whole = CompiledGraph(
                self.gm, self.converters, self.options, self.static, places, self.watches, self.gradients
            )
            found = whole(*args)
            self.ready = whole
            self.parts.append(Part(self.options.target or "mgx", _operators(self.gm)))
            return found
        pieces = split(self.gm, stages(self.gm.graph, lambda n: n in self.reasons))
        made: list[Part] = []
        places = {n.name: i for i, n in enumerate(n for n in self.gm.graph.nodes if n.op == "placeholder")}
        static = {name for name, i in places.items() if i in self.static}
        for name, piece in list(pieces.named_children()):
            if not name.startswith("submod_"):  # subgraphs called by higher-order operators
                continue
            if eager_name(name):
                kept = self._kept(piece)
                if kept:
                    made.append(Part("torch", _operators(piece), kept))
                continue
            (call,) = (n for n in pieces.graph.nodes if n.op == "call_module" and n.target == name)
            frozen = [i for i, a in enumerate(call.args) if isinstance(a, torch.fx.Node) and a.name in static]
            part = CompiledGraph(
                piece, self.converters, self.options, frozen, watches=self.watches, apart=self.gradients
            )
            setattr(pieces, name, Piece(part))
            made.append(Part(self.options.target or "mgx", _operators(piece)))
        pieces.recompile()
        found = list(pieces(*args))
        self.ready = pieces
        self.parts += made
        return found


def _random_numbers(gm: torch.fx.GraphModule, args: Sequence[Any]) -> Callable[[], None]:
    """Returns a function that restores the present state of torch's generators, if the graph uses them."""
    targets = (n.target for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload))
    if not any(torch.Tag.nondeterministic_seeded in t.tags for t in targets):
        return lambda: None
    host = torch.get_rng_state()
    devices = {a.device for a in args if isinstance(a, torch.Tensor) and a.device.type == "cuda"}
    states = {d: torch.cuda.get_rng_state(d) for d in devices}

    def restore() -> None:
        torch.set_rng_state(host)
        for device, state in states.items():
            torch.cuda.set_rng_state(state, device)

    return restore


def assert_holds(condition: torch.Tensor | bool, message: str) -> None:
    """Raises RuntimeError with a message if a condition is false; for one on a device, its error, later."""
    if isinstance(condition, torch.Tensor):
        if not condition.is_cpu:
            torch._assert_async(condition, message)
            return
        condition = condition.item()
    if not condition:
        raise RuntimeError(message)


def overwrite(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Writes a result to a caller's tensor, unless it is stored there already."""
    if value.data_ptr() != tensor.data_ptr() or value.stride() != tensor.stride():
        tensor.copy_(value)
    elif not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def plain(value: Any) -> Any:
    """Returns a tensor of a subclass that leaves dispatch to torch as a plain tensor, and any other value itself.

    In the first call of a graph, torch's check of custom operators rejects operations on tensors of subclasses.
    """
    if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return value
    inherits = type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return value.as_subclass(torch.Tensor) if inherits else value


class Piece(torch.nn.Module):
    """A compiled part of a partitioned graph; a single result is returned without a tuple, as by torch's parts."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__()
        self.compiled = compiled
        (output,) = (n for n in compiled.gm.graph.nodes if n.op == "output")
        self.single = not isinstance(output.args[0], (list, tuple))

    def forward(self, *args: Any) -> Any:
        found = self.compiled(*args)
        return found[0] if self.single else found


def not_ours(node: torch.fx.Node, converters: Converters, strict: bool = False) -> str:
    """Returns why a node must stay with torch; empty if conversion can be tried.

    strict: nothing is left to torch that mgx can compute, too.
    """
    if node.op in ("placeholder", "output", "get_attr") or node.op != "call_function":
        return ""
    target = node.target
    for inner in (inner for gm in subgraphs(node) for inner in nodes_of(gm)):
        if is_assertion(inner):
            return f"{describe(node)} checks an assertion inside a branch or loop"
        if why := not_ours(inner, converters, strict):
            return f"{describe(node)} calls a graph in which {why}"
    if isinstance(target, torch._ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in target.tags and not _inert(node):
            return f"{describe(node)} uses torch's random number generator"
        namespace, packet, overload = name_of(target)
        value = node.meta.get("val")
        if value is None or not isinstance(value, (torch.Tensor, list, tuple)):
            return ""
        if isinstance(value, torch.Tensor) and value.device.type == "meta":
            return f"{describe(node)} returns a tensor without data"
        known = any(
            converters.find(s + namespace, p, 1) for s in ("", "complex ") for p in (f"{packet}.{overload}", packet)
        )
        if not known:
            return f"no converter for {describe(node)}"
        if namespace == "aten" and packet in FACTORIZATIONS and not strict:
            return f"{describe(node)} factorizes matrices, for which torch has libraries on every device"
    return ""


def _inert(node: torch.fx.Node) -> bool:
    """Returns True for a random op whose arguments disable randomness."""
    schema = node.target._schema
    for place, argument in enumerate(schema.arguments):
        if argument.name in ("dropout_p", "p", "dropout"):
            given = (
                node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            )
            if given == 0:
                return True
        if argument.name == "train":
            return len(node.args) > place and node.args[place] is False
    return False


def describe(node: torch.fx.Node) -> str:
    return f"{node.target} ({node.name}){place_of(node)}"


def _operators(gm: torch.fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]


def _assertions(gm: torch.fx.GraphModule) -> list[str]:
    """Removes assertions from a graph, and returns their messages; the caller checks their conditions, which become results."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    conditions: list[Any] = []
    messages: list[str] = []
    for node in list(gm.graph.nodes):
        if is_assertion(node):
            if node.args[0] is not True:  # decided by torch
                conditions.append(node.args[0])
                messages.append(str(node.args[1]) if len(node.args) > 1 else "assertion failed")
            gm.graph.erase_node(node)
    if conditions:
        output.args = ((*output.args[0], *conditions),)
        gm.recompile()
    return messages


def _on_host(gm: torch.fx.GraphModule, count: int) -> bool:
    """Returns True if none of a graph's last results is on a device."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    found = [n.meta.get("val") for n in output.args[0][len(output.args[0]) - count :] if isinstance(n, torch.fx.Node)]
    return all(not isinstance(v, torch.Tensor) or v.device.type == "cpu" for v in found)


def _writes(gm: torch.fx.GraphModule) -> list[tuple[int, torch.fx.Node]]:
    """Removes ``copy_(input, value)`` from a graph: the values become additional results that the caller copies."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    found = []
    results = list(output.args[0])
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default and node.args[0] in placeholders:
            found.append((placeholders.index(node.args[0]), node.args[1]))
            node.replace_all_uses_with(node.args[1])
            gm.graph.erase_node(node)
    if found:
        results = list(output.args[0])
        output.args = ((*results, *(v for _, v in found)),)
        gm.recompile()
    return found
