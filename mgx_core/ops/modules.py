"""Ops that choose or place modules, and groups of forms that other graph compilers' files use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..errors import ShapeError
from ..types.argument import Value, shape_of
from ..types.shape import AnyShape, Shape, TupleShape, matches
from .builtin import Undefined
from .control import join
from .operation import Operation, Run, op

__all__ = ["FusedConcat", "Outline", "RunOnTarget", "SelectModule", "SplitFusedReduce"]


@op("select_module")
class SelectModule(Operation):
    """The first of several modules whose parameters fit the values.

    xs: values in the order of the modules' parameters; modules: each takes len(xs) parameters -> tuple of what it returns.
    Errors: ShapeError if the modules return different numbers of values, or while running if none fits.
    """

    control: ClassVar[bool] = True

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


class _OneModule(Operation):
    """Base of ops whose result is what their one module returns: a value, or a tuple of several."""

    __slots__ = ()

    def infer(self, *xs: AnyShape, modules: Sequence[Any]) -> AnyShape:
        if len(modules) != 1 or len(modules[0].parameters) != len(xs):
            raise ShapeError(f"needs one module that takes {len(xs)} values")
        shapes = modules[0].output_shapes()
        return shapes[0] if len(shapes) == 1 else TupleShape(shapes)

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> Value:
        results = run(modules[0], xs)
        return results[0] if len(results) == 1 else tuple(results)


@op("run_on_target")
class RunOnTarget(_OneModule):
    """A module meant for the target at position `target_id` of a list that the program was compiled for.

    xs: the module's inputs -> what it returns.
    """

    control: ClassVar[bool] = True

    target_id: int = 0


@op("split_fused_reduce")
class SplitFusedReduce(_OneModule):
    """A group of reductions over `axes` that a target may run in parts and combine; `assign` says how (``none``, ``add``).

    xs: the group's inputs -> what the module returns.
    """

    axes: tuple[int, ...] = ()
    assign: str = "none"


@op("fused_concat")
class FusedConcat(Operation):
    """Several pointwise modules whose results are joined along `axis`, and one more that runs on the joined value.

    xs: the inputs of all modules but the last, in order; modules: the parts', then the one applied to their concatenation
    (whose one parameter it is) -> what the last returns.
    Errors: ShapeError if the modules' parameters do not use up the inputs.
    """

    axis: int = 0

    def _shares(self, count: int, modules: Sequence[Any]) -> list[tuple[Any, int]]:
        shares = [(m, len(m.parameters)) for m in modules[:-1]]
        if not modules or sum(n for _, n in shares) != count:
            raise ShapeError(f"the modules take {sum(n for _, n in shares)} values, got {count}")
        return shares

    def infer(self, *xs: Shape, modules: Sequence[Any]) -> AnyShape:
        self._shares(len(xs), modules)
        shapes = modules[-1].output_shapes()
        return shapes[0] if len(shapes) == 1 else TupleShape(shapes)

    def compute(self, *xs: Value, modules: Sequence[Any], run: Run) -> Value:
        import numpy as np

        parts, at = [], 0
        for module, count in self._shares(len(xs), modules):
            parts += run(module, xs[at : at + count])
            at += count
        results = run(modules[-1], [np.concatenate(parts, self.axis)])
        return results[0] if len(results) == 1 else tuple(results)


@op("outline")
class Outline(Operation):
    """A stand-in for a value of a shape, with no value of its own; programs that hold one cannot run.

    -> `shape`.
    """

    shape: AnyShape

    def infer(self) -> AnyShape:
        return self.shape

    def compute(self) -> Value:
        return Undefined().compute()
