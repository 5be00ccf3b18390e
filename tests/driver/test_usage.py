"""Command lines that the driver rejects: the message names the option, what it takes and what was given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile MODEL --rule drop_zero_term", "--rule takes NAME=on or NAME=off, got 'drop_zero_term'"),
        ("compile MODEL --rule =on", "--rule takes NAME=on or NAME=off, got '=on'"),
        ("run MODEL --load-arg @x one.npy two.npy", "--load-arg takes one file for each @name, got 'one.npy two.npy'"),
        ("run MODEL --batch 2 --default-dyn-dim 3", "--batch and --default-dyn-dim exclude each other"),
        ("read MODEL --test", "--test takes no file, got 'MODEL'"),
        ("read MODEL --netron", "--netron takes the name of a file, or --output does"),
        ("read MODEL --onnx --tf", "--onnx, --tf, --migraphx and --frontend exclude each other"),
        ("quantize MODEL -o FOLDER/out.mxr", "--kind int8 needs calibration data: --data PATH"),
    ],
)
def test_what_does_not_fit_is_named(
    drive: Callable[..., str], chain: Callable[..., Path], tmp_path: Path, words: str, said: str
) -> None:
    model = str(chain("tanh", "n 4"))

    def filled(text: str) -> str:
        return text.replace("MODEL", model).replace("FOLDER", str(tmp_path))

    told = " ".join(drive(*filled(words).split(), code=2).replace("\n", " ").split())
    assert filled(said) in told
