"""Compile options: one record that every report prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from .errors import ParameterError
from .records import dataclass
from .settings import threads

__all__ = ["FLOAT32_PRECISIONS", "CompileOptions"]

FLOAT32_PRECISIONS: Final = ("highest", "high", "medium")
CHOICES: Final[dict[str, tuple[Any, ...]]] = {"aggressiveness": (0, 1, 2), "float32_precision": FLOAT32_PRECISIONS}


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """The options of `Program.compile`, given as keywords or as a mapping.

    offload_copy: parameters and results lie in host memory and are copied for the caller; fast_math: approximations that keep
    a result within a few units in the last place, narrow floats computed more exactly than their type says where that is
    faster, and convolutions of which an infinity or NaN may spread to results that do not depend on it; exhaustive_tune: time
    every plan on the device; target: another architecture to compile for (``gfx1100``); use_fp16: compute floats in 16 bits as
    `quantize_fp16` does; use_nhwc: require convolutions on channels-last images, refused by targets whose convolutions are not
    (`Target.channels_last`); memory_reuse: share the memory of values that are not alive together;
    aggressive_memory: also reorder instructions so that less is alive at one time; optimize: run the passes
    between parse and lower; aggressiveness: 0 no rewriting, 1 what keeps results equal (with fast_math also but for rounding),
    2 also what changes rounding (with fast_math also results outside a function's range); fusion_rules: rules and fusions on or
    off by name, as ``mgx-driver rules`` lists them (``{"convolution": False}``); disable_passes: passes to
    leave out by name; validate: check every stage's invariant after each pass;
    threads: 0 for what ``$MGX_THREADS`` says, else all that the process may use; instances: how many shape instances an
    executable keeps, 0 for 64, and for up to 256 of a program of few instructions in host memory; float32_precision: of
    products and convolutions of float32, ``highest`` (float32 throughout), ``high`` (operands may be rounded to 10 bits of
    mantissa) or ``medium`` (to 7 bits), where a target has faster units for that;
    limit_bytes: the most bytes that one value may take (0: half of what this machine has).
    """

    offload_copy: bool = True
    fast_math: bool = True
    exhaustive_tune: bool = False
    target: str | None = None
    use_fp16: bool = False
    use_nhwc: bool = False
    memory_reuse: bool = True
    aggressive_memory: bool = False
    optimize: bool = True
    aggressiveness: int = 1
    fusion_rules: Mapping[str, bool] = field(default_factory=dict)
    disable_passes: tuple[str, ...] = ()
    validate: bool = False
    threads: int = 0
    instances: int = 0
    limit_bytes: int = 0
    float32_precision: str = "highest"

    @classmethod
    def of(cls, given: CompileOptions | Mapping[str, Any] | None = None, /, **keywords: Any) -> CompileOptions:
        """From a record, a mapping or keywords.  Errors: ParameterError for an unknown option or a value of another type."""
        if isinstance(given, CompileOptions):
            merged = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)} | keywords
        elif given is None or isinstance(given, Mapping):
            merged = {**(given or {}), **keywords}
        else:
            raise ParameterError(f"compile options must be a CompileOptions, a mapping or keywords, got {given!r}")
        known = {f.name: f for f in dataclasses.fields(cls)}
        for name, value in merged.items():
            if name not in known:
                import difflib

                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise ParameterError(f"there is no compile option {name!r}; {hint}")
            wanted = _wanted(getattr(cls, name, None), name, value)
            if wanted:
                raise ParameterError(f"compile option {name!r} must be {wanted}, got {value!r}")
        values: dict[str, Any] = {k: _kept(getattr(cls, k, None), v) for k, v in merged.items()}
        if not values.get("threads"):
            values["threads"] = threads()
        return cls(**values)


def _wanted(default: Any, name: str, value: Any) -> str:
    """Returns what was required of a value; empty if the value is valid."""
    if name in CHOICES:
        fits = not isinstance(value, bool) and value in CHOICES[name]
        return "" if fits else f"one of {', '.join(map(str, CHOICES[name]))}"
    match default:
        case bool():
            return "" if isinstance(value, (bool, int)) and value in (0, 1) else "true or false"
        case int():
            good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            return "" if good else "an int, 0 or more"
        case tuple():
            good = isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(v, str) for v in value)
            return "" if good else "a list of names"
    if name == "fusion_rules":
        good = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, bool) for k, v in value.items())
        return "" if good else "a mapping from rule names to true or false"
    return "" if value is None or isinstance(value, str) else "a string"


def _kept(default: Any, value: Any) -> Any:
    if isinstance(default, bool):
        return bool(value)
    if isinstance(default, tuple):
        return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
    return value
