"""The frontend in use: installed, selected by file extension, with every option of the driver."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import mgx_core as mgx
from mgx_core.driver import main

LAYERS = [
    {"weights": [[1.0, -1.0], [0.5, 2.0]], "bias": [0.0, 1.0], "activation": "relu"},
    {"weights": [[2.0], [1.0]], "bias": [-1.0]},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.layers.json"
    path.write_text(json.dumps(LAYERS))
    return path


def test_runs(file):
    program = mgx.parse(file)
    program.compile(mgx.get_target("ref"))
    for x in (np.float32([[1, 2]]), np.float32([[0, 1], [3, -1], [2, 2]])):
        hidden = np.maximum(x @ np.float32(LAYERS[0]["weights"]) + np.float32(LAYERS[0]["bias"]), 0)
        np.testing.assert_allclose(program.run({"x": x})[0], hidden @ np.float32([[2], [1]]) - 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "dims"),
    [
        ([], ["batch", 2]),
        (["--batch", 8], [8, 2]),
        (["--dim-param", "@batch", 4], [4, 2]),
        (["--dim-param", "@batch", "{min:1,max:8}"], ["batch", 2]),
        (["--input-dim", "@x", 3, 2], [3, 2]),
        (["--dyn-input-dim", "@x", "[{min:1,max:8}, 2]"], ["x_0", 2]),
        (["--default-dyn-dim", "{min:1,max:8}"], ["batch", 2]),
        (["-O", "-t", 1], ["batch", 2]),
    ],
)
def test_options_of_the_driver(file, words, dims):
    done = CliRunner().invoke(main, ["params", str(file), *map(str, words), "--json"])
    assert json.loads(done.output)["parameters"]["x"]["dims"] == dims


def test_errors_name_the_file(file):
    with pytest.raises(mgx.ParameterError, match=r"frontend 'layers\.json' takes no option 'bathc'"):
        mgx.parse(file, bathc=3)
    file.write_text("{}")
    with pytest.raises(mgx.ParseError, match=r"model\.layers\.json.*a list of layers is required"):
        mgx.parse(file)
