"""The part of an error's text that reaches clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgx_serve.error_text import error_text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{root}/net/1/model.onnx: no model", "net/1/model.onnx: no model"),
        ("weights '{root}/missing folder/w.bin' are missing", "weights 'missing folder/w.bin' are missing"),
        ("cannot open {other}/kernels/k.so: no such file", "cannot open k.so: no such file"),
        ("[Errno 13] Permission denied: '{other}'", "[Errno 13] Permission denied: 'cache'"),
        ("node '/no-such/layer/MatMul': rows/s of a/b, 1 / 2", "node '/no-such/layer/MatMul': rows/s of a/b, 1 / 2"),
    ],
)
def test_clients_learn_no_paths(text: str, read: str, tmp_path: Path) -> None:
    root, other = tmp_path / "my models", tmp_path / "cache"
    root.mkdir()
    other.mkdir()
    assert error_text(ValueError(text.format(root=root, other=other)), root) == read


def test_errors_without_text_have_a_name() -> None:
    assert error_text(KeyError()) == "KeyError"
