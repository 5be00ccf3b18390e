"""Plans of products with packed weights."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from typing import Final

from mgx_core import dtype as dt
from mgx_core.records import dataclass
from mgx_core.types.dtype import DType

from ..native_library import native
from .engine import Engine
from .gemm_epilogue import Epilogue
from .space import Args

__all__ = [
    "DEPTH", "FAR", "FEW", "GROUP", "NEAR", "SHALLOW", "UNROLL", "VECTORS", "WEIGHTS", "WHOLE", "GemmPlan",
    "block_elements", "even_part", "key_of", "panel_width", "tall",
]  # fmt: skip

UNROLL: Final = 4  # rows of a panel in a trip of the innermost loop
VECTORS: Final = 2  # of a panel's row
FEW: Final = 3  # rows up to which the weights are read once and nothing is worth blocking
DEPTH: Final = 1024  # rows of a panel that are in use together: they stream from the second-level cache
WHOLE: Final = 2048  # rows of a panel that are worked through in one piece
NEAR: Final = 128 * 1024  # bytes of weights that stay in the second-level cache beside all else
BLOCK: Final = 72 * 1024  # elements of the left matrix that are in use together, at least
FAR: Final = 512 * 1024  # elements of a left matrix that no cache near the processor holds
SHALLOW: Final = 32  # rows of a panel up to which storing the results takes longer than the products
GROUP: Final = 4  # panels that an item works on with the same block
WEIGHTS = (dt.float32, dt.bfloat16)


def panel_width(engine: Engine) -> int:
    """Returns columns of a panel of weights."""
    return VECTORS * engine.lanes


@dataclass
class GemmPlan:
    """`key` holds everything that the code depends on; extents and steps are args.

    ragged: the last panel is not full; narrow: one vector of its row is enough; widened: bfloat16 panels are converted to scratch
    before use; whole: the depth is worked through in one piece; abreast: few rows are multiplied with several panels at a time;
    filled: the columns fill their vectors, and masks cost time.
    Of the args, near: the weights are so small that a tile's rows are finished from end to end; rows_first: the left matrix is
    large and read once; ahead: cache lines that a trip prefetches; lines: of a row of results, loaded ahead.
    """

    behind: Epilogue
    weights: DType
    ragged: bool
    narrow: bool
    widened: bool
    whole: bool
    abreast: bool = False
    filled: bool = False
    args: Args = field(default_factory=Args)
    key: str = ""


@cache
def block_elements() -> int:
    """Returns the elements of the left matrix that are in use together: in few blocks of rows, panels are read few times.

    They take less than a third of the second-level cache, in which panels stay beside them.
    """
    size: int = native().cache_sizes().get("l2", 0)
    return max(BLOCK, size // 14)


def even_part(extent: int, most: int, unit: int) -> int:
    """Returns the size of equal parts of an extent, none above `most`, in whole units."""
    shares = -(-extent // most)
    return -(-extent // (shares * unit)) * unit


def key_of(plan: GemmPlan, lanes: int) -> str:
    words = [
        f"gemm {plan.weights} ragged={plan.ragged} narrow={plan.narrow}",
        f"widened={plan.widened} whole={plan.whole} lanes={lanes}"
        + " abreast" * plan.abreast
        + " filled" * plan.filled,
    ]
    return "\n".join([*words, *plan.behind.words])


def tall(wide: bool) -> int:
    """Returns rows of the tallest tile: with two vectors of each and what is loaded for them, as many as registers hold."""
    return 12 if wide else 6
