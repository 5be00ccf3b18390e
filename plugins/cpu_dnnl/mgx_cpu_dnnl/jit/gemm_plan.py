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
    "BLOCK_DEPTH", "CACHED_WEIGHTS", "GROUP", "LARGE_MATRIX", "MAX_UNBLOCKED", "MAX_WHOLE_DEPTH", "SHALLOW_DEPTH",
    "UNROLL", "VECTORS", "WEIGHTS", "GemmPlan", "block_elements", "equal_part", "key_of", "max_tile_rows",
    "panel_width",
]  # fmt: skip

UNROLL: Final = 4  # rows of a panel per iteration of the innermost loop
VECTORS: Final = 2  # vectors of a panel's row
MAX_UNBLOCKED: Final = 3  # maximum rows for which nothing is blocked, since the weights are read only once
BLOCK_DEPTH: Final = 1024  # rows of a panel per block of the depth: they stream from the L2 cache
MAX_WHOLE_DEPTH: Final = 2048  # maximum rows of a panel for which the depth is a single block
CACHED_WEIGHTS: Final = 128 * 1024  # bytes of weights that stay in the L2 cache next to everything else
MIN_BLOCK: Final = 72 * 1024  # minimum elements of the left matrix per block
LARGE_MATRIX: Final = 512 * 1024  # elements of a left matrix that exceeds the near caches
SHALLOW_DEPTH: Final = 32  # maximum rows of a panel for which storing results takes longer than the products
GROUP: Final = 4  # panels per item
WEIGHTS = (dt.float32, dt.bfloat16)


def panel_width(engine: Engine) -> int:
    """Returns the columns of a panel of weights."""
    return VECTORS * engine.lanes


@dataclass
class GemmPlan:
    """A plan; `key` determines the code, extents and strides are arguments.

    ragged: the last panel is partial; narrow: one vector of its row is enough; widened: bfloat16 panels are converted in scratch
    memory before use; whole: the depth is one block; abreast: few rows are multiplied by several panels at a time; filled: the
    columns are a multiple of the vector, so that no masks are needed; paired: the elements of rows and panels, "float32", are
    pairs of bfloat16.
    Arguments, near: small weights, the loop over panels is the inner one; rows_first: the left matrix is large and read once;
    ahead: cache lines prefetched per iteration; lines: cache lines of a row of results to prefetch.
    """

    epilogue: Epilogue
    weights: DType
    ragged: bool
    narrow: bool
    widened: bool
    whole: bool
    abreast: bool = False
    filled: bool = False
    paired: bool = False
    args: Args = field(default_factory=Args)
    key: str = ""


@cache
def block_elements() -> int:
    """Returns the elements of the left matrix per block: the larger, the fewer times panels are read.

    A block takes less than a third of the L2 cache, which panels share with it.
    """
    size: int = native().cache_sizes().get("l2", 0)
    return max(MIN_BLOCK, size // 14)


def equal_part(extent: int, most: int, unit: int) -> int:
    """Returns the size of equal parts of an extent: a multiple of the unit, at most `most`."""
    shares = -(-extent // most)
    return -(-extent // (shares * unit)) * unit


def key_of(plan: GemmPlan, lanes: int) -> str:
    key_parts = [
        f"gemm {plan.weights} ragged={plan.ragged} narrow={plan.narrow}",
        f"widened={plan.widened} whole={plan.whole} lanes={lanes}"
        + " abreast" * plan.abreast
        + " filled" * plan.filled
        + " paired" * plan.paired,
    ]
    return "\n".join([*key_parts, *plan.epilogue.key_parts])


def max_tile_rows(wide: bool) -> int:
    """Returns the maximum rows of a register tile: as many as registers hold, with two vectors per row and the loads."""
    return 12 if wide else 6
