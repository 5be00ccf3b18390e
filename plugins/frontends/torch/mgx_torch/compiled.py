"""Compiled FX graphs: callables from tensors to new tensors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from mgx_core import Instruction, Module, Program, Shape, UnsupportedError, get_target
from mgx_core import dtype as dt
from mgx_core.ir.graph import Graph
from mgx_core.types.dim import Sym

from .axis_order import inverse, order_of
from .calls import only_computed_with
from .converter import Converters
from .device_results import DeviceResults
from .direct_calls import direct_call
from .extents import Extents, environment, shape_of
from .graph import GraphConverter
from .node import Complex
from .options import TorchOptions
from .stored import Stored
from .tensors import as_tensor, host_array
from .torch_internals import have_addresses
from .views import covers, is_view_of_input, region_of, viewed, views_of
from .weights import Fingerprint, held

__all__ = ["CompiledGraph"]

VARIANTS: Final = 4  # maximum sets of weights with packed copies
PARTS: Final = ("real", "imag")  # of a complex tensor
COUNTS: Final = {"tensor": 1, "number": 1, "complex": 2}  # the program's results for one of the graph, by its kind
Part: TypeAlias = "str | tuple[int, ...]"  # how a parameter is made of an argument, see `_program`
NOTHING: Final[Mapping[int, int]] = {}
CHANGES: Final = 3  # changes of weights after which they become inputs


class CompiledGraph:
    """A functional graph compiled for a target.  Thread-safe.

    static: indices of inputs that are weights; those that are constants (`held`) are packed on first use and again after
    writes.  writes: inputs that a result (by index) overwrites; the target stores it in place if it can.  watches: weights on
    a device are constants whose contents are checked on the device in each call, for graphs whose weights are not being trained.
    apart: no two results share memory; otherwise views of one value do, such as activations that are kept for gradients.
    Errors: UnsupportedError, at construction, for a node that cannot be converted, in its attribute `node`.
    """

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        converters: Converters,
        options: TorchOptions,
        static: Sequence[int] = (),
        writes: Mapping[int, int] = NOTHING,
        watches: bool = False,
        apart: bool = False,
    ) -> None:
        self.writes = writes
        self.apart = apart
        self.gm = gm
        self.converters = converters
        self.options = options
        self.weights = self.static = tuple(static)
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.changes = 0
        self._last: Variant | None = None
        self.watches, self.watched = watches, False
        self._chosen = False
        self._variants: OrderedDict[tuple[Any, ...], Variant] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, *args: Any) -> list[Any]:
        last = self._last
        if last is not None and (not last.static or last.serves(args)):
            return last.run(args)
        if not self._chosen:
            options = self.options
            narrowed = options.fp16 or options.bf16
            kept_apart = options.freeze or options.cache  # cached programs must not refer to this process' memory
            self.watched = self.watches and not kept_apart and _device(args) is not None
            self.static = held(
                self.gm, self.static, args, trusted=options.freeze, narrowed=narrowed, watched=self.watched
            )
            self._chosen = True
        key = tuple([args[i].data_ptr() for i in self.static]) if self.static else ()
        found = self._variants.get(key)
        if found is None or (key and not found.current(args)):
            found = self._variant(key, args)
        self._last = found
        return found.run(args)

    def _variant(self, key: tuple[Any, ...], args: Sequence[Any]) -> Variant:
        with self._lock:
            found = self._variants.get(key)
            if found is not None and found.current(args):
                return found
            if found is not None:
                self.changes += 1
            if self.changes >= CHANGES:
                self._variants.clear()  # weights under training: packing them each time does not pay off
                self.static = key = ()
            made = Variant(self, args)
            self._variants[key] = made
            while len(self._variants) > VARIANTS:
                self._variants.popitem(last=False)
            return made


class Variant:
    """A compiled graph for one set of weights."""

    def __init__(self, graph: CompiledGraph, args: Sequence[Any]) -> None:
        self.placeholders = {n: i for i, n in enumerate(graph.placeholders)}
        self.static = graph.static
        self.addresses = [args[i].data_ptr() for i in self.static]
        # the same in the form of `have_addresses`'s arguments
        self.numbers, self.places = list(self.static), [0] * len(args)
        for number, address in zip(self.numbers, self.addresses, strict=True):
            self.places[number] = address
        self.watched = graph.watched
        weights = {i: args[i] for i in self.static}
        self.fingerprints = (
            [] if graph.watched else [Fingerprint(w, not graph.options.freeze) for w in weights.values()]
        )
        trusted = graph.options.freeze and not any(w.is_inference() for w in weights.values())
        # everything that their fingerprints would check
        self.versions = [w._version for w in weights.values()] if trusted else None
        self.program, given, self.results = _program(graph, args, {} if graph.watched else weights)
        watched = {n: weights[i].detach() for n, i, part in given if graph.watched and i in weights and not part}
        self.given = [g for g in given if g[0] not in watched]
        target = graph.options.target or _target_of(args)
        options = graph.options
        if options.fp16 or options.bf16:
            from mgx_core import quantize_bf16, quantize_fp16

            self.program = (quantize_fp16 if options.fp16 else quantize_bf16)(self.program)
        self.device = _device(args)
        self.unstored = Stored(self.program, target, options) if options.cache else None
        stored = None if self.unstored is None else self.unstored.load()
        if stored is None:
            apart = options.cache or self.device is not None  # cached programs own their results
            taken = {} if apart else _memory(graph.writes, self.given, self.results)
            self.program.compile(
                get_target(target),
                options.compile_options(offload_copy=self.device is None),
                overwritten=taken,
                watched=watched,
            )
        else:
            self.program, self.unstored = stored, None
        assert self.program.executable is not None
        self.executable = self.program.executable
        tensors = not any(isinstance(part, str) for *_, part in self.given if part)
        self.unchanged = all(kind == "tensor" and back is None for kind, back in self.results)
        computed = any(kind in COUNTS for kind, _ in self.results)
        # argument index and memory order of each parameter, if all are host tensors
        places = {name: (index, order or None) for name, index, order in self.given}
        self.plain: list[int] | None = None
        self.turned: list[tuple[int, Any]] = []
        if self.device is None and tensors and computed:
            found = [places[name] for name in self.executable.parameters]
            self.plain = [index for index, _ in found]
            self.turned = [(place, order) for place, (_, order) in enumerate(found) if order is not None]
        self.all_taken = self.plain == list(range(len(args)))
        # sizes are static (checked by Dynamo's guards)
        self.fixed = tensors and not any(s.dynamic() for s in self.executable.parameters.values())
        self.on_device = None if self.device is None else DeviceResults(self.executable, self.device, self.fixed)
        # places of the weights among the parameters, and arrays of the last ones with their addresses
        kept = [i in graph.weights and not args[i].is_neg() for i in self.plain or ()]
        static = [not s.dynamic() for s in self.executable.parameters.values()]
        self.lasting = [place for place, weight in enumerate(kept) if weight and static[place]]
        self._kept: tuple[list[int], list[Any]] = [], []
        self._on_host: Callable[[Sequence[Any]], list[Any]] = self._first_on_host  # with arguments in parameter order
        self._lock = threading.Lock()

    def serves(self, args: Sequence[Any]) -> bool:
        """Returns True if the weights are those of this variant and their packed copies are valid."""
        if self.device is None:
            return [args[i].data_ptr() for i in self.static] == self.addresses and self.current(args)
        return have_addresses(list(args), self.places, self.numbers) and self.current(args)

    def current(self, args: Sequence[Any]) -> bool:
        """Returns True if no weight was written to since it was packed.

        Watched weights are checked on the device during the call, whose results are correct in any case. Nothing is compiled
        while the caller's stream is being captured.
        """
        if self.watched:
            return not self.executable.outdated or torch.cuda.is_current_stream_capturing()
        if self.versions is not None:
            return [args[i]._version for i in self.static] == self.versions
        return all(map(Fingerprint.holds, self.fingerprints, [args[i] for i in self.static]))

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.plain is not None and self.unstored is None:
            taken = args if self.all_taken else [args[i] for i in self.plain]
            if self.turned:
                taken = list(taken)
                for place, order in self.turned:
                    taken[place] = taken[place].permute(order)
            if self.fixed and all(map(torch.Tensor.is_contiguous, taken)):
                found = self._on_host(taken)
            else:
                arrays = zip(self.executable.parameters, self._arrays(taken), strict=True)
                found = [as_tensor(r.value) for r in self.executable.run(dict(arrays))]
            return found if self.unchanged else self._results(args, iter(found))
        values = {name: self._value(args[index], part) for name, index, part in self.given}
        if self.on_device is None:
            found = [as_tensor(r.value) for r in self.executable.run(values)]
        else:
            found = self.on_device.of(values)
        if self.unstored is not None:
            self._store()
        return found if self.unchanged else self._results(args, iter(found))

    def _first_on_host(self, taken: Sequence[Any]) -> list[Any]:
        found = self._by_arrays(taken)
        self._on_host = direct_call(self.executable, taken) or self._by_arrays
        return found

    def _by_arrays(self, taken: Sequence[Any]) -> list[Any]:
        return [as_tensor(v) for v in self.executable.run_values(self._arrays(taken))]

    def _arrays(self, taken: Sequence[Any]) -> list[Any]:
        """Returns arrays on the memory of arguments in parameter order; those of weights are made once for each address.

        Sizes and strides of weights are guarded, so that an array is that of any weight at its address, also if torch has freed
        that memory and allocated it again.
        """
        if not self.lasting:
            return list(map(host_array, taken))
        addresses = [taken[place].data_ptr() for place in self.lasting]
        known, kept = self._kept  # at once: other threads replace it
        if addresses != known:
            kept = [None] * len(taken)
            for place in self.lasting:
                kept[place] = host_array(taken[place])
            self._kept = addresses, kept
        return [host_array(t) if k is None else k for t, k in zip(taken, kept, strict=True)]

    def _value(self, given: Any, part: Part) -> Any:
        """Returns the value of a parameter from an argument (see `_program`)."""
        if part == "size":
            number = int(given)
            return torch.empty((max(number, 0), max(-number, 0), 0), dtype=torch.uint8).numpy()
        if part == "number":
            return np.asarray(given)
        if isinstance(part, tuple):
            given = given.permute(part)
        elif part:
            given = getattr(given.resolve_conj(), part).contiguous()
        if self.device is None:
            return host_array(given)
        return (given.detach() if given.requires_grad else given).contiguous()

    def _results(self, args: Sequence[Any], found: Iterator[torch.Tensor]) -> list[Any]:
        """Returns the graph's results, in order, from the program's."""
        out: list[Any] = []
        for kind, detail in self.results:
            if kind == "input":
                out.append(args[detail])
            elif kind == "value":
                out.append(detail)
            elif kind == "argument's":
                place, region = detail
                out.append(args[place].as_strided(*region))
            elif kind == "result's":
                place, region = detail
                out.append(out[place].as_strided(*region) if region else out[place])
            elif kind == "view":
                out.append(viewed(args, self.placeholders, detail))
            elif kind == "number":
                out.append(next(found).item())
            else:
                tensor = torch.complex(next(found), next(found)) if kind == "complex" else next(found)
                out.append(tensor if detail is None else tensor.permute(detail))
        return out

    def _store(self) -> None:
        """Writes the program to the cache, once."""
        with self._lock:
            stored, self.unstored = self.unstored, None
        if stored is not None:
            stored.keep(self.program)


def _program(
    graph: CompiledGraph, args: Sequence[Any], weights: dict[int, Any]
) -> tuple[Program, list[tuple[str, int, Part]], list[tuple[str, Any]]]:
    """Converts a graph; returns the program, the source of each parameter, and that of each result.

    A parameter is an argument, or one in memory order of its axes (a tuple), its `real` or `imag` part, its `size` as the extent
    of an empty tensor (a second one for negative numbers), or a `number` that is not a size, as a scalar.
    """
    main = Module("main")
    values = [n.meta.get("val") for n in graph.placeholders]
    extents = Extents(_ranges(values))
    extents.met([s for v in values for s in (v.shape if isinstance(v, torch.Tensor) else [v])])
    converter = GraphConverter(main, graph.converters, extents)
    inputs, given = _inputs(graph, converter, values, args, weights)
    outputs, results = _results(graph, converter, converter.convert(graph.gm.graph, inputs))
    main.add_return(outputs)
    main.sweep()
    kept = set(main.parameters)
    return Program(Graph(main)), [g for g in given if g[0] in kept], results


def _inputs(
    graph: CompiledGraph,
    converter: GraphConverter,
    values: Sequence[Any],
    args: Sequence[Any],
    weights: Mapping[int, Any],
) -> tuple[list[Any], list[tuple[str, int, Part]]]:
    """Adds parameters for a graph's placeholders; returns their values and each parameter's source."""
    main, extents = converter.module, converter.extents
    given: list[tuple[str, int, Part]] = []
    inputs: list[Any] = []
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    on_host = _device(args) is None
    carried = {str(s) for v in tensors for s in v.shape if isinstance(s, torch.SymInt)}
    for i, (fx, value) in enumerate(zip(graph.placeholders, values, strict=True)):
        if i in weights:
            inputs.append(converter.constant(weights[i], fx.name))
        elif isinstance(args[i], torch.SymInt):
            if any(u.op != "output" for u in fx.users):
                raise UnsupportedError(
                    f"the input {fx.name!r} is the ragged size of a nested tensor, which is not a number"
                )
            inputs.append(value)
        elif isinstance(value, torch.SymInt) and only_computed_with(fx):
            inputs.append(main.add_parameter(fx.name, Shape.of(dt.int64, [])))
            given.append((fx.name, i, "number"))
        elif isinstance(value, torch.SymInt):
            size = extents.of(value)
            inputs.append(size)
            if isinstance(size, Sym) and str(value) not in carried:  # not an extent of any tensor
                made = main.add_parameter(fx.name, Shape.of(dt.uint8, [*extents.parts(value), 0]))
                converter.meet(made)
                given.append((fx.name, i, "size"))
        elif isinstance(value, (torch.SymFloat, torch.SymBool)):  # computed by another part of the graph
            kind = dt.bool_ if isinstance(value, torch.SymBool) else dt.float64
            inputs.append(main.add_parameter(fx.name, Shape.of(kind, [])))
            given.append((fx.name, i, "number"))
        elif isinstance(value, torch.Tensor):
            shape = shape_of(value, extents)
            if value.is_complex():
                inputs.append(Complex(*(main.add_parameter(f"{fx.name}.{part}", shape) for part in PARTS)))
                given += [(f"{fx.name}.{part}", i, part) for part in PARTS]
                continue
            # watched weights and memory that results overwrite are passed as they are
            order = order_of(value) if on_host and i not in graph.static and i not in graph.writes else None
            if order is None:
                inputs.append(main.add_parameter(fx.name, shape))
            else:
                inner = main.add_parameter(fx.name, Shape.of(shape.dtype, [shape.dims[a] for a in order]))
                inputs.append(converter.transposed(inner, inverse(order)))
            given.append((fx.name, i, order or ""))
        else:
            inputs.append(value)
    return inputs, given


def _results(
    graph: CompiledGraph, converter: GraphConverter, found: Any
) -> tuple[list[Instruction], list[tuple[str, Any]]]:
    """Returns the program's outputs and how to build each graph result from them; found: values of nodes."""
    (output,) = (n for n in graph.gm.graph.nodes if n.op == "output")
    nodes = output.args[0]
    # a part of a partitioned graph, whose single value may be complex (two parts)
    if not isinstance(nodes, (list, tuple)):
        nodes, found = [nodes], [found]
    outputs: list[Instruction] = []
    results: list[tuple[str, Any]] = []
    # results that have all elements of a node of which other results may be views: index and node
    whole: dict[torch.fx.Node, tuple[int, torch.fx.Node]] = {}
    for fx, value in zip(nodes, found, strict=True):
        if isinstance(fx, torch.fx.Node) and fx.op == "placeholder":
            results.append(("input", graph.placeholders.index(fx)))
        elif isinstance(fx, torch.fx.Node) and is_view_of_input(fx):
            source = views_of(fx)[0]
            region = region_of(fx, source)
            place = graph.placeholders.index(source)
            results.append(("view", fx) if region is None else ("argument's", (place, region)))
        elif not graph.apart and isinstance(fx, torch.fx.Node) and (shared := _shared(fx, whole)):
            results.append(("result's", shared))
        elif isinstance(value, (Complex, Instruction)):
            described = fx.meta.get("val")
            number = not isinstance(described, torch.Tensor)
            order = None if number else order_of(described)
            parts = value if isinstance(value, Complex) else [value]
            outputs += parts if order is None else [converter.transposed(p, order) for p in parts]
            kind = "complex" if isinstance(value, Complex) else "number" if number else "tensor"
            if kind == "tensor" and isinstance(fx, torch.fx.Node) and len(results) not in graph.writes.values():
                base = views_of(fx)[0]
                if covers(fx, base):
                    whole[base] = len(results), fx
            results.append((kind, None if order is None else inverse(order)))
        elif isinstance(value, Sym):
            outputs.append(converter.output(value))
            results.append(("number", None))
        else:
            results.append(("value", value))
    return outputs, results


