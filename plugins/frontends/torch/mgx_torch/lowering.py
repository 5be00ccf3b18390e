"""Lowers modules to mgx: exported once, called like any other module."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, TensorArgument
from torch.utils._pytree import tree_flatten, tree_unflatten

from mgx_core import ParameterError, Program, UnsupportedError, get_target, load_buffer, save_buffer
from mgx_core.errors import counted
from mgx_core.types.shape import Shape

from .calls import is_complex
from .capture import captured
from .element_types import torch_dtype
from .exported import from_exported, is_result, parts_of_complex
from .node import described
from .options import TorchOptions
from .tensors import as_tensor, host_array
from .trees import parts_of, tree_of

__all__ = ["MgxModule", "lower_to_mgx"]


class MgxModule(torch.nn.Module):
    """A program of mgx as a torch module.  Results are new tensors; thread-safe.

    program: uncompiled; it is compiled for the target on the first call.  layout: the pytree of the results (None: a tensor, or a
    tuple).  call: the pytree of (positional arguments, keyword arguments), and for each leaf the constant that was exported, or
    ... for a tensor; None: all tensors in order.  numbers: for each leaf of the results whether it is a number that the program
    computes.  names: of the model's positional parameters.  complexes: for each leaf of the results whether it is complex; the
    program computes its parts.  A complex argument `x` is passed to the program's parameters `x.real` and `x.imag`.
    """

    def __init__(
        self,
        program: Program,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        options: TorchOptions | None = None,
        layout: Any = None,
        template: Sequence[Any] = (),
        call: tuple[Any, Sequence[Any]] | None = None,
        numbers: Sequence[bool] = (),
        names: Sequence[str] = (),
        complexes: Sequence[bool] = (),
    ) -> None:
        super().__init__()
        self.program = program
        self.input_names = list(program.get_parameter_names() if input_names is None else input_names)
        self.output_names = list(program.get_output_names() if output_names is None else output_names)
        self.options = options or TorchOptions()
        self.layout = layout
        self.template = tuple(template)
        self.numbers = tuple(numbers)
        self.call = call
        self.names = tuple(names)
        self.complexes = tuple(complexes)
        self.device: torch.device | None = None
        self._compiled: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._shapes = dict(program.get_parameter_shapes().items())

    @torch.compiler.disable(reason="a lowered module runs on mgx")
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program; in a function that `torch.compile` compiles, between two graphs.

        Errors: ParameterError for arguments, element types, shapes or devices other than lowered for.
        """
        given = [x for x in self._leaves(args, kwargs) if isinstance(x, torch.Tensor)]
        if len(given) != len(self.input_names):
            raise ParameterError(
                f"the module takes {counted(len(self.input_names), 'tensor')} ({', '.join(self.input_names)}), got {len(given)}"
            )
        for name, tensor in zip(self.input_names, given, strict=True):
            kind = self._dtype(name)
            if kind is not None and kind is not tensor.dtype:
                raise ParameterError(f"input {name!r} must be a tensor of {kind}, got {tensor.dtype}")
            if self.device is not None and tensor.device.type != self.device.type:
                raise ParameterError(
                    f"input {name!r} must be on {self.device}, to which the module was moved; it is on {tensor.device}"
                )
        kinds = {t.device.type for t in given} or {"cpu" if self.device is None else self.device.type}
        executable = self._executable("gpu" if "cuda" in kinds else "cpu")
        own = executable.target.own_memory and kinds == {"cuda"}
        values = {
            n: t.detach().contiguous() if own else host_array(t.cpu())
            for name, tensor in zip(self.input_names, given, strict=True)
            for n, t in _parts(name, tensor)
        }
        with torch.no_grad():
            found = [
                as_tensor(r.value)
                for r in executable.run({n: v for n, v in values.items() if n in executable.parameters})
            ]
        if kinds == {"cuda"} and not own:
            found = [f.cuda() for f in found]
        if self.layout is None:
            return found[0] if len(found) == 1 else tuple(found)
        results = iter(found)
        made: list[Any] = []
        for constant, parts in zip(self.template, self.complexes or (False,) * len(self.template), strict=True):
            computed = next(results) if is_result(constant) else None  # computed numbers are results of the program
            if parts and computed is not None:
                computed = torch.complex(computed, next(results))
            made.append(computed if constant is ... else constant)
        numbers = self.numbers or (False,) * len(made)
        made = [m.item() if number else m for m, number in zip(made, numbers, strict=True)]
        return tree_unflatten(made, self.layout)

    def _dtype(self, name: str) -> torch.dtype | None:
        """Returns the element type of an input; None if the program does not take it."""
        shape = self._shapes.get(name)
        if isinstance(shape, Shape):
            return torch_dtype(shape.dtype)
        shape = self._shapes.get(parts_of_complex(name)[0])
        return torch_dtype(shape.dtype).to_complex() if isinstance(shape, Shape) else None

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Returns the arguments in the order of the exported program.

        Errors: ParameterError for another pytree or another constant.
        """
        if self.call is None:
            return list(tree_flatten((args, kwargs))[0])
        tree, wanted = self.call
        try:
            found = list(tree.flatten_up_to(self._as_lowered(args, kwargs)))
        except ValueError as error:
            given = [_kind(a) for a in args] + [f"{name}={_kind(a)}" for name, a in kwargs.items()]
            raise ParameterError(
                f"the module was lowered for other arguments: it takes ({', '.join(self._takes())}), got ({', '.join(given)}): "
                f"{error}"
            ) from None
        for i, (want, got) in enumerate(zip(wanted, found, strict=True)):
            if want is ... and not isinstance(got, torch.Tensor):
                raise ParameterError(f"argument {i} must be a tensor, got {type(got).__name__}")
            if want is not ... and (type(got) is not type(want) or got != want):
                raise ParameterError(
                    f"argument {i} was lowered as the constant {want!r}, got {got!r}; lower the module again"
                )
        return found

    def _as_lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns arguments by position and by name as they were when the module was lowered, unchanged if they differ."""
        assert self.call is not None
        positional = len(self.call[0].children()[0].children())
        given = dict(zip(self.names, args, strict=False))
        twice = not given.keys().isdisjoint(kwargs)
        given.update(kwargs)
        first = self.names[:positional]
        if twice or max(positional, len(args)) > len(self.names) or not given.keys() >= set(first):
            return args, kwargs
        return tuple(given.pop(name) for name in first), given

    def _takes(self) -> list[str]:
        """Returns the arguments for which the module was lowered, for messages: tensors by name, constants by value."""
        assert self.call is not None
        tree, wanted = self.call
        names = iter(self.input_names)
        leaves = iter([next(names) if want is ... else repr(want) for want in wanted])
        found = []
        positional, named = tree.children()
        for key, spec in [
            *((None, s) for s in positional.children()),
            *zip(named.context, named.children(), strict=True),
        ]:
            parts = [next(leaves) for _ in range(spec.num_leaves)]
            text = parts[0] if spec.is_leaf() else f"{spec.type.__name__} of {len(spec.children())}"
            found.append(text if key is None else f"{key}={text}")
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> MgxModule:
        """Implements `to`, `cuda` and `cpu`: the module then runs on the device's target.

        A module that was never moved runs on the device of its inputs.
        Errors: ParameterError for another element type, or a device without a target.
        """
        probe = fn(torch.empty(0))
        if probe.dtype is not torch.float32:
            raise ParameterError(
                f"the element types of a lowered module are fixed, got {probe.dtype}; lower it with fp16=True or bf16=True"
            )
        if probe.device.type not in ("cpu", "cuda"):
            raise ParameterError(f"mgx has no target for the device {probe.device}")
        super()._apply(fn, recurse)
        if self.device is not None and self.device.type != probe.device.type:
            self.options = replace(self.options, target="")  # the previous device's target
        self.device = probe.device
        return self

    def _executable(self, kind: str) -> Any:
        target = self.options.target or kind
        with self._lock:
            found = self._compiled.get(target)
            if found is None:
                copy = self.program.clone()
                if self.options.fp16 or self.options.bf16:
                    from mgx_core import quantize_bf16, quantize_fp16

                    copy = (quantize_fp16 if self.options.fp16 else quantize_bf16)(copy)
                copy.compile(get_target(target), self.options.compile_options())
                found = self._compiled[target] = copy.executable
        return found

    def save(self, path: Any) -> None:
        """Writes the program as a ``.mxr`` file, which `mgx_core.load` loads without torch."""
        self.program.save(path)

    # the program is serialized in a state_dict, and when the module is copied or pickled; pytrees are serialized as their
    # parts, since torch warns when its own class is copied

    def get_extra_state(self) -> Any:
        return torch.frombuffer(bytearray(save_buffer(self.program)), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        self._take(load_buffer(bytes(state.numpy().tobytes())))

    def _take(self, program: Program) -> None:
        with self._lock:
            self.program = program
            self._shapes = dict(program.get_parameter_shapes().items())
            self._compiled = {}

    def __getstate__(self) -> Any:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_compiled", "program")}
        layout = None if self.layout is None else parts_of(self.layout)
        call = None if self.call is None else (parts_of(self.call[0]), self.call[1])
        return {**state, "program": save_buffer(self.program), "layout": layout, "call": call}

    def __setstate__(self, state: Any) -> None:
        data = state.pop("program")
        super().__setstate__(state)
        self.layout = None if self.layout is None else tree_of(self.layout)
        self.call = None if self.call is None else (tree_of(self.call[0]), self.call[1])
        self._lock = threading.RLock()
        self._compiled = {}
        self.program = load_buffer(data)


def _parts(name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Returns the program's parameters for an argument, with their values: two for a complex tensor."""
    if not tensor.is_complex():
        return [(name, tensor)]
    plain = tensor.detach().resolve_conj()
    return list(zip(parts_of_complex(name), (plain.real, plain.imag), strict=True))


def _kind(value: Any) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple, dict)) else type(value).__name__


