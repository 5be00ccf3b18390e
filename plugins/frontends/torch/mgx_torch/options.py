"""Options of ``torch.compile(model, backend="mgx", options={...})``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgx_core import CompileOptions, ParameterError, get_target
from mgx_core.errors import suggestion
from mgx_core.plugins.manager import manager

__all__ = ["TorchOptions"]

MODES = {
    "default": {},
    "max-autotune": {"exhaustive_tune": True},
    "reduce-overhead": {},
    "max-autotune-no-cudagraphs": {"exhaustive_tune": True},
}


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """The options of the backend.

    target: a target's name (default: that of the inputs' device); fp16, bf16: compute in that type; exhaustive_tune: time every
    kernel on the device; freeze: keep packed copies of all weights, refreshed only after writes that torch's version counters
    record (not those through `.data` or by other processes); threads: of the target `cpu`; cache: read and write the user's
    on-disk cache of compiled programs; strict: raise an error instead of falling back to eager.
    """

    target: str = ""
    fp16: bool = False
    bf16: bool = False
    exhaustive_tune: bool = False
    freeze: bool = False
    threads: int = 0
    cache: bool = False
    strict: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None = None) -> TorchOptions:
        """Creates options from the user's.

        Errors: ParameterError for an unknown option or mode, a value of another type, or both fp16 and bf16; UnsupportedError
        for a target that is not installed.
        """
        if mode is not None and mode not in MODES:
            raise ParameterError(f"there is no mode {mode!r}; known are {', '.join(MODES)}")
        given = {**MODES.get(mode or "default", {}), **(options or {})}
        known = {f.name: type(f.default) for f in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise ParameterError(f"the backend mgx has no option {name!r}; {suggestion(str(name), known)}")
            if type(value) is not known[name]:
                wanted = {bool: "a bool", int: "an int", str: "a str"}[known[name]]
                raise ParameterError(f"option {name!r} must be {wanted}, got {value!r}")
        found = cls(**given)
        if found.fp16 and found.bf16:
            raise ParameterError("fp16 and bf16 exclude each other")
        if found.target and found.target not in manager().names("targets"):
            get_target(found.target)  # raises if it is not installed; whether its device exists is checked later
        return found

    def compile_options(self, offload_copy: bool = True) -> CompileOptions:
        given: dict[str, Any] = {"exhaustive_tune": self.exhaustive_tune, "offload_copy": offload_copy}
        if self.threads:
            given["threads"] = self.threads
        return CompileOptions.of(given)
