"""Files of external data: where they may lie and which of their bytes are a tensor's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mgx_core as mgx
from mgx_core import MgxError

VALUES = np.arange(6, dtype=np.float32)


def written(path: Path, location: str, **entries: int) -> Path:
    """Writes a model that returns its only weight, [6], which is in another file."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [result], [weight])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    )
    return path


def result(path: Path) -> Any:
    program = mgx.parse_onnx(str(path))
    program.compile(mgx.get_target("ref"))
    return np.asarray(program.run({})[0])


def test_a_length_of_zero_is_the_rest_of_the_file(tmp_path: Path) -> None:
    """So onnx and ONNX Runtime read it."""
    (tmp_path / "w.bin").write_bytes(b"1234" + VALUES.tobytes())
    np.testing.assert_array_equal(result(written(tmp_path / "m.onnx", "w.bin", offset=4, length=0)), -VALUES)


def test_a_model_in_a_download_cache(tmp_path: Path) -> None:
    """The cache keeps files under their hashes, and a folder of links with the files' names."""
    blobs, links = tmp_path / "blobs", tmp_path / "snapshots" / "main" / "onnx"
    written(blobs / "c0ffee", "model.onnx_data", length=24)
    (blobs / "f00d").write_bytes(VALUES.tobytes())
    links.mkdir(parents=True)
    (links / "model.onnx").symlink_to("../../../blobs/c0ffee")
    (links / "model.onnx_data").symlink_to("../../../blobs/f00d")
    np.testing.assert_array_equal(result(links / "model.onnx"), -VALUES)
    # a newer version of the weights under the same name
    (blobs / "beef").write_bytes((2 * VALUES).tobytes())
    (links / "model.onnx_data").unlink()
    (links / "model.onnx_data").symlink_to("../../../blobs/beef")
    np.testing.assert_array_equal(result(links / "model.onnx"), -2 * VALUES)


@pytest.mark.parametrize("linked", [False, True])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, linked: bool) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(VALUES.tobytes())
    path = written(tmp_path / "models" / "m.onnx", "w.bin", length=24)
    (tmp_path / "links").mkdir()
    if linked:
        (tmp_path / "links" / "m.onnx").symlink_to(path)
        path = tmp_path / "links" / "m.onnx"
    (path.parent / "w.bin").symlink_to(secret)
    with pytest.raises(MgxError, match="leads outside the model's folder"):
        result(path)