def lower_to_mgx(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    release_weights: bool = False,
    **options: Any,
) -> MgxModule:
    """Exports a module with example inputs and returns a module that runs on mgx.

    The result has a copy of the weights: later writes to the module's weights do not affect it.
    dynamic_shapes: as for `torch.export.export`; release_weights: parameters are not copied, and the module's own are empty
    afterwards; options: those of the backend.
    Errors: UnsupportedError for an operator without a converter, and for code that depends on elements of tensors; ParameterError
    for unknown options, for a module that writes to its arguments or buffers, and for invalid `module` or `inputs`; torch's own
    errors if it cannot export the module for another reason.
    """
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"lower_to_mgx takes a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(inputs, Sequence):
        raise ParameterError(
            f"inputs must be a list or tuple of the module's positional arguments ([x] for one), got {type(inputs).__name__}"
        )
    chosen = TorchOptions.of(options)
    with evaluating(module), torch.no_grad():
        exported = captured(module, inputs, kwargs or {}, dynamic_shapes)
    _copy_weights(exported, parameters=not release_weights)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in kinds]
    return _module_of(exported, chosen, names, module if release_weights else None)


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Sets a module to eval mode; afterwards each of its submodules has its previous mode.

    The mode of exported modules, whose `eval` raises an error, is fixed: they are left as they are.
    """
    was = module.training
    modes = [(m, m.training) for m in module.modules()]
    fixed = False
    try:
        module.eval()
    except NotImplementedError:
        fixed = True
        for m, _ in modes:
            m.training = False
    try:
        yield
    finally:
        if not fixed:
            module.train(was)  # which some modules override
        for m, mode in modes:
            m.training = mode


def _copy_weights(exported: Any, parameters: bool) -> None:
    """Copies an exported program's weights; aliased weights are copied once.

    parameters: False copies buffers and constants only.
    """
    made: dict[int, torch.Tensor] = {}
    for tensors in (exported.state_dict, exported.constants):
        for name, tensor in tensors.items():
            trained = isinstance(tensor, torch.nn.Parameter)
            if not isinstance(tensor, torch.Tensor) or (trained and not parameters) or tensor.device.type != "cpu":
                continue  # device weights are copied by the program in any case
            if id(tensor) not in made:
                own = tensor.detach().clone()
                made[id(tensor)] = torch.nn.Parameter(own, tensor.requires_grad) if trained else own
            tensors[name] = made[id(tensor)]


def _module_of(
    exported: Any, options: TorchOptions, positional: Sequence[str], release: torch.nn.Module | None
) -> MgxModule:
    program = from_exported(exported)
    given = [s.arg for s in exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    for arg in given:
        if not isinstance(arg, (TensorArgument, ConstantArgument)):
            raise UnsupportedError(
                f"the argument {arg.name!r} is a number that changes from call to call; pass a tensor"
            )
    names = [a.name for a in given if isinstance(a, TensorArgument)]
    outputs = [s for s in exported.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    template = [s.arg.value if isinstance(s.arg, ConstantArgument) else ... for s in outputs]
    (results,) = (n.args[0] for n in exported.graph.nodes if n.op == "output")
    specs = exported.graph_signature.output_specs
    complexes = [
        is_complex(described(value))
        for value, spec in zip(results, specs, strict=True)
        if spec.kind.name == "USER_OUTPUT"
    ]
    computed = sum(map(is_result, template)) + sum(complexes)
    changed = program.get_output_names()[computed:]  # follow the user's results
    if changed:
        raise ParameterError(
            f"the module changes {', '.join(changed)} when it is called; run it with torch.compile(backend='mgx')"
        )
    numbers = [not isinstance(s.arg, (ConstantArgument, TensorArgument)) for s in outputs]
    layout = exported.call_spec.out_spec
    if release is not None:
        for parameter in release.parameters():
            parameter.data = parameter.data.new_empty(0)
    call = (exported.call_spec.in_spec, [a.value if isinstance(a, ConstantArgument) else ... for a in given])
    return MgxModule(program, names, None, options, layout, template, call, numbers, positional, complexes)
