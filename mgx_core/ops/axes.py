"""Axis attributes: negative ones counted from the end, checked against the rank."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ShapeError

__all__ = ["normalize", "normalize_all"]


def normalize(axis: int, rank: int, what: str = "axis") -> int:
    """Returns `axis` in 0..rank-1.  Errors: ShapeError outside -rank..rank-1."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{what} must lie in [{-rank}, {rank - 1}] for rank {rank}, got {axis}")
    return axis + rank if axis < 0 else axis


def normalize_all(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Returns all `axes` in 0..rank-1, in their order.  Errors: ShapeError for one outside the rank or a duplicate."""
    out = tuple(normalize(a, rank, "axes") for a in axes)
    if len(set(out)) != len(out):
        raise ShapeError(f"axes must differ from each other, got {list(out)}")
    return out
