"""Programs specialized for sizes of an open extent, with a module for each size, selected by the shapes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from mgx_core import DynamicDimension, Instruction, Module, ParameterError, Program, Shape, ShapeError
from mgx_core.types.dim import Dim, Symbol, symbols_of

__all__ = ["prepare", "share", "specialized"]

NARROW: Final = 4  # maximum number of sizes specialized by default


def specialized(program: Program, sizes: Sequence[int]) -> Program:
    """Returns a program with a module for each of these values of the only symbol of its parameters' extents.

    A generic module handles other sizes.
    sizes: if empty, all values of the symbol if there are few and the model accepts each; otherwise the program is unchanged.
    Errors: ParameterError for no or several symbols, and for sizes outside the symbol's range; ShapeError for sizes that the
    model does not accept.
    """
    shapes = _tensors(program)
    names = {s.name: s for shape in shapes.values() for d in shape.dims for s in symbols_of(d)}
    if len(names) != 1 or len(shapes) != len(program.get_parameter_names()) or program.states:
        if not sizes:
            return program
        got = ", ".join(sorted(names)) or "none"
        raise ParameterError(f"split_sizes requires parameters whose open extents contain exactly one name, got {got}")
    (of,) = names.values()
    for size in sizes:
        if not of.lo <= size <= of.hi:
            raise ParameterError(f"split_sizes: {of.name} must be within {DynamicDimension(of.lo, of.hi)}, got {size}")
    everything = range(of.lo, of.hi + 1)
    if not sizes and len(everything) > NARROW:
        return program
    try:
        return _selecting(program, shapes, of, sorted(set(sizes or everything)))
    except ShapeError:
        if sizes:
            raise
        return program


def _selecting(program: Program, shapes: Mapping[str, Shape], of: Symbol, sizes: Sequence[int]) -> Program:
    from mgx_core.ops.control import GetTupleElem
    from mgx_core.ops.modules import SelectModule

    source = program.get_main_module()
    made = Program(output_names=program.get_output_names())
    main = made.get_main_module()
    inputs = {n: main.add_parameter(n, s) for n, s in shapes.items()}
    values: dict[str, dict[str, Dim]] = {str(size): {of.name: size} for size in sizes}
    if len(sizes) <= of.hi - of.lo:
        values["others"] = {}
    modules = []
    for word, known in values.items():
        module = made.create_module(f"main:{of.name}:{word}")
        given = {n: module.add_parameter(n, s.substitute(known)) for n, s in shapes.items()}
        module.add_return(module.inline(source, [given[n] for n in source.parameters]))
        modules.append(module)
    share(main, modules)
    selected = main.add(SelectModule(), *inputs.values(), modules=modules)
    main.add_return([main.add(GetTupleElem(index=i), selected) for i in range(len(program.get_output_shapes()))])
    made.files = program.files
    return made


def prepare(program: Program, sizes: Sequence[int]) -> None:
    """Creates the instances of a compiled program for these sizes of the only symbol of its parameters' extents."""
    assert program.executable is not None
    shapes = _tensors(program)
    names = {s.name for shape in shapes.values() for d in shape.dims for s in symbols_of(d)}
    for size in sizes:
        known: dict[str, Dim] = dict.fromkeys(names, size)
        program.executable.dry_run({n: np.zeros(s.substitute(known).lens(), s.numpy_dtype) for n, s in shapes.items()})


def _tensors(program: Program) -> dict[str, Shape]:
    return {n: s for n, s in program.get_parameter_shapes().items() if isinstance(s, Shape) and s.ranked}


def share(main: Module, modules: Sequence[Module]) -> None:
    """Moves the constants that all of these modules contain to the main one."""
    first, *rest = map(_constants, modules)
    for key in [k for k in first if all(k in other for other in rest)]:
        literal = first[key].literal
        assert literal is not None
        one = main.add_literal(literal)
        for found in (first, *rest):
            ins = found[key]
            assert ins.parent is not None
            ins.parent.replace(ins, one)
            ins.parent.remove(ins)


def _constants(module: Module) -> dict[Any, Instruction]:
    """Returns a module's constants by type and content; equal ones are merged."""
    found: dict[Any, Instruction] = {}
    for ins in list(module):
        if ins.literal is not None and ins.shape.dtype.kind != "s":
            key = (ins.result, sha256(np.ascontiguousarray(ins.literal.to_numpy())).digest())
            module.replace(ins, found.setdefault(key, ins))
    return found
