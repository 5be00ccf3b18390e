"""The backends `migraphx`, `migraphx_pretraced` and `migraphx_aot`, which are identical here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mgx_core import UnsupportedError
from mgx_torch.backend import mgx
from mgx_torch.recurrent_setting import around_tracing

__all__ = ["migraphx"]

log = logging.getLogger("torch_migraphx")
# options without effect here
INERT = ("use_aot", "deallocate")
FILES = ("save_mxr", "save_compiled", "load_compiled")


def migraphx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a Dynamo graph like the backend `mgx`, with torch_migraphx's options.

    Errors: UnsupportedError for options that save or load compiled graphs; ParameterError for unknown ones.
    """
    given = dict(options or {})
    for name in FILES:
        if given.pop(name, None):
            raise UnsupportedError(
                f"option {name!r} is not supported; to save a program, use mgx_torch.lower_to_mgx(...).save(path)"
            )
    for name in INERT:
        given.pop(name, None)
    if given.pop("verbose", False):
        log.info("%s", gm.graph)
    return mgx(gm, example_inputs, options=given, mode=mode)


around_tracing(migraphx)
