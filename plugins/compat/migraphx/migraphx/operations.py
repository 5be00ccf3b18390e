"""`migraphx.op`: operations by MIGraphX's names, enumeration values and defaults."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import mgx_core as mgx
from mgx_core import DType, Operation, ParameterError

from .element_types import core_dtype, type_t
from .implied_attributes import core_attributes
from .shapes import core_shape, shape

__all__ = ["DEFAULTS", "macro", "of_operation", "op", "pooling_mode", "rnn_direction"]


class pooling_mode(enum.Enum):
    """Pooling modes, numbered as in MIGraphX."""

    average = 0
    max = 1
    lpnorm = 2

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class rnn_direction(enum.Enum):
    """Directions of recurrent layers, numbered as in MIGraphX."""

    forward = 0
    reverse = 1
    bidirectional = 2

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


# attributes whose default is missing or different in the core
DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "bit_cast": {"target_type": "half"},
    "concat": {"axis": 0},
    "convert": {"target_type": "half"},
    "fixed_pad": {"output_lens": ()},
    "get_tuple_elem": {"index": 0},
    "gru": {"hidden_size": 1},
    "im2col": {"lengths": (1, 1), "padding": (0, 0), "stride": (1, 1), "dilation": (1, 1)},
    "layout": {"permutation": ()},
    "logsoftmax": {"axis": 1},
    "loop": {"max_iterations": 10},
    "lstm": {"hidden_size": 1},
    "pooling": {"mode": "average", "padding": (0, 0), "stride": (1, 1), "lengths": (1, 1), "dilations": (1, 1)},
    "reverse": {"axes": ()},
    "rnn": {"hidden_size": 1},
    "softmax": {"axis": 1},
    "step": {"axes": (), "steps": ()},
    "topk": {"axis": 0},
    "unknown": {"op": ""},
}


class op:
    """An operation by name with attributes by keyword; enumerations may be numbers.

    Errors: UnsupportedError for unknown names, ParameterError for invalid attributes.
    """

    pooling_mode: ClassVar = pooling_mode
    rnn_direction: ClassVar = rnn_direction

    __slots__ = ("core", "extra")

    core: Operation
    extra: dict[str, Any]  # attributes that the core lacks, applied when the inputs are known

    def __init__(self, name: str, **kwargs: Any) -> None:
        given = DEFAULTS.get(name, {}) | core_attributes(name, kwargs)
        self.core = mgx.op(name, **{k: _core(v, k, name) for k, v in given.items()})
        self.extra = {k: v for k, v in kwargs.items() if k not in given and v}

    def name(self) -> str:
        return self.core.name

    def values(self) -> dict[str, Any]:
        found = {k: _plain(v, k, self.name()) for k, v in self.core.values().items()}
        return found | _window(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, op) and (self.core, self.extra) == (other.core, other.extra)

    def __hash__(self) -> int:
        return hash(self.core)

    def __repr__(self) -> str:
        inside = ",".join(f"{k}={_text(v)}" for k, v in self.values().items())
        return f"{self.name()}[{inside}]" if inside else self.name()


WINDOW: Final = {"padding": 0, "stride": 1, "dilation": 1}


def _window(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Returns the window attributes of axes that a window omits; MIGraphX's operations have two axes by default."""
    left_out = {k: n for k, n in WINDOW.items() if values.get(k) == []}
    extra = [len(values[k]) for k in ("stride", "dilation") if values.get(k)]
    padded = len(values.get("padding") or ())
    axes = extra[0] if extra else {1: 1, 3: 3, 6: 3}.get(padded, 2)  # padding may have one or two values per axis
    return {k: [n] * axes for k, n in left_out.items()}


def of_operation(core: Operation) -> op:
    """Wraps a core operation."""
    made = op.__new__(op)
    made.core, made.extra = core, {}
    return made


class macro:
    """A macro by name, with options by keyword.

    Errors: UnsupportedError for unknown names, ParameterError for unknown options.
    """

    __slots__ = ("core",)

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.core = mgx.Macro(name, **{k: _core(v, k) for k, v in kwargs.items()})

    def name(self) -> str:
        return self.core.name()

    def options(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.core.options().items()}

    def __repr__(self) -> str:
        return repr(self.core)


# enumerations: values by attribute, and by (operation, attribute) where they differ
NUMBERED: Final[dict[str, tuple[str, ...]]] = {
    "mode": tuple(pooling_mode.__members__),
    "direction": tuple(rnn_direction.__members__),
    "padding_mode": ("default", "same_lower", "same_upper"),
}
NUMBERED_OF: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("pad", "mode"): ("constant", "reflect", "edge"),
    ("roialign", "mode"): ("avg", "max"),
    ("resize", "mode"): (),  # a string in MIGraphX, too
}


def _names(key: str, name: str) -> tuple[str, ...]:
    """Returns the enumeration of an attribute; empty for other attributes."""
    return NUMBERED_OF.get((name, key), NUMBERED.get(key, ()))


def _core(value: Any, key: str, name: str = "") -> Any:
    """Converts an attribute's value to the core's.

    Errors: ParameterError for an invalid enumeration value.
    """
    names = _names(key, name)
    if isinstance(value, (pooling_mode, rnn_direction)):
        value = value.value if names else value.name
    if isinstance(value, op):
        return value.core
    if isinstance(value, shape):
        return core_shape(value)
    if key == "shape" and isinstance(value, Mapping):
        return core_shape(_shape_of(value))
    number = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, type_t) or (key == "target_type" and number):
        return core_dtype(value)
    if key == "target_type" and isinstance(value, str):
        return core_dtype(value)
    if names and number:
        if not 0 <= value < len(names):
            raise ParameterError(
                f"{name}: {key} must be one of {', '.join(f'{n} ({t})' for n, t in enumerate(names))}, got {value}"
            )
        return names[value]
    if key == "actv_func":
        return tuple(v.name() if isinstance(v, op) else v for v in value)
    return tuple(value) if isinstance(value, list) else value


def _shape_of(fields: Mapping[str, Any]) -> shape:
    """Returns a shape from its fields in files and JSON attributes."""
    unknown = fields.keys() - {"type", "lens", "strides"}
    if unknown:
        raise ParameterError(f"a shape has the fields type, lens and strides, got {sorted(unknown)[0]!r}")
    return shape(fields.get("type", "float"), fields.get("lens", (1,)), fields.get("strides"))


def _plain(value: Any, key: str, op: str) -> Any:
    """Converts an attribute's value to that of MIGraphX's `values`: lists, and numbers for enumerations."""
    if isinstance(value, DType):
        name = value.alias + "_type"
        return int(type_t[name]) if name in type_t.__members__ else name
    if isinstance(value, str) and value in _names(key, op):
        return _names(key, op).index(value)
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"{{{', '.join(map(_text, value))}}}"
    return str(int(value)) if isinstance(value, bool) else str(value)
