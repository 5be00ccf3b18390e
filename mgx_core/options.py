"""Compile options: one record, printed in every report."""

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

    offload_copy: parameters and results are in host memory and are copied to and from the device; fast_math: allows
    approximations within a few ulp, excess precision of narrow floats where it is faster (within a group of fused operations it
    is always allowed: only results of groups are rounded), and convolution algorithms that may spread an infinity or NaN to
    results that do not depend on it; exhaustive_tune: times every plan on the device; target:
    architecture to cross-compile for (``gfx1100``); use_fp16: computes floats in 16 bits, like `quantize_fp16`; use_nhwc:
    requires channels-last convolutions; rejected by targets that do not have them (`Target.channels_last`); memory_reuse: lets
    values with disjoint lifetimes share memory; aggressive_memory: also reorders instructions to reduce peak memory; optimize:
    runs the optimization passes; aggressiveness: 0 no rewriting, 1 rewrites that preserve results (with fast_math: up to
    rounding), 2 also rewrites that change rounding (with fast_math: also results on overflow); fusion_rules: enables or disables
    rules and fusions by name (``{"convolution": False}``), as listed by ``mgx-driver rules``; disable_passes: names of passes to
    skip; validate: checks every stage's invariant after each pass; threads: number of threads, 0 for ``$MGX_THREADS`` or else
    all available ones; instances: maximum number of shape instances that an executable caches, 0 for 64, or up to 256 for small
    programs in host memory; float32_precision: of float32 products and convolutions: ``highest`` (float32), ``high`` (operands
    may be rounded to 10 mantissa bits) or ``medium`` (7 bits), if the target has faster units for these; limit_bytes: maximum
    bytes of one value (0: half of the machine's memory).
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
        """Creates options from a record, a mapping or keywords.  Errors: ParameterError for an unknown option or a wrong type."""
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
    """Returns the requirement that a value violates; empty if it is valid."""
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
