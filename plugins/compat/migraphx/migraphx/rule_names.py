"""Fusion rules by the names that guides for MIGraphX give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mgx_core import ParameterError

__all__ = ["with_core_rules"]

CONVOLUTION: Final = ("conv_bias_relu", "conv_bias", "conv_relu")  # one rule here: what follows a convolution joins it


def with_core_rules(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the options with the core's names of rules.

    Errors: ParameterError if some of the three convolution rules are on and others off, which cannot be done.
    """
    rules = None if options is None else options.get("fusion_rules")
    if options is None or not isinstance(rules, Mapping):
        return options
    said = {rules[n] for n in CONVOLUTION if n in rules}
    if len(said) > 1:
        raise ParameterError(
            f"fusion_rules: {', '.join(CONVOLUTION)} are one rule in mgx and must be equal, got {dict(rules)}"
        )
    kept = {n: on for n, on in rules.items() if n not in CONVOLUTION}
    return {**options, "fusion_rules": kept | ({"convolution": said.pop()} if said else {})}
