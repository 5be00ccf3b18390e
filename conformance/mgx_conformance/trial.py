"""Runs one case on a target: builds a one-op program, lays out its inputs, and compares the results with the reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgx_core import MgxError, Program, Shape, TupleShape, dim
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.movement import Transpose
from mgx_core.ops.operation import Operation
from mgx_core.ops.slice import Slice

from .accuracy import tolerance
from .cases import all_cases
from .cases.case import Case, Operand
from .claims import false_claims, watched
from .compare import differs
from .guard import Guarded
from .noise import expected, spread_of_parts
from .primitive_errors import SAFETY

__all__ = ["NotApplicable", "Trial", "applies", "attempt", "selected"]


class NotApplicable(Exception):
    """The case does not exist in this layout."""


@dataclass
class Trial:
    """A program of one op with the values of its parameters, and the op's operands."""

    program: Program
    feeds: dict[str, Any]
    operands: list[Any]
    placed: dict[str, str] = field(default_factory=dict)


def selected(cases: Iterable[Case] | None = None) -> Iterator[tuple[Case, str]]:
    """Yields cases (by default of the whole standard set) with each of their layouts."""
    for case in all_cases() if cases is None else cases:
        for layout in case.layouts:
            if applies(case, layout):
                yield case, layout


def applies(case: Case, layout: str) -> bool:
    """Returns True if a case differs from the contiguous one in a layout."""
    if layout == "contiguous":
        return True
    moving = [o for o in case.operands if isinstance(o, Operand) and o.moves and o.dims]
    if layout == "transposed":
        moving = [o for o in moving if sum(n != 1 for n in o.dims) > 1]
    if layout == "broadcast":
        moving = [o for o in moving if any(n > 1 for n in o.dims)]
    return bool(moving)


def build(case: Case, layout: str) -> Trial:
    """Returns the program of a case in a layout.  Errors: NotApplicable; MgxError if the op rejects its operands."""
    rng = case.rng()
    program = Program()
    main = program.get_main_module()
    feeds: dict[str, Any] = {}
    values: list[Any] = []
    slots: list[Any] = []
    for n, operand in enumerate(case.operands):
        if operand is None:
            slots.append(None)
            values.append(None)
            continue
        name = f"x{n}"
        if not isinstance(operand, Operand):  # a sequence or another declared type
            kind, value = operand
            slots.append(main.add_parameter(name, kind))
            feeds[name] = value
            values.append(value)
            continue
        fed, value, shape, view = _laid_out(operand, layout if operand.moves and operand.dims else "contiguous", rng)
        parameter = main.add_parameter(name, shape)
        slots.append((parameter, view))
        feeds[name] = fed
        values.append(value)
    inputs = []
    for slot in slots:
        if slot is None:
            inputs.append(main.add_absent())
        elif isinstance(slot, tuple):
            parameter, view = slot
            inputs.append(parameter if view is None else main.add(view, parameter))
        else:
            inputs.append(slot)
    while inputs and inputs[-1].is_absent:
        main.remove(inputs.pop())
        values.pop()
    modules = () if case.modules is None else case.modules(program)
    made = main.add(case.op, *inputs, modules=modules)
    if isinstance(made.result, TupleShape):
        main.add_return([main.add(GetTupleElem(index=i), made) for i in range(len(made.result.items))])
    else:
        main.add_return([made])
    return Trial(program, feeds, values)


