"""Element types by MIGraphX's names and numbers."""

from __future__ import annotations

import enum
from typing import Any, Final

from mgx_core import DType, ParameterError
from mgx_core import dtype as dt

__all__ = ["core_dtype", "type_t"]

# names of <stdint.h>
C_NAMES: Final = {f"{t.name}_t": t for t in dt.ALL if t.is_integer and t.bits >= 8}


class type_t(enum.Enum):
    """Element types, numbered as in MIGraphX; ``int(type_t.float_type)`` is 2."""

    bool_type = 0
    half_type = 1
    float_type = 2
    double_type = 3
    uint8_type = 4
    int8_type = 5
    uint16_type = 6
    int16_type = 7
    int32_type = 8
    int64_type = 9
    uint32_type = 10
    uint64_type = 11
    fp8e4m3fnuz_type = 12
    fp8e4m3fn_type = 13
    fp8e5m2_type = 14
    bf16_type = 15
    fp8e5m2fnuz_type = 16

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


def core_dtype(given: Any) -> DType:
    """Returns the core's element type for a name, a member of `type_t`, its number, or anything that the core accepts."""
    if isinstance(given, type_t):
        given = given.name
    elif isinstance(given, int) and not isinstance(given, bool):
        try:
            given = type_t(given).name
        except ValueError:
            raise ParameterError(f"an element type must be a number from 0 to {len(type_t) - 1}, got {given}") from None
    return C_NAMES.get(given) or dt.of(given) if isinstance(given, str) else dt.of(given)
