"""The gpu part of a program file: compiled kernels and the choices among library plans.

Steps are not stored: they are emitted again from the lowered module, which takes a fraction of a second and neither compiles nor
times anything.  Code is keyed by a digest of its source, so a file also serves a device of the same architecture with another
driver; kernels missing from the file are compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgx_core.errors import StoreError

from .compile.build import Code, Source, digest, flags_of
from .context import GpuContext

__all__ = ["Kept", "keep_code", "machine_text", "read_code"]

FORMAT = 3

Kept = Mapping[str, bytes]  # compiled images by `digest`


def machine_text(context: GpuContext) -> str:
    """Returns vendor and architecture, which compiled code depends on; library plans carry library versions themselves."""
    device = context.device
    return f"{device.properties.vendor} {device.arch}"


def keep_code(
    sources: Sequence[Source], codes: Sequence[Code], context: GpuContext, tuning: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a runner's part of a program file; tuning: the kernels selected by timing, by problem."""
    places: dict[bytes, int] = {}
    kernels = {
        digest(s.text, flags_of(s), context.device.arch): places.setdefault(code.image, len(places))
        for s, code in zip(sources, codes, strict=True)
    }
    tuner = context.tuner
    return {
        "format": FORMAT,
        "device": context.device.properties.name,
        "kernels": kernels,
        "images": list(places),
        "choices": {} if tuner is None else tuner.choices_made(),
        "tuning": dict(tuning),
    }


def read_code(code: Any, context: GpuContext) -> Kept:
    """Returns the kernels of a file; hands its plan choices to the context's tuner if they were made on the same device model.

    Errors: StoreError.
    """
    if not isinstance(code, Mapping) or code.get("format") != FORMAT:
        raise StoreError("kernels of another version of this target")
    images = code["images"]
    if context.tuner is not None and code["device"] == context.device.properties.name:
        context.tuner.learn(code["choices"])
    return {str(key): bytes(images[place]) for key, place in code["kernels"].items()}
