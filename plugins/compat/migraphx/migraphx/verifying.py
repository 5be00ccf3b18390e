"""`program.verify`: compares a target's results with the reference: final ones, step by step, or up to the first difference."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mgx_core as mgx
from mgx_core import MgxError, ParameterError, Program

if TYPE_CHECKING:
    from mgx_core.driver.accuracy import Difference
    from mgx_core.driver.bisection import Bisection
    from mgx_core.run.executable import Executable

__all__ = ["program_verify_mode", "program_verify_options", "program_verify_precision", "verified"]


class program_verify_mode(enum.Enum):
    """The values compared: results; each instruction with the reference's inputs; results of shrinking programs; a
    bisection for the first instruction that differs; results of growing programs.
    """

    outputs = 0
    instructions = 1
    reduce = 2
    bisect = 3
    layerwise = 4


class program_verify_precision(enum.Enum):
    """The float type on the target."""

    fp32 = 0
    fp16 = 1
    bf16 = 2


@dataclass
class program_verify_options:
    """Options of `program.verify`.

    rms_tol, atol, rtol: None for MIGraphX's defaults, 0.001, or 0.08, 0.04 and 0.04 with 16-bit floats; compiled_model: a saved
    program whose results are compared instead; name: of the entry in the result; offload_copy: ignored, data is always copied.
    """

    rms_tol: float | None = None
    atol: float | None = None
    rtol: float | None = None
    precision: program_verify_precision = program_verify_precision.fp32
    ref_use_double: bool = False
    compiled_model: str = ""
    name: str = ""
    offload_copy: bool = False
    fast_math: bool = True
    exhaustive_tune: bool = False
    compile_mode: enum.Enum | None = None
    backend: dict[str, Any] = field(default_factory=dict, init=False)

    def set_backend_option(self, name: str, value: Any) -> None:
        """Sets an option of `mgx_core.CompileOptions`; `program.verify` rejects unknown names."""
        self.backend[name] = value


@dataclass(frozen=True)
class Compared:
    """A comparison; message: why it failed; exception: True if an error prevented it."""

    name: str
    operator: str
    message: str
    index: int
    rms_error: float
    passed: bool
    exception: bool = False


@dataclass
class Verified:
    """All comparisons; failure_step: the first instruction that differs, if instructions were compared."""

    mode: program_verify_mode
    results: list[Compared] = field(default_factory=list)
    failure_step: int | None = None

    def passed(self) -> bool:
        return all(r.passed for r in self.results)

    def failures(self) -> list[Compared]:
        return [r for r in self.results if not r.passed]


def verified(
    core: Program,
    compile: Callable[[Program, Mapping[str, Any]], Executable],
    mode: program_verify_mode,
    values: Mapping[str, Any],
    options: program_verify_options,
) -> Verified:
    """Compares a program with the reference; `compile` compiles a program of its own with keywords of `program.compile`."""
    from mgx_core.driver.accuracy import Tolerance, default_tolerance
    from mgx_core.driver.bisection import Bisection

    narrow = options.precision is not program_verify_precision.fp32
    default = default_tolerance(core.get_main_module(), narrow)
    given = (options.rms_tol, options.atol, options.rtol)
    tolerance = Tolerance(
        *(d if g is None else g for g, d in zip(given, (default.rms, default.atol, default.rtol), strict=True))
    )
    hunt = Bisection(core, values, tolerance, lambda p: _compiled(p, compile, options), options.ref_use_double)
    result = Verified(mode)
    count = len(hunt.steps)
    match mode:
        case program_verify_mode.outputs:
            result.results = [_outputs(hunt, options)]
            return result
        case program_verify_mode.instructions:
            result.results = [_step(hunt, n, partial(_alone, hunt, n)) for n in range(count)]
        case program_verify_mode.reduce:
            result.results = [_step(hunt, n - 1, partial(hunt.prefix, n)) for n in range(count, 0, -1)]
        case program_verify_mode.bisect:
            result.results = _bisected(hunt)
        case program_verify_mode.layerwise:
            result.results = [_step(hunt, n - 1, partial(hunt.prefix, n)) for n in range(1, count + 1)]
    result.failure_step = min((r.index for r in result.failures()), default=None)
    return result


def _compiled(
    core: Program, compile: Callable[[Program, Mapping[str, Any]], Executable], options: program_verify_options
) -> Executable:
    from mgx_core.ir.module import nested

    made = core.clone()
    names = {ins.name for m in nested(made.get_main_module()) for ins in m}
    if options.precision is program_verify_precision.fp16:
        mgx.quantize_fp16(made, names)
    elif options.precision is program_verify_precision.bf16:
        mgx.quantize_bf16(made, names)
    chosen = ("fast_math", "exhaustive_tune", "compile_mode")
    return compile(made, {n: getattr(options, n) for n in chosen} | options.backend)


def _outputs(hunt: Bisection, options: program_verify_options) -> Compared:
    from mgx_core.driver.accuracy import worst

    def whole() -> Difference:
        executable = _loaded(options.compiled_model) or hunt.compile(hunt.program)
        return worst("results", hunt.compared(executable))

    return _tried(options.name, "@return", 0, whole)


def _loaded(path: str) -> Executable | None:
    """Returns the executable of a saved program; None for an empty path.  Errors: ParameterError if it is not compiled."""
    if not path:
        return None
    found = mgx.load(Path(path)).executable
    if found is None:
        raise ParameterError(f"{path} contains a program that is not compiled: compile it before saving")
    return found


def _alone(hunt: Bisection, index: int) -> Difference:
    return hunt.alone(index)[0]


def _bisected(hunt: Bisection) -> list[Compared]:
    tried: list[Compared] = []
    if not hunt.steps:
        return tried
    try:
        hunt.bisect(lambda count, d: tried.append(_step(hunt, count - 1, lambda: d)))
    except MgxError as error:
        tried.append(Compared("", "", str(error), len(hunt.steps) - 1, 0.0, False, True))
    return tried


def _step(hunt: Bisection, index: int, compare: Callable[[], Difference]) -> Compared:
    ins = hunt.steps[index]
    return _tried(ins.sources[0] if ins.sources else "", ins.name, index, compare)


def _tried(name: str, operator: str, index: int, compare: Callable[[], Difference]) -> Compared:
    try:
        found = compare()
    except MgxError as error:
        return Compared(name, operator, str(error), index, 0.0, False, True)
    return Compared(name, operator, found.why, index, found.rms, found.ok)