def _laid_out(operand: Operand, layout: str, rng: np.random.Generator) -> tuple[Any, Any, Shape, Operation | None]:
    """Returns the array to pass, the op's operand, the parameter's shape, and the view between them."""
    dims, kind = operand.dims, operand.dtype
    match layout:
        case "strided":  # every second element along the last axis, backwards along the first
            wide = operand.draw(rng, (*dims[:-1], 2 * dims[-1]))
            value = wide[..., ::2][::-1]
            return value, value, Shape(kind, dims), None
        case "transposed":
            fed = operand.draw(rng, dims[::-1])
            order = tuple(reversed(range(len(dims))))
            return fed, fed.transpose(), Shape(kind, dims[::-1]), Transpose(permutation=order)
        case "sliced":
            fed = operand.draw(rng, tuple(n + 3 for n in dims))
            cut = tuple(slice(1, 1 + n) for n in dims)
            axes = tuple(range(len(dims)))
            view = Slice(axes=axes, starts=(1,) * len(dims), ends=tuple(n + 1 for n in dims))
            return fed, fed[cut], Shape(kind, fed.shape), view
        case "broadcast":
            axis = next((i for i, n in enumerate(dims) if n > 1), None)
            if axis is not None:
                fed = operand.draw(rng, (*dims[:axis], 1, *dims[axis + 1 :]))
                return fed, np.broadcast_to(fed, dims), Shape(kind, fed.shape), Multibroadcast(out_lens=dims)
        case "symbolic":
            value = operand.draw(rng)
            lens = [dim.symbol(f"n{dims[0]}", 0, 2 * dims[0] + 1), *dims[1:]]
            return value, value, Shape(kind, lens), None
    value = operand.draw(rng)
    return value, value, Shape(kind, dims), None


def attempt(case: Case, layout: str, target: Any, options: dict[str, Any] | None = None) -> Trial:
    """Runs a case on a target and checks the results.

    Errors: AssertionError for wrong results; NotApplicable if the case has no such layout; any error that the target raises.
    """
    try:
        trial = build(case, layout)
    except MgxError as error:
        if layout == "symbolic":  # the op's attributes or infer need these extents
            raise NotApplicable(str(error)) from None
        raise
    trial.program.compile(target, **(options or {}))
    guards = {name: Guarded(value) for name, value in trial.feeds.items()}
    fed = {name: guard.array for name, guard in guards.items()}
    if case.error is not None:
        _must_refuse(trial, fed, case)
        return trial
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted, allowed = by_definition(case, trial)
        executable = trial.program.executable
        assert executable is not None
        # lowering, unlike running, may evaluate constants by reference implementations, which are watched below
        executable.instance(executable.bind(fed))
        with watched(type(case.op)) as evaluated:
            got = [a.value for a in trial.program.run(fed)]
        for name, guard in guards.items():
            why = guard.broken()
            assert not why, f"input {name}: {why}"
        assert len(got) == len(wanted), f"{len(wanted)} results required, got {len(got)}"
        why = false_claims(trial.program.executable, evaluated)
        assert not why, why
        if case.judge is not None:
            case.judge(got, trial.operands)
        else:
            for n, (a, b, t) in enumerate(zip(got, wanted, allowed, strict=True)):
                why = differs(a, b, t)
                assert not why, f"result {n} of {case.op!r}: {why}"
    trial.placed = placements(trial.program)
    return trial


def by_definition(case: Case, trial: Trial) -> tuple[list[Any], list[Any]]:
    """Returns a case's reference results and their tolerances."""
    module, values = trial.program.get_main_module(), list(trial.feeds.values())
    if case.modules is not None:
        whole = expected(module, values)
        return whole.results, whole.tolerances
    wanted = Interpreter().run(module, values)
    if case.judge is not None:
        return wanted, [None] * len(wanted)
    steering = {n for n, o in enumerate(case.operands) if o is not None and not (isinstance(o, Operand) and o.moves)}
    allowed = tolerance(case.op, trial.operands, wanted, case.rng(), steering)
    if len(wanted) == 1 and allowed[0] is not None:
        parts = spread_of_parts(case.op, trial.operands, wanted[0], case.rng())
        if parts is not None:
            allowed[0] = allowed[0] + SAFETY * parts
    return wanted, allowed


def _must_refuse(trial: Trial, fed: dict[str, Any], case: Case) -> None:
    assert case.error is not None
    try:
        results = trial.program.run(fed)
    except case.error:
        return
    except MgxError as error:
        raise AssertionError(f"{case.error.__name__} required, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{case.error.__name__} required, got {[str(r.shape) for r in results]}")


def placements(program: Program) -> dict[str, str]:
    """Returns the placement of each op of a compiled program: ``target``, or the reason for the host."""
    executable = program.executable
    assert executable is not None
    found: dict[str, str] = {}
    for instance in executable.instances():
        for p in instance.placements:
            name = p.op.partition("[")[0]
            if p.place == "host":
                found[name] = "; ".join(p.refused) or "on the host"
            else:
                found.setdefault(name, "target")
    return found
