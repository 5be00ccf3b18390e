"""The op that chooses among modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..types.argument import Value, shape_of
from ..types.shape import AnyShape, TupleShape, matches
from .control import join
from .operation import Operation, Run, op

__all__ = ["SelectModule"]


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
