"""Traits: properties of ops that passes, kernels and tests query, declared on the op's class.

A trait follows from the op's shape rule and compute, so that an op of any package takes part by stating it;
`conformance/tests/test_traits.py` checks what the standard set states against the definitions.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

__all__ = ["TRAITS", "Traits"]


class Traits:
    """The traits of an op; the defaults are conservative.

    `exact`, `moves` and `linear` may depend on attributes: ask an op, not its class.
    """

    __slots__ = ()

    random: ClassVar[bool] = False
    """Two evaluations may differ: never folded, never merged."""

    effect: ClassVar[bool] = False
    """Kept even if its result is unused."""

    control: ClassVar[bool] = False
    """Control flow: which of its modules run, and how often, is decided at run time."""

    fused: ClassVar[bool] = False
    """Computes what its one module computes, run once on its operands: what fusion makes."""

    reshapes: ClassVar[bool] = False
    """Gives all elements of its first operand, in row-major order, under other extents."""

    aligns: ClassVar[bool] = False
    """Adds or drops axes of extent 1 of its first operand, or repeats it along such axes: brings it in line with others."""

    picks: ClassVar[bool] = False
    """Gives elements of its first operand at positions that its second operand states."""

    widens: ClassVar[bool] = False
    """Gives its first operand in a wider type: constants stay in the narrow one until no rule can use them there."""

    product: ClassVar[Literal["", "matrix", "window"]] = ""
    """Sums products of its first two operands, over one axis (matrix) or over windows (window): kernels of such ops may
    finish with the work on elements that reads them, which `epilogue-dot` and `epilogue-convolution` switch."""

    combine: ClassVar[str] = ""
    """Of a reduction, the scalar primitive with which elements along `reduced_axes` are combined (a mean then divides)."""

    @property
    def exact(self) -> bool:
        """Rounds nothing: a result is an element of an operand or an attribute, an integer or a truth value."""
        return False

    @property
    def moves(self) -> bool:
        """Gives elements of its first operand in other places, and which ones does not depend on them: a function of elements
        may be applied before or after it."""
        return False

    @property
    def linear(self) -> tuple[int, ...]:
        """Positions of the operands of whose elements the result is a sum of products, each in the first power."""
        return ()

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        """The axes of a first operand of `rank` along which its elements are combined; along the others results are independent.

        In order and not negative; empty if the op states none.
        """
        return ()


TRAITS: Final = frozenset(word for word in vars(Traits) if word[0] != "_")
