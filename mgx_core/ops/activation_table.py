"""The activation functions of recurrent cells by name, with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from ..errors import ParameterError
from ..named_tuples import NamedTuple
from ..types.argument import Array

__all__ = ["ACTIVATIONS", "Activation", "activation"]


class Activation(NamedTuple):
    """function(x, alpha, beta); alpha and beta: defaults, None if the function does not take it."""

    function: Callable[[Array, float, float], Array]
    alpha: float | None = None
    beta: float | None = None


def _sigmoid(x: Array, alpha: float, beta: float) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _elu(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(np.where(x >= 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0))))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(np.clip(x * x.dtype.type(alpha) + x.dtype.type(beta), 0, 1))


def _scaled_tanh(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(x.dtype.type(alpha) * np.tanh(x * x.dtype.type(beta)))


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "relu": Activation(lambda x, alpha, beta: np.maximum(x, 0)),
    "tanh": Activation(lambda x, alpha, beta: np.tanh(x)),
    "sigmoid": Activation(_sigmoid),
    "affine": Activation(lambda x, alpha, beta: x * x.dtype.type(alpha) + x.dtype.type(beta), 1.0, 0.0),
    "leaky_relu": Activation(lambda x, alpha, beta: np.where(x >= 0, x, x * x.dtype.type(alpha)), 0.01),
    "thresholded_relu": Activation(lambda x, alpha, beta: np.where(x >= alpha, x, x.dtype.type(0)), 1.0),
    "scaled_tanh": Activation(_scaled_tanh, 1.0, 1.0),
    "hard_sigmoid": Activation(_hard_sigmoid, 0.2, 0.5),
    "elu": Activation(_elu, 1.0),
    "softsign": Activation(lambda x, alpha, beta: x / (1 + np.abs(x))),
    "softplus": Activation(lambda x, alpha, beta: np.logaddexp(x, x.dtype.type(0))),
}


def activation(name: str, alpha: float | None = None, beta: float | None = None) -> Callable[[Array], Array]:
    """Returns a function by name with its parameters, or their defaults.  Errors: ParameterError for unknown names."""
    found = ACTIVATIONS.get(name)
    if found is None:
        raise ParameterError(f"no activation function is called {name!r}; known are {', '.join(ACTIVATIONS)}")
    a = alpha if alpha is not None else (found.alpha or 0.0)
    b = beta if beta is not None else (found.beta or 0.0)
    return lambda x: found.function(x, a, b)
