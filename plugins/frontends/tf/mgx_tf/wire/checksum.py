"""Masked CRC-32C checksums, as TensorFlow stores them."""

from __future__ import annotations

from functools import cache

__all__ = ["masked_checksum"]


@cache
def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


def masked_checksum(data: bytes) -> int:
    """Returns the masked CRC-32C: rotated and offset, since a CRC of data that contains its own CRC is weak."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
