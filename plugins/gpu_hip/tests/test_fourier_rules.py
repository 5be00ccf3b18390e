"""Fourier transforms of 16-bit floats run as one product each."""

from __future__ import annotations

import pytest
from built_program import BuiltProgram


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"onesided": True}, 1),
        ({"onesided": True, "inverse": True, "dft_length": 1100}, 2),
        ({"onesided": True, "dft_length": 2048}, 1),
    ],
    ids=["forward", "back", "padded"],
)
def test_one_product(given: dict, kind: int, device: int) -> None:
    built = BuiltProgram(1)
    n = 551 if given.get("inverse") else 1100
    x = built.argument(2, 3, n, kind, kind="float16")[0]
    steps = built.checked_steps(built.add("dft", x, axis=2, **given), device, 3e-3)
    assert sum(s.kernel.endswith("dot") for s in steps) == 1
    assert not any(s.instruction.shape.dtype.size == 4 for s in steps)


@pytest.mark.parametrize(("length", "kind"), [(4096, "float16"), (1100, "float32")])
def test_two_products(length: int, kind: str) -> None:
    built = BuiltProgram(2)
    x = built.argument(2, length, 1, kind=kind)[0]
    steps = built.checked_steps(built.add("dft", x, axis=1, onesided=True), 1, 3e-3)
    assert any(s.instruction.shape.dtype.size == 4 for s in steps) and len(steps) > 2, [s.kernel for s in steps]
