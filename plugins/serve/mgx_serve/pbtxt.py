"""Reads Triton's `config.pbtxt` into model settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import text_format

from mgx_core import ParameterError

from .config_messages import ENUMERATIONS, NAMES
from .messages import messages
from .tensors import OPEN, Tensor

__all__ = ["settings_of"]

# unsupported fields that affect results
REFUSED: Final = frozenset(
    (
        "sequence_batching",
        "ensemble_scheduling",
        "batch_input",
        "batch_output",
        "cc_model_filenames",
        "model_operations",
        "model_repository_agents",
        "model_transaction_policy.decoupled",
        "instance_group.passive",
        "dynamic_batching.priority_queue_policy",
        "input.is_shape_tensor",
        "input.allow_ragged_batch",
        "input.optional",
        "input.is_non_linear_format_io",
        "output.is_shape_tensor",
        "output.is_non_linear_format_io",
    )
)


def settings_of(text: str, name: str) -> dict[str, Any]:
    """Returns the settings by name; fields without an equivalent are ignored if they do not affect results.

    name: of the model's folder.
    Errors: ParameterError for invalid text, and for unsupported fields that affect results.
    """
    try:
        given = text_format.Parse(text, messages()["ModelConfig"]())
    except text_format.ParseError as error:
        raise ParameterError(f"this is not a model configuration: line {error}") from None
    if given.name not in ("", name):
        raise ParameterError(f"name must be that of the model's folder, {name!r}, got {given.name!r}")
    _require_offered(given)
    found: dict[str, Any] = _versions(given.version_policy)
    if given.HasField("max_batch_size"):  # and 0: such a model is never batched
        found["max_batch"] = given.max_batch_size
    if given.HasField("dynamic_batching"):
        found |= _batching(given.dynamic_batching)
    if given.instance_group:
        found["instances"] = sum(g.count or 1 for g in given.instance_group)
    if given.default_model_filename:
        found["file"] = given.default_model_filename
    for what in ("input", "output"):
        declared = getattr(given, what)
        if declared:
            found[f"{what}s"] = tuple(_tensor(what, d, given.max_batch_size) for d in declared)
    return found | _parameters(given.parameters)


def _require_offered(given: Any, path: str = "", where: str = "") -> None:
    """Refuses fields in `REFUSED`; path: field path of the message, with a trailing dot.  Errors: ParameterError."""
    for field, value in given.ListFields():
        at = path + field.name
        if at in REFUSED:
            raise ParameterError(
                f"{where}{field.name} is not offered; a model that answers each request by itself, from inputs as the model has "
                f"them, is required"
            )
        if any(name.startswith(f"{at}.") for name in REFUSED):
            for item in value if isinstance(value, Sequence) else [value]:
                named = "name" in item.DESCRIPTOR.fields_by_name
                _require_offered(item, f"{at}.", f"{at} {item.name!r}: " if named else f"{at}: ")


def _versions(policy: Any) -> dict[str, Any]:
    if policy.HasField("specific"):
        return {"versions": list(policy.specific.versions), "served": 0}
    if policy.HasField("all"):
        return {"served": 0}
    return {"served": policy.latest.num_versions} if policy.latest.num_versions else {}


def _batching(given: Any) -> dict[str, Any]:
    policy = given.default_queue_policy
    late = ENUMERATIONS["TimeoutAction"][policy.timeout_action] == "DELAY"
    found = {
        "preferred": list(given.preferred_batch_size),
        "queue_delay": given.max_queue_delay_microseconds / 1e6,
        "priority": given.default_priority_level,
        "queue_size": policy.max_queue_size,  # 0: not set
        "timeout": 0 if late else policy.default_timeout_microseconds / 1e6,  # late requests are still executed
    }
    return {name: value for name, value in found.items() if value}


def _tensor(what: str, given: Any, most: int) -> Tensor:
    """Returns an input or output; the batch axis is implicit if requests are batched."""
    kind = given.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[given.data_type].name
    if kind not in NAMES:
        raise ParameterError(f"{what} {given.name!r}: a data_type out of {', '.join(NAMES)} is required")
    rows = (OPEN,) if most else ()
    inner = rows + tuple(given.reshape.shape) if given.HasField("reshape") else None
    return Tensor(given.name, NAMES[kind], rows + tuple(given.dims), inner)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings given as parameters ``mgx.NAME``, for which Triton has no fields."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("mgx."):
            try:
                stated = json.loads(value.string_value)
            except ValueError:
                stated = value.string_value
            found[name.removeprefix("mgx.")] = stated
    return found
