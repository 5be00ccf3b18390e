"""JPEG's inverse DCT, chroma upsampling and color conversion."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core.types.argument import Array

__all__ = ["to_rgb", "fast_inverse_dct", "upsample", "inverse_dct", "upsample_rows"]

_FACTORS: Final = np.array([1, 1.387039845, 1.306562965, 1.175875602, 1, 0.785694958, 0.541196100, 0.275899379])
FAST: Final = np.round(np.outer(_FACTORS, _FACTORS) * (1 << 14)).astype(np.int64)  # scale factors of coefficients


def inverse_dct(blocks: Array) -> Array:
    """Returns the inverse DCT of blocks [.., 8, 8], libjpeg's accurate integer method with 13-bit constants."""

    def pass_(x: Array, shift: int, extra: int) -> Array:
        """Transforms the second to last axis."""
        a = [x[..., k, :] for k in range(8)]
        z1 = (a[2] + a[6]) * 4433
        t2, t3 = z1 + a[6] * -15137, z1 + a[2] * 6270
        t0, t1 = (a[0] + a[4]) << 13, (a[0] - a[4]) << 13
        even = [t0 + t3, t1 + t2, t1 - t2, t0 - t3]
        p0, p1, p2, p3 = a[7], a[5], a[3], a[1]
        q1, q2, q3, q4 = p0 + p3, p1 + p2, p0 + p2, p1 + p3
        q5 = (q3 + q4) * 9633
        p0, p1, p2, p3 = p0 * 2446, p1 * 16819, p2 * 25172, p3 * 12299
        q1, q2, q3, q4 = q1 * -7373, q2 * -20995, q3 * -16069 + q5, q4 * -3196 + q5
        odd = [p3 + q1 + q4, p2 + q2 + q3, p1 + q2 + q4, p0 + q1 + q3]
        rows = [even[k] + odd[k] for k in range(4)] + [even[k] - odd[k] for k in (3, 2, 1, 0)]
        return (np.stack(rows, -2) + (1 << (shift - 1)) + (extra << shift)) >> shift

    columns = pass_(blocks, 11, 0)
    made: Array = np.clip(np.swapaxes(pass_(np.swapaxes(columns, -1, -2), 18, 128), -1, -2), 0, 255)
    return made


def fast_inverse_dct(blocks: Array, table: Array) -> Array:
    """Returns the inverse DCT of quantized blocks [.., 8, 8], libjpeg's fast integer method with 8-bit constants."""
    scale = (table.reshape(8, 8) * FAST + (1 << 11)) >> 12

    def pass_(x: Array) -> Array:
        """Transforms the second to last axis."""
        a = [x[..., k, :] for k in range(8)]
        t10, t11 = a[0] + a[4], a[0] - a[4]
        t13 = a[2] + a[6]
        t12 = ((a[2] - a[6]) * 362 >> 8) - t13
        even = [t10 + t13, t11 + t12, t11 - t12, t10 - t13]
        z13, z10, z11, z12 = a[5] + a[3], a[5] - a[3], a[1] + a[7], a[1] - a[7]
        t7 = z11 + z13
        t11 = (z11 - z13) * 362 >> 8
        z5 = (z10 + z12) * 473 >> 8
        t10 = (z12 * 277 >> 8) - z5
        t12 = (z10 * -669 >> 8) + z5
        t6 = t12 - t7
        t5 = t11 - t6
        t4 = t10 + t5
        odd = [t7, t6, t5, -t4]
        return np.stack([even[k] + odd[k] for k in range(4)] + [even[k] - odd[k] for k in (3, 2, 1, 0)], -2)

    columns = pass_(blocks * scale)
    rows = np.swapaxes(pass_(np.swapaxes(columns, -1, -2)), -1, -2)
    made: Array = np.clip((rows >> 5) + 128, 0, 255)
    return made


def upsample_rows(x: Array, smooth: bool) -> Array:
    """Upsamples rows by 2: interpolates neighbors 3 : 1 if `smooth`, else repeats pixels."""
    if not smooth:
        return np.repeat(x, 2, 1)
    left = np.concatenate([x[:, :1], x[:, :-1]], 1)
    right = np.concatenate([x[:, 1:], x[:, -1:]], 1)
    out = np.empty((x.shape[0], 2 * x.shape[1]), x.dtype)
    out[:, ::2], out[:, 1::2] = (3 * x + left + 1) >> 2, (3 * x + right + 2) >> 2
    out[:, 0], out[:, -1] = x[:, 0], x[:, -1]
    return out


def upsample(x: Array, smooth: bool) -> Array:
    """Upsamples both axes by 2: interpolates four neighbors 9 : 3 : 3 : 1 if `smooth`, else repeats pixels."""
    if not smooth:
        return np.repeat(np.repeat(x, 2, 1), 2, 0)
    above, below = np.concatenate([x[:1], x[:-1]]), np.concatenate([x[1:], x[-1:]])
    rows = np.empty((2 * x.shape[0], x.shape[1]), x.dtype)
    rows[::2], rows[1::2] = 3 * x + above, 3 * x + below
    left = np.concatenate([rows[:, :1], rows[:, :-1]], 1)
    right = np.concatenate([rows[:, 1:], rows[:, -1:]], 1)
    out = np.empty((rows.shape[0], 2 * rows.shape[1]), x.dtype)
    out[:, ::2], out[:, 1::2] = (3 * rows + left + 8) >> 4, (3 * rows + right + 7) >> 4
    out[:, 0], out[:, -1] = (4 * rows[:, 0] + 8) >> 4, (4 * rows[:, -1] + 7) >> 4
    return out


def to_rgb(planes: list[Array], colors: bool, gray: bool) -> Array:
    """Returns pixels uint8 [height, width, 1 or 3] of YCbCr or RGB components."""
    half = 1 << 15
    if len(planes) == 1:
        return planes[0].astype(np.uint8)[..., None]
    y, b, r = planes
    if colors and gray:
        bright: Array = (19595 * y + 38470 * b + 7471 * r + half) >> 16
        return bright.astype(np.uint8)[..., None]
    if colors:
        return np.stack(planes, -1).astype(np.uint8)
    b, r = b - 128, r - 128
    red = y + ((91881 * r + half) >> 16)
    green = y + ((-22554 * b - 46802 * r + half) >> 16)
    blue = y + ((116130 * b + half) >> 16)
    made: Array = np.clip(np.stack([red, green, blue], -1), 0, 255).astype(np.uint8)
    return made
