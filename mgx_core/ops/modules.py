"""Ops that choose among modules and place them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..types.argument import Value, shape_of
from ..types.shape import AnyShape, TupleShape, matches
from .covering import join
from .declaration import op
from .operation import Operation, Run

__all__ = ["RunOnTarget", "SelectModule"]


@op("select_module", exact=True, control=True)
class SelectModule(Operation):
    """The first of several modules whose parameters fit the values.

    xs: values in the order of the modules' parameters; modules: each takes len(xs) parameters -> tuple of what it returns.
    Errors: ShapeError if the modules return different numbers of values, or at run time if none fits.
    """

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> TupleShape:
        if not modules:
            raise ShapeError("needs at least one module to select from")
        results: list[AnyShape] = modules[0].output_shapes()
        for module in modules:
            if len(module.parameters) != len(xs) or len(module.output_shapes()) != len(results):
                raise ShapeError(f"module {module.name!r} does not take {len(xs)} and return {len(results)} values")
            results = list(map(join, results, module.output_shapes()))
        return TupleShape(results)

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        for module in modules:
            wanted = [p.result for p in module.parameters.values()]
            if all(map(matches, wanted, map(shape_of, xs))):
                return tuple(run(module, xs))
        raise ShapeError(
            f"none of {len(modules)} modules takes values of shapes {', '.join(str(shape_of(x)) for x in xs)}"
        )


@op("run_on_target", exact=True)
class RunOnTarget(Operation):
    """A module that runs on another target than the modules around it.

    xs: values of the module's parameters in order; target_id: the place of its target in the list that the program is
    compiled for -> tuple of what the module returns.
    Errors: ShapeError for more or less than one module, or one of other parameters.  Source: MIGraphX run_on_target.
    """

    target_id: int = 0

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> TupleShape:
        if len(modules) != 1:
            raise ShapeError(f"takes one module, got {len(modules)}")
        if len(modules[0].parameters) != len(xs):
            raise ShapeError(f"module {modules[0].name!r} takes {len(modules[0].parameters)} values, got {len(xs)}")
        return TupleShape(modules[0].output_shapes())

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        return tuple(run(modules[0], xs))
