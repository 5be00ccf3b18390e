"""Describes a loaded model as Triton's model configuration, for clients that query it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .config_messages import NAMES
from .model import Signature
from .settings import ModelSettings
from .tensors import Tensor

__all__ = ["configuration"]

TYPES: Final = {datatype: name for name, datatype in NAMES.items()}
# settings without a field in Triton's configuration
WITHOUT_FIELDS: Final = ("precision", "warm", "served", "buckets", "fill")
OF_THE_QUEUE: Final = ("queue_size", "timeout", "priority")  # or none if requests are not batched


def configuration(model: Signature, settings: ModelSettings, file: str) -> dict[str, Any]:
    """Returns the configuration as JSON; written to `config.pbtxt`, it would reproduce the model's settings.

    file: the model's file name in its version folder.
    """
    stated = {"target": model.target} | {name: getattr(settings, name) for name in WITHOUT_FIELDS}
    made: dict[str, Any] = {
        "name": model.name,
        "platform": f"mgx_{model.target}",
        "backend": "mgx",
        "runtime": "",
        "version_policy": _version_policy(settings),
        "max_batch_size": model.max_batch,
        "input": [_tensor(t, model.max_batch, _OF_INPUTS) for t in model.inputs],
        "output": [_tensor(t, model.max_batch, _OF_OUTPUTS) for t in model.outputs],
        "instance_group": [{"name": model.name, "kind": "KIND_MODEL", "count": settings.instances, "gpus": []}],
        "default_model_filename": file,
        "model_transaction_policy": {"decoupled": False},
    }
    if model.max_batch:
        made["dynamic_batching"] = _batching(settings)
    else:
        stated |= {name: getattr(settings, name) for name in OF_THE_QUEUE}
    made["parameters"] = {f"mgx.{name}": {"string_value": _text(value)} for name, value in stated.items()}
    return made


_OF_INPUTS: Final = {"format": "FORMAT_NONE", "is_shape_tensor": False, "allow_ragged_batch": False, "optional": False}
_OF_OUTPUTS: Final = {"label_filename": "", "is_shape_tensor": False}


def _tensor(tensor: Tensor, most: int, rest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tensor's entry, without the batch axis if requests are batched; most: maximum rows of a run, else 0."""
    dims: Sequence[int] = tensor.shape[1:] if most else tensor.shape
    made = {"name": tensor.name, "data_type": TYPES[tensor.datatype], "dims": list(dims), **rest}
    if tensor.inner is not None:
        made["reshape"] = {"shape": list(tensor.inner[1:] if most else tensor.inner)}
    return made


def _version_policy(settings: ModelSettings) -> dict[str, Any]:
    if settings.versions:
        return {"specific": {"versions": list(settings.versions)}}
    return {"latest": {"num_versions": settings.served}} if settings.served else {"all": {}}


def _batching(settings: ModelSettings) -> dict[str, Any]:
    return {
        "preferred_batch_size": list(settings.preferred),
        "max_queue_delay_microseconds": round(settings.queue_delay * 1e6),
        "preserve_ordering": False,
        "default_priority_level": settings.priority,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": round(settings.timeout * 1e6),
            "max_queue_size": settings.queue_size,
        },
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
