"""Fusion rules by the names used in guides for MIGraphX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mgx_core import ParameterError

__all__ = ["with_core_rules"]

# one rule in mgx, which fuses everything after a convolution
CONVOLUTION: Final = ("conv_bias_relu", "conv_bias", "conv_relu")


def with_core_rules(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the options with the core's rule names.

    Errors: ParameterError if the three convolution rules are not all on or all off.
    """
    rules = None if options is None else options.get("fusion_rules")
    if options is None or not isinstance(rules, Mapping):
        return options
    said = {rules[n] for n in CONVOLUTION if n in rules}
    if len(said) > 1:
        raise ParameterError(
            f"fusion_rules: {', '.join(CONVOLUTION)} are one rule in mgx and must be set equally, got {dict(rules)}"
        )
    kept = {n: on for n, on in rules.items() if n not in CONVOLUTION}
    return {**options, "fusion_rules": kept | ({"convolution": said.pop()} if said else {})}
