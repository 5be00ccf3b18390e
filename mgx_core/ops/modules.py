"""Ops that select a module by shape, or the target that runs a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError, counted
from ..types.argument import Value, shape_of
from ..types.dim import Dim, Sym
from ..types.shape import AnyShape, Shape, TupleShape, matches
from .declaration import op
from .operation import Operation, Run
from .type_join import join

__all__ = ["RunOnTarget", "SelectModule", "selected"]


@op("select_module", exact=True, control=True)
class SelectModule(Operation):
    """Runs the first of several modules whose parameters fit the values.

    xs: values in the order of the modules' parameters; modules: each takes len(xs) parameters -> tuple of its results.
    A result's extent that equals the same parameter's extent in each module is that extent of the value.
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
        return TupleShape(_with_extents_of(results, xs, modules))

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        shapes = list(map(shape_of, xs))
        module = selected(modules, shapes)
        if module is None:
            raise ShapeError(f"none of {len(modules)} modules takes values of shapes {', '.join(map(str, shapes))}")
        return tuple(run(module, xs))


def selected(modules: Sequence[Any], shapes: Sequence[AnyShape]) -> Any:
    """Returns the first module whose parameters fit values of these static shapes, or None."""
    for module in modules:
        if all(map(matches, [p.result for p in module.parameters.values()], shapes)):
            return module
    return None


def _with_extents_of(results: Sequence[AnyShape], xs: Sequence[AnyShape], modules: Sequence[Any]) -> list[AnyShape]:
    """Returns the shapes of results, with the extents that every module takes from the same parameter replaced by the value's."""
    wanted = [_extents([p.result for p in m.parameters.values()]) for m in modules]
    extents = {tuple(w.get(at) for w in wanted): extent for at, extent in _extents(xs).items()}
    given = [_extents(m.output_shapes()) for m in modules]

    def known(n: int, shape: AnyShape) -> AnyShape:
        if not isinstance(shape, Shape) or not shape.ranked or not shape.dynamic():
            return shape
        open_at = {a: tuple(g[n, a] for g in given) for a, d in enumerate(shape.dims) if isinstance(d, Sym)}
        return shape.with_dims(extents.get(open_at[a], d) if a in open_at else d for a, d in enumerate(shape.dims))

    return [known(n, shape) for n, shape in enumerate(results)]


def _extents(shapes: Sequence[AnyShape]) -> dict[tuple[int, int], Dim]:
    """Maps (shape, axis) to the extent there."""
    ranked = [(n, s) for n, s in enumerate(shapes) if isinstance(s, Shape) and s.ranked]
    return {(n, axis): d for n, s in ranked for axis, d in enumerate(s.dims)}


@op("run_on_target", exact=True)
class RunOnTarget(Operation):
    """Runs a module on another target than the enclosing module's.

    xs: values of the module's parameters in order; target_id: the index of its target in the list that the program is
    compiled for -> tuple of the module's results.
    Errors: ShapeError unless there is exactly one module, with matching parameters.  Source: MIGraphX run_on_target.
    """

    target_id: int = 0

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> TupleShape:
        if len(modules) != 1:
            raise ShapeError(f"takes one module, got {len(modules)}")
        if len(modules[0].parameters) != len(xs):
            raise ShapeError(
                f"module {modules[0].name!r} takes {counted(len(modules[0].parameters), 'value')}, got {len(xs)}"
            )
        return TupleShape(modules[0].output_shapes())

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> tuple[Value, ...]:
        return tuple(run(modules[0], xs))
