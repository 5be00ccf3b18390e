"""Options for target and compilation, and the compilation of commands' programs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..errors import MgxError, PassError, ShapeError, UnsupportedError
from ..options import FLOAT32_PRECISIONS

if TYPE_CHECKING:
    from ..program import Program
    from ..run.executable import Executable
    from ..run.instance import Instance

__all__ = [
    "compile_options", "compiled", "host_placements", "names_target", "quantized", "rewriting", "rewriting_options",
    "target_name", "target_options",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
REWRITING: Final = (
    click.option(
        "--disable-fast-math",
        is_flag=True,
        help="Disable fast_math: no optimizations that change rounding, except within fused operations.",
    ),
    click.option("--disable-pass", "disable_passes", multiple=True, metavar="NAME", help="Disable a pass."),
    click.option(
        "--rule", "rules", multiple=True, metavar="NAME=on|off",
        help="Enable or disable a rewrite rule or fusion; `mgx-driver rules` lists them.",
    ),
)  # fmt: skip
TARGETS: Final = ("gpu", "cpu", "ref")  # with an option of their own
QUANTIZE: Final = {
    "fp16": "Compute floats in float16.",
    "bf16": "Compute floats in bfloat16.",
    "fp8": "Compute matrix products and convolutions in 8-bit floats.",
    "int8": "Compute matrix products and convolutions in 8-bit integers.",
    "int4_weights": "Keep weights in 4-bit integers.",
}


def rewriting_options(function: F) -> F:
    """Adds the options that select rewriting rules, for commands that optimize without compiling."""
    for option in reversed(REWRITING):
        function = option(function)
    return function


def target_options(function: F) -> F:
    """Adds the options that name a target, for `target_name`."""
    choice = "Compile for any installed target (default: the best installed)."
    function = click.option("--target", metavar="NAME", help=choice)(function)
    for name in reversed(TARGETS):
        function = click.option(f"--{name}", is_flag=True, help=f"Compile for the target {name}.")(function)
    return function


def compile_options(function: F) -> F:
    """Adds the options for target, compiler and reduced precision."""
    options = [
        click.option(
            "--enable-offload-copy/--disable-offload-copy", default=True,
            help="Parameters and results are in host memory, or in device memory.",
        ),
        click.option(
            "--exhaustive-tune", is_flag=True, help="Time all kernels that support an op and use the fastest."
        ),
        click.option(
            "--float32-precision", type=click.Choice(FLOAT32_PRECISIONS), default="highest", show_default=True,
            help="Internal precision of float32 products and convolutions.",
        ),
        *REWRITING,
        click.option("--validate", is_flag=True, help="Check the program after every pass."),
        *(click.option(f"--{n.replace('_', '-')}", n, is_flag=True, help=text) for n, text in QUANTIZE.items()),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return target_options(function)


def names_target(given: Mapping[str, Any]) -> bool:
    """Returns True if the options name a target."""
    return any(given[n] for n in (*TARGETS, "target"))


def target_name(given: Mapping[str, Any]) -> str:
    """Returns the one target that the options name, else the best installed.  Errors: click.UsageError if they name two."""
    named = [n for n in TARGETS if given[n]] + ([given["target"]] if given["target"] else [])
    if len(set(named)) > 1:
        raise click.UsageError(f"only one target may be selected, got {' and '.join(named)}")
    if named:
        return str(named[0])
    from ..api import best_target

    return best_target()


def quantized(program: Program, given: Mapping[str, Any], data: Callable[[], Mapping[str, Any]]) -> Program:
    """Returns the program in the reduced precision that the options ask for, calibrated on `data` if necessary.

    Errors: UnsupportedError if this installation of mgx cannot quantize.
    """
    wanted = [n for n in QUANTIZE if given[n]]
    if not wanted:
        return program
    from .. import quantize

    copy = program.clone()
    for name in wanted:
        function = getattr(quantize, f"quantize_{name}", None)
        if function is None:
            raise UnsupportedError(f"--{name.replace('_', '-')} is not available yet")
        if name in ("fp8", "int8"):
            from ..api import get_target

            made = function(copy, get_target(target_name(given)), [data()])
        else:
            made = function(copy)
        copy = copy if made is None else made
    return copy


def compiled(program: Program, given: Mapping[str, Any]) -> Executable:
    """Returns the executable of a program on the chosen target; one that was compiled before it was saved is used unchanged.

    Errors: any error that a pass or the target raises.
    """
    if program.executable is None or names_target(given):
        from ..api import get_target

        target = get_target(target_name(given))
        try:
            program.compile(
                target,
                offload_copy=given["enable_offload_copy"],
                exhaustive_tune=given["exhaustive_tune"],
                float32_precision=given["float32_precision"],
                **rewriting(given),
                validate=given["validate"],
            )
        except (PassError, UnsupportedError, ShapeError):
            _keep(program)
            raise
    assert program.executable is not None
    return program.executable


def _keep(program: Program) -> None:
    """Saves a program that failed to compile, for inspection with the other commands."""
    place = Path(tempfile.mkdtemp(prefix="mgx-")) / "uncompiled.mxr"
    try:
        program.save(place)
    except MgxError:  # it cannot be stored either
        place.parent.rmdir()
    else:
        click.echo(f"note: the program that could not be compiled is in {place}", err=True)


def rewriting(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of `rewriting_options` as those of the compiler; none where a command lacks them."""
    if "rules" not in given:
        return {}
    return {
        "fast_math": not given["disable_fast_math"],
        "disable_passes": tuple(given["disable_passes"]),
        "fusion_rules": switched(given["rules"]),
    }


def switched(given: Iterable[str]) -> dict[str, bool]:
    """Returns the words of ``--rule`` as `fusion_rules`.

    Errors: click.UsageError for anything but ``NAME=on`` or ``NAME=off``.
    """
    found = {}
    for word in given:
        name, _, state = word.partition("=")
        if not name or state not in ("on", "off"):
            raise click.UsageError(f"--rule takes NAME=on or NAME=off, got {word!r}")
        found[name] = state == "on"
    return found


def host_placements(instance: Instance) -> list[dict[str, Any]]:
    """Returns the ops that fell back to the host: op, source names, and every reason for refusal."""
    return [
        {"op": p.op, "sources": list(p.sources), "kernel": p.kernel, "refused": list(p.refused)}
        for p in instance.placements
        if p.place == "host"
    ]
