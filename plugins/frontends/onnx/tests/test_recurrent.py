"""RNN, GRU and LSTM with all their operands and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(19)
S, B, I, H = 5, 3, 4, 6
LENS = np.array([5, 2, 3], np.int32)
KINDS = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}


def rand(*dims: int) -> Any:
    return (RNG.normal(size=dims) * 0.7).astype(np.float32)


def operands_of(kind: str, directions: int, lens: Any = None) -> list[Any]:
    gates, _ = KINDS[kind]
    d = directions
    out = [rand(S, B, I), rand(d, gates * H, I), rand(d, gates * H, H), rand(d, 2 * gates * H), lens, rand(d, B, H)]
    return out + ([rand(d, B, H), rand(d, 3 * H)] if kind == "LSTM" else [])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opset", [7, 14])
def test_directions_lengths_and_states(agree: Any, kind: str, direction: str, opset: int) -> None:
    operands = operands_of(kind, 2 if direction == "bidirectional" else 1, LENS)
    agree(kind, *operands, opset=opset, outputs=3 if kind == "LSTM" else 2, hidden_size=H, direction=direction)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_with_parameters(agree: Any, kind: str) -> None:
    _, functions = KINDS[kind]
    names = ["LeakyRelu", "Elu", "HardSigmoid"][:functions]
    given: dict[str, Any] = {"activations": names * 2, "activation_alpha": [0.3, 0.7, 0.1][:functions] * 2}
    if functions == 3:
        given["activation_beta"] = [0.4, 0.4]
    operands = [x if i else x * np.float32(0.1) for i, x in enumerate(operands_of(kind, 2))]
    agree(kind, *operands, opset=14, hidden_size=H, direction="bidirectional", rtol=1e-3, **given)


@pytest.mark.parametrize("extra", [{"clip": 0.2}, {"input_forget": 1}, {"clip": 0.5, "input_forget": 1}])
def test_lstm_attributes(agree: Any, extra: Any) -> None:
    agree("LSTM", *operands_of("LSTM", 1), opset=14, outputs=3, hidden_size=H, **extra)


@pytest.mark.parametrize("extra", [{"clip": 0.2}, {"linear_before_reset": 1}])
def test_gru_attributes(agree: Any, extra: Any) -> None:
    agree("GRU", *operands_of("GRU", 1, LENS), opset=14, outputs=2, hidden_size=H, **extra)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_major_layout(run: Any, kind: str) -> None:
    outputs = 3 if kind == "LSTM" else 2
    operands = operands_of(kind, 2, LENS)
    plain = run(kind, *operands, opset=14, outputs=outputs, hidden_size=H, direction="bidirectional")
    turned = list(operands)
    for i in (0, 5, 6):
        if i < len(turned):
            turned[i] = np.swapaxes(turned[i], 0, 1).copy()
    found = run(kind, *turned, opset=14, outputs=outputs, hidden_size=H, direction="bidirectional", layout=1)
    np.testing.assert_array_equal(found[0].transpose(1, 2, 0, 3), plain[0])
    for last, wanted in zip(found[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(last.swapaxes(0, 1), wanted)


def test_errors_of_invalid_input(run: Any) -> None:
    operands = operands_of("RNN", 1)
    with pytest.raises(MgxError, match="unknown activation function 'Swish'"):
        run("RNN", *operands, opset=14, hidden_size=H, activations=["Swish"])
    with pytest.raises(MgxError, match="direction must be"):
        run("RNN", *operands, opset=14, hidden_size=H, direction="sideways")
    with pytest.raises(MgxError, match="w must have dims"):
        run("RNN", operands[0], rand(1, H, I + 1), *operands[2:], opset=14, hidden_size=H)
