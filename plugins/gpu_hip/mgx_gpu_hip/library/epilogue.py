"""Epilogues: pointwise work of a product or convolution on its sums before they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mgx_core.errors import ParameterError

__all__ = ["Activation", "Epilogue", "Step", "split"]

KINDS: Final = ("relu", "sigmoid", "tanh", "elu", "gelu_erf", "gelu_tanh", "swish", "softplus")


@dataclass(frozen=True, slots=True)
class Activation:
    """One activation.

    relu: clip to low..high (None: unbounded above), with `slope` below `low`; elu: `alpha`; swish: x sigmoid(alpha x); softplus:
    log(1 + exp(alpha x)) / alpha.  Errors: ParameterError for an unknown kind.
    """

    kind: str
    low: float = 0.0
    high: float | None = None
    slope: float = 0.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"an activation is one of {', '.join(KINDS)}, got {self.kind!r}")

    def __str__(self) -> str:
        given = [
            f"{name}={value:g}"
            for name, value, usual in (
                ("low", self.low, 0.0), ("high", self.high, None), ("slope", self.slope, 0.0), ("alpha", self.alpha, 1.0)
            )
            if value is not None and value != usual
        ]  # fmt: skip
        return self.kind + (f"({', '.join(given)})" if given else "")


Step: TypeAlias = 'Literal["bias", "residual"] | Activation'
Epilogue: TypeAlias = "tuple[Step, ...]"


def check(epilogue: Epilogue) -> None:
    """Errors: ParameterError unless bias and residual occur at most once each and all else is an activation."""
    for word in ("bias", "residual"):
        if epilogue.count(word) > 1:
            raise ParameterError(f"an epilogue has at most one {word}")
    for step in epilogue:
        if step not in ("bias", "residual") and not isinstance(step, Activation):
            raise ParameterError(f'a step of an epilogue is "bias", "residual" or an Activation, got {step!r}')


def split(epilogue: Epilogue) -> tuple[bool, bool, Activation | None] | None:
    """Returns (bias, residual, activation) if an epilogue adds first and activates once at the end, else None."""
    adds = [step for step in epilogue if isinstance(step, str)]
    rest = epilogue[len(adds) :]
    if any(isinstance(step, str) for step in rest) or len(rest) > 1:
        return None
    last = rest[0] if rest else None
    return "bias" in adds, "residual" in adds, last if isinstance(last, Activation) else None


def residual_first(epilogue: Epilogue) -> Epilogue:
    """Returns an equivalent epilogue with the residual before an adjacent bias, as cuDNN's prebuilt kernels require."""
    steps = list(epilogue)
    for i in range(len(steps) - 1):
        if steps[i] == "bias" and steps[i + 1] == "residual":
            steps[i : i + 2] = ["residual", "bias"]
    return tuple(steps)


def words(epilogue: Epilogue) -> str:
    """Returns the steps as a suffix for names of plans: `+bias+relu`."""
    return "".join(f"+{step}" for step in epilogue)
