"""Edits of whole programs: prefixes, and passes by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError, suggestion

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from ..ir.module import Module
    from ..program import Program

__all__ = ["apply_passes", "prefix", "steps", "trimmed"]


def steps(module: Module) -> list[Instruction]:
    """The instructions that compute something, in order."""
    return [i for i in module if not (i.is_param or i.is_literal or i.is_return or i.is_absent)]


def prefix(program: Program, count: int) -> tuple[Program, list[int]]:
    """A copy that ends after its first `count` steps, and the positions of the steps that it returns.

    Returned is what no other step of the prefix reads, so that all of the prefix is alive.
    """
    from ..program import Program

    copy = program.clone().graph
    kept = steps(copy.main)[:count]
    inside = set(kept)
    ends = [n for n, ins in enumerate(kept) if not any(u in inside or _belongs(u, inside) for u in ins.users)]
    copy.main.replace_return([kept[n] for n in ends])
    copy.main.sweep()
    return Program(copy), ends


def _belongs(user: Instruction, inside: set[Instruction]) -> bool:
    """True if an instruction of a nested module is run by one of `inside`."""
    from ..ir.module import nested

    return any(user.parent is m for ins in inside for inner in ins.modules for m in nested(inner))


def trimmed(program: Program, drop: int) -> Program:
    """A copy without its last `drop` instructions.  Errors: ParameterError if nothing would be left."""
    count = len(steps(program.get_main_module()))
    if drop >= count:
        raise ParameterError(f"the program has {count} instructions, so at most {count - 1} can be trimmed; got {drop}")
    return prefix(program, count - drop)[0]


def apply_passes(program: Program, names: Sequence[str]) -> Program:
    """A copy with passes applied in the order given; each is ``name`` or ``name:field=value,...``.

    Errors: ParameterError for an unknown pass or field, with near names.
    """
    from ..compile.pipeline import Pipeline, Stage
    from .rules import known_passes

    known = known_passes()
    chosen = []
    for text in names:
        name, _, given = text.partition(":")
        if name not in known:
            near = suggestion(name, sorted(known), "mgx-driver rules --passes")
            raise ParameterError(f"there is no pass {name!r}; {near}")
        fields = {f.name for f in dataclasses.fields(known[name]) if f.init} - {"name"}
        values: dict[str, Any] = {}
        for part in filter(None, given.split(",")):
            key, _, value = part.partition("=")
            if key not in fields:
                raise ParameterError(
                    f"pass {name!r} has no field {key!r}; it has {', '.join(sorted(fields)) or 'none'}"
                )
            try:
                values[key] = json.loads(value)
            except ValueError:
                values[key] = value
        chosen.append(dataclasses.replace(known[name], **values))
    copy = program.clone()
    Pipeline([Stage("applied", tuple(chosen))], validate=True).run(copy.get_main_module())
    return copy
