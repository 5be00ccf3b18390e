"""Transformations of whole programs: prefixes, trimming, passes by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..errors import ParameterError, suggestion
from ..types.shape import Shape

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from ..ir.module import Module
    from ..program import Program

__all__ = ["PEERS", "apply_passes", "prefix", "steps", "trimmed", "without_literals"]


# equivalent passes by MIGraphX's names; empty if the engine does it after every pass
PEERS: Final = {
    "dead_code_elimination": "",
    "eliminate_common_subexpression": "merge-common",
    "eliminate_convert": "simplify",
    "eliminate_identity": "normalize",
    "eliminate_pad": "simplify",
    "fuse_attention": "fuse-attention",
    "fuse_horizontal": "join-gathers",
    "fuse_pointwise": "fuse-elementwise",
    "fuse_pointwise_reduce": "fuse-elementwise",
    "fuse_reduce": "fuse-elementwise",
    "inline_module": "inline-branches",
    "normalize_ops": "normalize",
    "optimize_module": "simplify",
    "propagate_constant": "fold-constants",
    "rewrite_gelu": "simplify",
    "rewrite_pooling": "simplify",
    "rewrite_quantization": "simplify",
    "simplify_algebra": "simplify",
    "simplify_dyn_ops": "simplify",
    "simplify_qdq": "simplify",
    "simplify_reshapes": "simplify",
}


def steps(module: Module) -> list[Instruction]:
    """Returns the instructions that perform computation, in order."""
    return [i for i in module if not (i.is_param or i.is_literal or i.is_return or i.is_absent)]


def prefix(program: Program, count: int) -> tuple[Program, list[int]]:
    """Returns a copy that ends after its first `count` steps, and the positions of the steps that it returns.

    It returns the steps that no other step uses, so that the whole prefix is live.
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
    """Returns True if an instruction of a nested module is run by one of `inside`."""
    from ..ir.module import nested

    return any(user.parent is m for ins in inside for inner in ins.modules for m in nested(inner))


def trimmed(program: Program, drop: int, keep: int = 0) -> Program:
    """Returns a copy without its last `drop` instructions.

    keep: only the last `keep` of the rest, whose other inputs become parameters (0: all).
    Errors: ParameterError if nothing would be left.
    """
    count = len(steps(program.get_main_module()))
    if drop >= count:
        raise ParameterError(f"the program has {count} instructions, so at most {count - 1} can be trimmed; got {drop}")
    shorter = prefix(program, count - drop)[0] if drop else program
    if not keep:
        return shorter
    from ..ir.extract import extract
    from ..ir.graph import Graph
    from ..program import Program

    main = shorter.get_main_module()
    return Program(Graph(extract(steps(main)[-keep:], main.outputs, "main")[0]))


def without_literals(program: Program) -> Program:
    """Returns a copy whose literals are parameters, so that a file of it is small; their names are ``literal_0`` and so on."""
    copy = program.clone()
    main = copy.get_main_module()
    for n, ins in enumerate([i for i in main if i.is_literal and isinstance(i.result, Shape)]):
        main.replace(ins, main.add_parameter(f"literal_{n}", ins.result))
        main.remove(ins)
    return copy


def apply_passes(program: Program, names: Sequence[str]) -> Program:
    """Returns a copy with passes applied in the order given; each is ``name`` or ``name:field=value,...``.

    Errors: ParameterError for an unknown pass or field, with near names.
    """
    from ..compile.pipeline import Pipeline, Stage
    from .rules import known_passes

    known = known_passes()
    chosen = []
    for text in names:
        name, _, given = text.partition(":")
        name = PEERS.get(name, name)
        if not name:
            continue
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
