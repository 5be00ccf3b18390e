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
    """Returns the context for tracing: without gradients, recurrent layers are not decomposed.

    With gradients a layer would be decomposed into every step of the sequence: 60 steps compile for 15 seconds.
    """
    return nullcontext() if torch.is_grad_enabled() else WholeRecurrentLayers()


def around_tracing(backend: Any) -> None:
    """Wraps Dynamo's tracing for a backend, so that it supports recurrent layers if gradients are disabled.

    A backend's own context, `backend_ctx_ctor`, is ignored if the backend is passed to `torch.compile` by name (torch 2.13), and
    it would cost 6 to 14 us per call; a wrapper of tracing costs nothing once a graph is compiled.
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
    """Returns the per-thread variable of the user's `torch._dynamo.config.allow_rnn`, with `set` and `reset`."""
    held = torch._dynamo.config._config["allow_rnn"].user_override
    return held if isinstance(held, ContextVar) else Setting()


class Setting:
    """Access to `torch._dynamo.config.allow_rnn` if torch does not store it in a context variable (2.11)."""

    def set(self, value: bool) -> bool:
        before: bool = torch._dynamo.config.allow_rnn
        torch._dynamo.config.allow_rnn = value
        return before

    def reset(self, before: bool) -> None:
        torch._dynamo.config.allow_rnn = before
