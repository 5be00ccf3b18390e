"""Converters: functions that build instructions for one ONNX operator, found by domain, name and opset version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mgx_core import PluginError

__all__ = ["Converter", "Converters", "STANDARD", "converts"]

Converter: TypeAlias = Callable[..., Any]  # (node, *inputs) -> an instruction, or a tuple of them for several outputs


class Converters:
    """Converters by (domain, operator); of those for one operator the newest not newer than the model's opset is taken.

    A value, joined with ``+``; packages give theirs through the hook `converters`.
    """

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], list[tuple[int, Converter]]] = {}

    def converts(self, *names: str, domain: str = "", since: int = 1) -> Callable[[Converter], Converter]:
        """Decorator: a function ``(node, *inputs)`` for operators `names` of `domain` from opset `since` on."""

        def keep(function: Converter) -> Converter:
            for name in names:
                entries = self._by_name.setdefault((domain, name), [])
                for version, other in entries:
                    if version == since:
                        raise PluginError(
                            f"two converters for {domain or 'ai.onnx'}::{name} since opset {since}: "
                            f"{other.__module__}.{other.__name__} and {function.__module__}.{function.__name__}"
                        )
                entries.append((since, function))
                entries.sort(key=lambda e: -e[0])
            return function

        return keep

    def find(self, domain: str, name: str, version: int) -> Converter | None:
        for since, function in self._by_name.get((domain, name), ()):
            if since <= version:
                return function
        return None

    def knows(self, domain: str, name: str) -> bool:
        return (domain, name) in self._by_name

    def names(self) -> list[tuple[str, str]]:
        return sorted(self._by_name)

    def __add__(self, other: Converters) -> Converters:
        out = Converters()
        for side in (self, other):
            for (domain, name), entries in side._by_name.items():
                for since, function in entries:
                    out.converts(name, domain=domain, since=since)(function)
        return out


STANDARD = Converters()
converts = STANDARD.converts
