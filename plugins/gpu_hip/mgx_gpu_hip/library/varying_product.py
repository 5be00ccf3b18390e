"""Matrix products whose extents and leading dimensions differ between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mgx_core.cache import Recent
from mgx_core.errors import MgxError, No

from .gemm import WORKSPACE, GemmPlan
from .gemm_problem import GemmProblem, Matrix
from .vendor import Libraries, LibraryPlan

__all__ = ["VaryingProduct", "problem_numbers"]

ROWS: Final = 16  # numbers of rows that share an algorithm
KEPT: Final = 64  # algorithms of a product


class VaryingProduct:
    """A product with a library plan for each set of its numbers.

    problem: with the numbers that choices were made for; numbers: as `problem_numbers` returns them, traced.
    """

    workspace = WORKSPACE

    def __init__(self, problem: GemmProblem, numbers: Sequence[int], libraries: Libraries) -> None:
        self.problem = problem
        self.numbers = list(numbers)
        self._libraries = libraries
        self._similar: Recent[LibraryPlan] = Recent(KEPT)

    @property
    def name(self) -> str:
        return f"varying gemm {self.problem}"

    def plan(self, numbers: Sequence[int]) -> LibraryPlan | No:
        """Returns the library's choice for these numbers, or for a similar number of rows; an error of the library is a refusal.

        On an H200, cublasLt 13 chose five algorithms for 32 to 128 rows of 768 elements; a search takes 150 to 180 us, the use of
        an earlier choice 80 to 100.
        """
        try:
            return self._plan(numbers)
        except MgxError as error:
            return No(error.message)

    def _plan(self, numbers: Sequence[int]) -> LibraryPlan | No:
        problem = self._with(numbers)
        rows = problem.folded
        if rows.batch > 1:
            return self._libraries.plan(problem)
        key = replace(rows, m=-(-rows.m // ROWS))
        similar = self._similar.get(key)
        if isinstance(similar, GemmPlan):
            adapted = similar.blas.adapted(similar, problem)
            if adapted is not None:
                return adapted
        found = self._libraries.plan(problem)
        return found if isinstance(found, No) else self._similar.put(key, found)

    def _with(self, numbers: Sequence[int]) -> GemmProblem:
        m, n, k, batch, *rest = numbers
        matrices: dict[str, Any] = {}
        for word, (ld, stride) in zip(
            ("a", "b", "d", "residual"), zip(rest[::2], rest[1::2], strict=True), strict=False
        ):
            matrices[word] = replace(getattr(self.problem, word), ld=ld, batch_stride=stride)
        return replace(self.problem, m=m, n=n, k=k, batch=batch, **matrices)


def problem_numbers(
    m: int, n: int, k: int, batch: int, a: Matrix, b: Matrix, d: Matrix, residual: Matrix | None
) -> list[int]:
    """Returns the numbers of a product that may differ between runs: its extents, and the strides of its matrices."""
    strides = [(x.ld, x.batch_stride) for x in (a, b, d, residual) if x is not None]
    return [m, n, k, batch, *(number for pair in strides for number in pair)]
