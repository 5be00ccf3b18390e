"""Traits: properties of ops that passes, kernels and tests query, declared on the op's class.

A trait is a fact about the op's shape inference and compute; ops of any package are optimized by declaring it.
`conformance/tests/test_traits.py` checks the traits of the standard set against the reference implementations.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

__all__ = ["TRAITS", "Traits"]


class Traits:
    """The traits of an op; the defaults are conservative.

    `exact`, `moves` and `linear` may depend on attributes: query an op, not its class.
    """

    __slots__ = ()

    random: ClassVar[bool] = False
    """Two evaluations may differ: never folded, never merged."""

    effect: ClassVar[bool] = False
    """Kept even if its result is unused."""

    control: ClassVar[bool] = False
    """Control flow: which of its modules run, and how often, is decided at run time."""

    selects: ClassVar[bool] = False
    """Runs one of its modules, which take no parameters, as its first operand decides; extents within the others need not fit."""

    fused: ClassVar[bool] = False
    """A group created by fusion: runs its one module once on its operands."""

    reshapes: ClassVar[bool] = False
    """Reshapes: returns all elements of its first operand, in row-major order, with other extents."""

    aligns: ClassVar[bool] = False
    """Inserts or removes axes of extent 1 of its first operand, or broadcasts it along such axes."""

    picks: ClassVar[bool] = False
    """Gives elements of its first operand at positions that its second operand states."""

    slow: ClassVar[bool] = False
    """Takes far longer to compute than its result takes to read, so that larger results of constants are folded."""

    replaces: ClassVar[bool] = False
    """Returns its first operand with slices replaced by those of its third, at the positions of leading axes that the rows of its
    second state."""

    replaces_along_axis: ClassVar[bool] = False
    """Returns its first operand with elements replaced by those of its third, at positions along its attribute `axis` that its
    second states."""

    widens: ClassVar[bool] = False
    """Converts its first operand to a wider type: constants are kept in the narrow type until no rule can use it."""

    product: ClassVar[Literal["", "matrix", "window"]] = ""
    """Sums products of its first two operands, over one axis (matrix) or over windows (window): kernels of such ops may
    fuse pointwise users as an epilogue, as controlled by `epilogue-dot` and `epilogue-convolution`."""

    combine: ClassVar[str] = ""
    """The scalar primitive of a reduction, which combines the elements along `reduced_axes` (a mean then divides)."""

    @property
    def exact(self) -> bool:
        """Does not round: a result is an element of an operand or an attribute, an integer or a bool."""
        return False

    @property
    def moves(self) -> bool:
        """Data movement: results are elements of the first operand, selected independently of their values: a pointwise op
        may be applied before or after it."""
        return False

    @property
    def linear(self) -> tuple[int, ...]:
        """Indices of the operands in which the result is multilinear: a sum of products with one factor of each."""
        return ()

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        """The axes of a first operand of `rank` along which its elements are combined; results along the others are independent.

        Ascending and non-negative; empty for ops that do not state any.
        """
        return ()


TRAITS: Final = frozenset(word for word in vars(Traits) if word[0] != "_")
