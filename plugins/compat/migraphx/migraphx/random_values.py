"""MIGraphX's random generator: a xorshift generator with three 64-bit words of state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mgx_core import DType, ParameterError

__all__ = ["random_values"]

Words = npt.NDArray[np.uint64]
START: Final = (123456789, 362436069, 521288629)
BLOCK: Final = 1 << 16  # maximum words computed per step of the recurrence


def random_values(count: int, seed: int, dtype: DType) -> npt.NDArray[Any]:
    """Returns generated values.  Errors: ParameterError for a type without values."""
    words = _words(count, seed)
    if dtype.kind == "b":
        return np.asarray(words % np.uint64(2) == 1)
    if dtype.is_float:
        return ((words % np.uint64(32)).astype(np.float64) / 16 - 1).astype(dtype.numpy)
    if not dtype.is_integer or dtype.bits < 8:
        raise ParameterError(f"generate_argument does not support type {dtype}")
    most = 1 << (dtype.size * 5)
    found = (words % np.uint64(most)).astype(np.int64)
    return (most // 2 - found if dtype.kind == "i" else found).astype(dtype.numpy)


def _words(count: int, seed: int) -> Words:
    """Returns the generator's words in order.

    Each depends on the three before: ``w[n + 3] = f(w[n]) ^ w[n + 1] ^ w[n + 2]``.  Since f is linear over bits, squaring the
    recurrence doubles its distances, ``w[n + 6] = f(f(w[n])) ^ w[n + 2] ^ w[n + 4]``, and so on: many words per step.
    """
    state = [*START[:2], START[2] ^ (seed & (1 << 64) - 1)]
    out = np.empty(max(count, 3) + 3, np.uint64)
    out[:3] = state
    done, step, table = 3, 1, _table(_shifted)
    while done < len(out):
        while step * 6 <= done and step < BLOCK:
            step, table = step * 2, _table(lambda w, t=table: _applied(t, _applied(t, w)))
        more = min(step, len(out) - done)
        first = done - 3 * step
        out[done : done + more] = (
            _applied(table, out[first : first + more])
            ^ out[first + step : first + step + more]
            ^ out[first + 2 * step : first + 2 * step + more]
        )
        done += more
    return out[3 : 3 + count]


def _shifted(words: Words) -> Words:
    words = words ^ (words << np.uint64(16))
    words = words ^ (words >> np.uint64(5))
    return words ^ (words << np.uint64(1))


def _table(function: Any) -> Words:
    """Returns lookup tables of a linear function, one for each byte position."""
    places = np.arange(8, dtype=np.uint64)[:, None] * np.uint64(8)
    return np.asarray(function(np.arange(256, dtype=np.uint64)[None] << places))


def _applied(table: Words, words: Words) -> Words:
    out = np.zeros_like(words)
    for place in range(8):
        out ^= table[place][(words >> np.uint64(8 * place)) & np.uint64(255)]
    return out
