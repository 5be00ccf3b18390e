"""Triton's `config.pbtxt`: what it states of a model that this server has a setting for.

Source: the field names of Triton's model configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from google.protobuf import text_format

from mgx_core import ParameterError

from .messages import made_of
from .tensors import DATATYPES, OPEN, Tensor

__all__ = ["settings_of"]

TABLE: Final = """
Left
Shape: 1 shape int64*
Declared: 1 name string, 2 data_type DataType, 3 dims int64*, 4 reshape Shape
Policy: 1 max_queue_size uint32, 2 default_timeout_microseconds uint64
Batching: 1 preferred_batch_size int64*, 2 max_queue_delay_microseconds uint64, 3 default_priority_level uint64,
 4 default_queue_policy Policy
Instances: 1 count int32
Specific: 1 versions int64*
Versions: 1 specific Specific
Text: 1 string_value string
Model: 1 max_batch_size int32, 2 input Declared*, 3 output Declared*, 4 dynamic_batching Batching, 5 instance_group Instances*,
 6 version_policy Versions, 7 default_model_filename string, 8 parameters <Text>, 9 sequence_batching Left,
 10 ensemble_scheduling Left
"""
# a list of messages may do without a colon; those in fields that are left aside are read only with one
LIST: Final = re.compile(
    r"(?P<kept>(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P=quote)|#[^\n]*)|(?P<field>[A-Za-z_]\w*\s*)\["
)
# by Triton's numbers from 1 on, which a text may have in place of names
NAMES: Final = {f"TYPE_{name}": name for name in DATATYPES if name not in ("BYTES", "BF16")} | {
    "TYPE_STRING": "BYTES",
    "TYPE_BF16": "BF16",
}
REFUSED: Final = ("sequence_batching", "ensemble_scheduling")


@cache
def _model() -> Any:
    return made_of(TABLE, {"DataType": ("TYPE_INVALID", *NAMES)})["Model"]


def settings_of(text: str) -> dict[str, Any]:
    """Returns the settings by name; fields that this server has nothing for are left aside.

    Errors: ParameterError for text that is no configuration, and for what a model would give other answers without.
    """
    try:
        colons = LIST.sub(lambda m: m["kept"] or f"{m['field']}: [", text)
        given = text_format.Parse(colons, _model()(), allow_unknown_field=True)
    except text_format.ParseError as error:
        raise ParameterError(f"this is no model configuration: line {error}") from None
    for name in REFUSED:
        if given.HasField(name):
            raise ParameterError(f"{name} is not offered; a model that is run request by request is required")
    found: dict[str, Any] = {}
    if given.max_batch_size:
        found["max_batch"] = given.max_batch_size
    if given.HasField("dynamic_batching"):
        found |= _batching(given.dynamic_batching)
    if given.instance_group:
        found["instances"] = sum(g.count or 1 for g in given.instance_group)
    if given.version_policy.HasField("specific"):
        found["versions"] = list(given.version_policy.specific.versions)
    if given.default_model_filename:
        found["file"] = given.default_model_filename
    for what in ("input", "output"):
        declared = getattr(given, what)
        if declared:
            found[f"{what}s"] = tuple(_tensor(what, d, given.max_batch_size) for d in declared)
    return found | _parameters(given.parameters)


def _batching(given: Any) -> dict[str, Any]:
    policy = given.default_queue_policy
    found = {
        "preferred": list(given.preferred_batch_size),
        "queue_delay": given.max_queue_delay_microseconds / 1e6,
        "priority": given.default_priority_level,
        "queue_size": policy.max_queue_size,  # 0: none is stated
        "timeout": policy.default_timeout_microseconds / 1e6,
    }
    return {name: value for name, value in found.items() if value}


def _tensor(what: str, given: Any, most: int) -> Tensor:
    """Returns an input or output; its batch axis is not written where rows may be joined."""
    if given.HasField("reshape"):
        raise ParameterError(f"{what} {given.name!r}: reshape is not offered; dims as the model has them are required")
    kind = given.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[given.data_type].name
    if kind not in NAMES:
        raise ParameterError(f"{what} {given.name!r}: a data_type out of {', '.join(NAMES)} is required")
    return Tensor(given.name, NAMES[kind], ((OPEN,) if most else ()) + tuple(given.dims))


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that are stated as parameters ``mgx.NAME``: those that Triton has no fields for."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("mgx."):
            try:
                stated = json.loads(value.string_value)
            except ValueError:
                stated = value.string_value
            found[name.removeprefix("mgx.")] = stated
    return found
