"""Dynamo's setting that lets recurrent layers into its graphs, on while a compiled function runs without gradients."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch

__all__ = ["WholeRecurrentLayers", "around_calls", "inferring"]


class WholeRecurrentLayers:
    """While a compiled function runs, Dynamo takes LSTM, GRU and RNN layers into its graphs, where it would break them.

    It is entered at each call, and the module of settings takes 5 us for that: the variable behind the setting is set instead.
    """

    def __enter__(self) -> None:
        self.token = _recurrent_setting().set(True)

    def __exit__(self, *_: object) -> None:
        _recurrent_setting().reset(self.token)


def inferring() -> AbstractContextManager[None]:
    """Returns what is entered around a call: recurrent layers are taken without gradients.

    With them a layer would be one part per step of the sequence: for 60 steps that compiles for 15 seconds.
    """
    return nullcontext() if torch.is_grad_enabled() else WholeRecurrentLayers()


def around_calls() -> None:
    """Lets Dynamo find the attribute `backend_ctx_ctor` of backends that are named to `torch.compile`.

    It looks for it on torch's own wrapper around the backend, to which torch does not pass it on (2.13).
    """
    wrapper = torch._TorchCompileWrapper

    def set_attribute(self: Any, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "compiler_fn" and hasattr(value, "backend_ctx_ctor"):
            object.__setattr__(self, "backend_ctx_ctor", value.backend_ctx_ctor)

    wrapper.__setattr__ = set_attribute


@functools.cache
def _recurrent_setting() -> Any:
    """What holds a user's value of `torch._dynamo.config.allow_rnn` for this thread: a variable with `set` and `reset`."""
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