def _shared(
    fx: torch.fx.Node, whole: Mapping[torch.fx.Node, tuple[int, torch.fx.Node]]
) -> tuple[int, tuple[Any, ...]] | None:
    """Returns the index of an earlier result whose memory a result shares in torch, too, and its region, () for all of it."""
    found = whole.get(views_of(fx)[0])
    if found is None:
        return None
    place, first = found
    region = () if first is fx else region_of(fx, first)
    return None if region is None else (place, region)


def _memory(
    writes: Mapping[int, int], given: Sequence[tuple[str, int, Part]], results: Sequence[tuple[str, Any]]
) -> dict[str, int]:
    """Returns the parameters that results overwrite, with the index of each result that is used unchanged."""
    names = {index: name for name, index, part in given if not part}
    numbers: dict[int, int] = {}
    count = 0
    for place, (kind, order) in enumerate(results):
        if kind == "tensor" and order is None:
            numbers[place] = count
        count += COUNTS.get(kind, 0)
    return {names[index]: numbers[place] for index, place in writes.items() if index in names and place in numbers}


def _ranges(values: Sequence[Any]) -> dict[Any, Any]:
    """Returns the ranges of all symbols of a ShapeEnv."""
    found = environment(values)
    return {} if found is None else dict(found.var_to_range)


def _device(args: Sequence[Any]) -> Any:
    """Returns the accelerator that stores the tensors; None for the host."""
    return next((a.device for a in args if isinstance(a, torch.Tensor) and a.device.type != "cpu"), None)


def _target_of(args: Sequence[Any]) -> str:
    """Returns the target for the tensors' device."""
    kinds = {a.device.type for a in args if isinstance(a, torch.Tensor)}
    if kinds <= {"cpu"}:
        return "cpu"
    if "cuda" in kinds:
        return "gpu"
    raise UnsupportedError(f"mgx has no target for tensors on {', '.join(sorted(kinds))}")
