"""`migraphx_converter`: a placeholder that explains how to register converters in mgx."""

from __future__ import annotations

from typing import Any

from mgx_core import UnsupportedError

__all__ = ["migraphx_converter"]


def migraphx_converter(target: Any, enabled: bool = True, min_migraphx_ver: str | None = None) -> Any:
    """Rejects torch_migraphx's converters, which call MIGraphX's builder.

    Errors: UnsupportedError, which names the hook for converters.
    """
    raise UnsupportedError(
        f"the converter for {target} must be brought by a plugin with the hook converters(frontend) for the frontend 'pt2': "
        "a mgx_core.converting.converters.Converters of functions (node, *arguments)"
    )
