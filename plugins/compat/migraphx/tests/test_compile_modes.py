"""`migraphx.compile_modes`: how much time compiling may take."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx


@pytest.mark.parametrize(
    ("name", "number", "tunes"), [("eager", 0, False), ("balanced", 50, False), ("max", 100, True)]
)
def test_a_mode_chooses_how_much_is_tuned(name, number, tunes) -> None:
    mode = migraphx.compile_modes[name]
    assert mode.value == number
    p = migraphx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", migraphx.shape(lens=[2]))
    main.add_return([main.add_instruction(migraphx.op("neg"), [x])])
    p.compile(migraphx.get_target("ref"), compile_mode=mode)
    assert p.core.executable.options.exhaustive_tune == tunes
    assert p.run({"x": np.ones(2, np.float32)})[0].tolist() == [-1, -1]
