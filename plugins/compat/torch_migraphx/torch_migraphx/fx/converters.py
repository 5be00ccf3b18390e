"""`migraphx_converter`: how converters are registered here."""

from __future__ import annotations

from typing import Any

from mgx_core import UnsupportedError

__all__ = ["migraphx_converter"]


def migraphx_converter(target: Any, enabled: bool = True, min_migraphx_ver: str | None = None) -> Any:
    """Decorator of torch_migraphx, whose converters call the builder of another library.

    Errors: UnsupportedError, with the hook that brings converters here.
    """
    raise UnsupportedError(
        f"the converter for {target} must be brought by a plugin with the hook converters(frontend) for the frontend 'pt2': "
        "a mgx_core.converting.converters.Converters of functions (node, *arguments)"
    )
