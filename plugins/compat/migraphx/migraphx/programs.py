"""`migraphx.program` and `migraphx.target`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, SupportsInt

import numpy as np

import mgx_core as mgx
from mgx_core import Argument, CompileOptions, ParameterError, Program, Shape
from mgx_core.log import showing

from . import environment
from .arguments import argument, generate_argument, of_argument
from .compile_modes import compile_modes
from .instructions import instruction_ref, module
from .rule_names import with_core_rules
from .shapes import of_shape, shape

if TYPE_CHECKING:
    from mgx_core import Context
    from mgx_core.run.executable import Executable

    from .rebatch import Rebatched
    from .verifying import Verified, program_verify_mode, program_verify_options

__all__ = ["parameter_shapes", "program", "target"]

STREAMS: Final = ("ihipStream_t", "CUstream_st", "void")
PLAIN: Final = frozenset({"ref"})  # targets for which MIGraphX does not optimize programs


class target:
    """A target, returned by `get_target`."""

    __slots__ = ("core",)

    def __init__(self, core: Any) -> None:
        self.core = core

    @property
    def plain(self) -> bool:
        """True if programs run on it unoptimized, instruction by instruction."""
        return self.core.name in PLAIN

    def __repr__(self) -> str:
        return repr(self.core)


class parameter_shapes(dict[str, shape]):
    """Shapes of parameters by name, or by position (``[0]``)."""

    def __missing__(self, key: object) -> shape:
        if isinstance(key, int):
            return list(self.values())[key]
        raise KeyError(key)


class program:
    """A program: modules, of which ``main`` is run, and, once compiled, its executable."""

    __slots__ = ("_lock", "_names", "_rebatched", "_scalars", "core")

    def __init__(self) -> None:
        self._hold(Program())

    def _hold(self, core: Program) -> None:
        self.core = core
        self._lock = Lock()
        self._rebatched: Rebatched | None = None
        self._scalars: tuple[str, ...] = ()  # parameters of rank 0
        self._names: frozenset[str] = frozenset()
        if core.executable is not None:
            self._compiled()

    def _compiled(self) -> None:
        executable = self.core.executable
        assert executable is not None
        self._names = frozenset((*executable.parameters, *executable.output_places))
        self._scalars = tuple(
            n for n, s in executable.parameters.items() if isinstance(s, Shape) and s.ranked and not s.rank
        )
        self._rebatched = None

    def __deepcopy__(self, memo: dict[int, Any]) -> program:
        return of_program(deepcopy(self.core, memo))

    def get_parameter_names(self) -> list[str]:
        return self.core.get_parameter_names()

    def get_parameter_shapes(self) -> dict[str, shape]:
        return parameter_shapes((n, of_shape(s)) for n, s in self.core.get_parameter_shapes().items())

    def get_output_shapes(self) -> list[shape]:
        return list(map(of_shape, self.core.get_output_shapes()))

    def get_main_module(self) -> module:
        return module(self.core.get_main_module())

    def create_module(self, name: str) -> module:
        return module(self.core.create_module(name))

    def is_compiled(self) -> bool:
        return self.core.is_compiled()

    def compile(
        self,
        t: target | Context,
        offload_copy: bool | Mapping[str, Any] = True,
        fast_math: bool = True,
        exhaustive_tune: bool = False,
        compile_mode: compile_modes | None = None,
        split_sizes: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Compiles the program for a target or a context.

        offload_copy: or a mapping of any options of `mgx_core.CompileOptions`, which may also be keywords; compile_mode: `max`
        tunes exhaustively, `eager` and `balanced` are the default; split_sizes: values of the only symbol of the open extents: a
        module (selected by ``select_module``) and its kernels are created now for each.
        """
        plain = isinstance(t, target) and t.plain
        if plain and split_sizes:
            raise ParameterError(f"split_sizes is not supported by {t}, which does not compile kernels; leave it out")
        tune = exhaustive_tune or compile_mode is compile_modes.max
        given = {"fast_math": fast_math, "exhaustive_tune": tune} | options
        if isinstance(offload_copy, (Mapping, CompileOptions)):
            record = CompileOptions.of(
                offload_copy if isinstance(offload_copy, CompileOptions) else with_core_rules(offload_copy), **options
            )
        else:
            record = CompileOptions.of(given, offload_copy=offload_copy)
        asked = environment.options(os.environ)
        if asked:
            rules = {**asked.pop("fusion_rules", {}), **record.fusion_rules}
            passes = (*record.disable_passes, *asked.pop("disable_passes", ()))
            record = dataclasses.replace(record, fusion_rules=rules, disable_passes=passes, **asked)
        if plain and "optimize" not in options:
            record = dataclasses.replace(record, optimize=False)
        from .specializing import prepare, specialized  # imported lazily: it imports hashing

        core = self.core
        if not plain and not core.is_compiled():
            core = specialized(core, split_sizes)
        with showing(environment.shown(os.environ)):
            core.compile(t.core if isinstance(t, target) else t, record)
        self.core = core
        self._compiled()
        prepare(core, split_sizes)

    def run(self, params: Mapping[str, Any]) -> list[argument]:
        """Returns the results for parameter values by name; unknown names are ignored.

        A program that is not compiled is run by the reference implementations.
        """
        executable = self.core.executable
        if executable is None:
            return self._evaluated(params)
        try:
            results = executable.run(self._given(params))
        except ParameterError as error:
            results = self._in_another_batch(params, error)
        return [of_argument(r) for r in results]

    def run_async(self, args: Mapping[str, Any], queue: SupportsInt, queue_type: str) -> list[argument]:
        """Like `run`, enqueued on the caller's stream, given by its address and type name.

        Errors: ParameterError for another type than HIP's (``ihipStream_t``), CUDA's or ``void``.
        """
        if queue_type not in STREAMS:
            raise ParameterError(f"queue_type must be one of {', '.join(STREAMS)}, got {queue_type!r}")
        return [of_argument(r) for r in self.core.run_async(self._given(args), queue, queue_type)]

    def run_trace(self, params: Mapping[str, Any], callback: Callable[[Any, argument], Any]) -> list[argument]:
        """Like `run`; calls ``callback(instruction_ref, argument)`` after each instruction of the compiled program."""
        results = self.core.run_trace(
            self._given(params), lambda ins, value: callback(instruction_ref(ins), of_argument(value))
        )
        return [of_argument(r) for r in results]

    def _given(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            known = params.keys() <= self._names
        except AttributeError:
            raise ParameterError(
                f"a mapping of arguments by parameter name is required, got {type(params).__name__}"
            ) from None
        if not known:
            params = {n: v for n, v in params.items() if n in self._names}
        if self._scalars:
            params = dict(params)
            for name in self._scalars:
                if name in params:
                    params[name] = _without_axis(params[name])
        return params

    def _in_another_batch(self, params: Mapping[str, Any], error: ParameterError) -> list[Argument]:
        """Returns the results for parameters that differ from the declared ones only in the first extent."""
        from .rebatch import Rebatched  # imported lazily: it imports the ops

        with self._lock:
            rebatched = self._rebatched = self._rebatched or Rebatched(self.core)
        return rebatched.run(self._given(params), error)

    def _evaluated(self, params: Mapping[str, Any]) -> list[argument]:
        from mgx_core.ir.interpreter import evaluate_module

        main = self.core.get_main_module()
        missing = [n for n in main.parameters if n not in params]
        if missing:
            raise ParameterError(f"parameter {missing[0]!r} is missing")
        return [of_argument(r) for r in evaluate_module(main, list(self._bound(params).values()))]

    def _bound(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameter values, converted for the core."""
        found = {}
        for name, parameter in self.core.get_main_module().parameters.items():
            scalar = isinstance(parameter.result, Shape) and parameter.result.ranked and not parameter.result.rank
            found[name] = _without_axis(params[name]) if scalar else params[name]
        return found

    def verify(
        self,
        target: target | Context,
        mode: program_verify_mode | None = None,
        params: Mapping[str, Any] | None = None,
        options: program_verify_options | None = None,
    ) -> Verified:
        """Compares the program on a target with the reference: its results, or as selected by `mode`.

        params: missing ones are random numbers.
        Errors: ParameterError for unknown options; ShapeError for a missing parameter with open extents.
        """
        from .verifying import program_verify_mode, program_verify_options, verified

        given = {n: generate_argument(s) for n, s in self.get_parameter_shapes().items() if n not in (params or {})}
        values = self._bound({**given, **(params or {})})

        def compiled(core: Program, keywords: Mapping[str, Any]) -> Executable:
            made = of_program(core)
            made.compile(target, True, **keywords)
            assert made.core.executable is not None
            return made.core.executable

        return verified(
            self.core, compiled, mode or program_verify_mode.outputs, values, options or program_verify_options()
        )

    def to_py(self) -> str:
        """Returns a Python script that rebuilds the program."""
        return self.core.to_py("migraphx")

    def sort(self) -> None:
        self.core.sort()

    def print(self) -> None:
        print(self)

    def write_netron_output(self, filename: Any) -> None:
        """Writes an ONNX model for viewers.  Errors: UnsupportedError if no installed frontend can export."""
        from pathlib import Path

        from mgx_core.driver.viewers import export_netron

        export_netron(self.core, Path(filename))

    def save(self, path: Any, format: str = "msgpack") -> None:
        self.core.save(path, format)

    def __eq__(self, other: object) -> bool:
        from .equality import equal

        return isinstance(other, program) and (self.core == other.core or equal(self.core, other.core))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        from .program_text import program_text

        return program_text(self.core.shown)


def of_program(core: Program) -> program:
    """Wraps a core program."""
    made = program.__new__(program)
    made._hold(core)
    return made


def get_target(name: str) -> target:
    """Returns a target by name.  Errors: UnsupportedError if no installed package provides it, with a hint what to install."""
    return target(mgx.get_target(name))


def _without_axis(given: Any) -> Any:
    """Removes the axis that a scalar has in MIGraphX."""
    value = given if isinstance(given, Argument) else Argument(given)
    held = value.value
    return held.reshape(()) if isinstance(held, np.ndarray) and held.size == 1 else given
