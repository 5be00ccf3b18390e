"""Enables Dynamo's `allow_rnn` while it traces for mgx without gradients."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import innermost_backend

__all__ = ["around_tracing", "inferring"]


class WholeRecurrentLayers:
    """Context manager in which Dynamo traces LSTM, GRU and RNN layers without graph breaks."""

    def __enter__(self) -> None:
        self.token = _recurrent_setting().set(True)

    def __exit__(self, *_: object) -> None:
        _recurrent_setting().reset(self.token)


def inferring() -> AbstractContextManager[None]:
    """Returns what is entered around tracing: recurrent layers are taken without gradients.

    With them a layer would be one part per step of the sequence: for 60 steps that compiles for 15 seconds.
    """
    return nullcontext() if torch.is_grad_enabled() else WholeRecurrentLayers()


def around_tracing(backend: Any) -> None:
    """Lets Dynamo take recurrent layers while it traces for a backend without gradients.

    A backend's own context, `backend_ctx_ctor`, is not looked for where the backend is named to `torch.compile` (torch 2.13), and
    it costs each call 6 to 14 us; what Dynamo calls to trace costs nothing once a graph is compiled.
    """
    traces = convert_frame.ConvertFrameAssert
    trace = traces.__call__

    @functools.wraps(trace)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = innermost_backend(self)
        if getattr(given, "compiler_fn", given) is not backend:
            return trace(self, *args, **kwargs)
        with inferring():
            return trace(self, *args, **kwargs)

    traces.__call__ = traced


@functools.cache
def _recurrent_setting() -> Any:
    """Returns the per-thread holder of the user's `torch._dynamo.config.allow_rnn`, with `set` and `reset`."""
    held = torch._dynamo.config._config["allow_rnn"].user_override
    return held if isinstance(held, ContextVar) else Setting()


class Setting:
    """`torch._dynamo.config.allow_rnn` where torch keeps it in no variable of its own (2.11)."""

    def set(self, value: bool) -> bool:
        before: bool = torch._dynamo.config.allow_rnn
        torch._dynamo.config.allow_rnn = value
        return before

    def reset(self, before: bool) -> None:
        torch._dynamo.config.allow_rnn = before
