"""Lookup in key-value tables, shared by several formats."""

from __future__ import annotations

import numpy as np

from ..types.argument import Array

__all__ = ["looked_up"]


def looked_up(x: Array, keys: Array, values: Array, default: Array) -> Array:
    """Returns the value [*e] of each key in x [..], `default` for missing keys: [.., *e].

    keys: [n], unique, with the type of x; values: [n, *e].
    """
    if keys.dtype == object:
        known = {k: n for n, k in enumerate(keys.tolist())}
        found = np.array([known.get(k, -1) for k in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
    else:
        order = np.argsort(keys, kind="stable")
        place = np.minimum(np.searchsorted(keys[order], x), max(len(keys) - 1, 0))
        hit = keys[order][place] == x if len(keys) else np.zeros(x.shape, bool)
        found = np.where(hit, order[place] if len(keys) else 0, -1)
    out = np.empty((*x.shape, *values.shape[1:]), values.dtype)
    out[...] = default
    out[found >= 0] = values[found[found >= 0]]
    return out
