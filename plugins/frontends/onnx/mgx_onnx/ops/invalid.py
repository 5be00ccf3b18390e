"""Branches that cannot run."""

from __future__ import annotations

from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Value
from mgx_core.types.shape import AnyShape, TupleShape

__all__ = ["InvalidBranch"]


@op("invalid_branch", random=True)  # it must not be evaluated at compile time, where it is perhaps not taken
class InvalidBranch(Operation):
    """The results of a branch whose shapes do not fit: raises the error that the branch was refused with.

    results: types of the results, those of the other branch.
    Errors: ShapeError at run time.
    """

    why: str
    results: tuple[AnyShape, ...]

    def infer(self) -> TupleShape:
        return TupleShape(self.results)

    def compute(self) -> tuple[Value, ...]:
        raise ShapeError(f"the branch that the condition selects cannot run: {self.why}")

    def __repr__(self) -> str:
        return "invalid_branch"
