"""`migraphx.macro`: the subjects of MIGraphX's test_macro, and the macros' results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import migraphx

SIX, TURNED, OTHER = ([2, 3], [1, 2, 3, 4, 5, 6]), ([3, 2], [1, 4, 2, 5, 3, 6]), ([3, 2], [7, 8, 9, 10, 11, 12])
PRODUCT = [58, 64, 139, 154]
IMAGE, DIAGONAL = ([1, 1, 3, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]), ([1, 1, 2, 2], [1, 0, 0, 1])
CHANNELS = ([1, 2, 3], [1, 2, 3, 4, 5, 6])


def made(lens: list[int], values: list[float]) -> migraphx.argument:
    return migraphx.create_argument(migraphx.shape(type="float_type", lens=lens), values)


@pytest.mark.parametrize(
    ("name", "options", "operands", "wanted"),
    [
        ("gemm", {}, [SIX, OTHER], PRODUCT),
        ("gemm", {"transA": True}, [TURNED, OTHER], PRODUCT),
        ("gemm", {"alpha": 2.0}, [SIX, OTHER], [2 * v for v in PRODUCT]),
        ("batchnorm", {}, [CHANNELS, *[([2], v) for v in ([1, 1], [0, 0], [2, 5], [1, 1])]], [-1, 0, 1] * 2),
        (
            "batchnorm",
            {"epsilon": 5.0},
            [CHANNELS, *[([2], v) for v in ([2, 0.5], [1, -1], [2, 5], [4, 4])]],
            [1 / 3, 1, 5 / 3, -7 / 6, -1, -5 / 6],
        ),
        ("convolution", {}, [IMAGE, DIAGONAL], [6, 8, 12, 14]),
        ("convolution", {}, [IMAGE, DIAGONAL, ([1], [10])], [16, 18, 22, 24]),
        ("convolution", {"paddings": [1, 1]}, [IMAGE, ([1, 1, 3, 3], [1] * 9)], [12, 21, 16, 27, 45, 33, 24, 39, 28]),
        ("einsum", {"equation": "ij,jk->ik"}, [SIX, OTHER], PRODUCT),
        ("einsum", {"equation": "ij->ji"}, [SIX], [1, 4, 2, 5, 3, 6]),
        ("einsum", {"equation": "ii->"}, [([3, 3], [1, 0, 0, 0, 2, 0, 0, 0, 3])], [6]),
    ],
)
@pytest.mark.parametrize("literals", [True, False])
def test_a_macro_adds_its_expansion(name: str, options: Any, operands: Any, wanted: Any, literals: bool) -> None:
    macro = migraphx.macro(name, **options)
    assert macro.name() == name and macro.options() == options
    p = migraphx.program()
    m, values = p.get_main_module(), [made(*o) for o in operands]
    if literals:
        inputs = [m.add_literal(v) for v in values]
    else:
        inputs = [m.add_parameter(f"p{i}", v.get_shape()) for i, v in enumerate(values)]
    m.add_return([m.add_macro(macro, inputs)[-1]])
    p.compile(migraphx.get_target("ref"))
    result = p.run({} if literals else {f"p{i}": v for i, v in enumerate(values)})[-1]
    np.testing.assert_allclose(result.tolist(), wanted, atol=1e-4)


def test_macro_is_inserted_before_an_instruction() -> None:
    p = migraphx.program()
    m = p.get_main_module()
    inputs = [m.add_literal(made(*o)) for o in (SIX, OTHER)]
    after = m.add_macro(migraphx.macro("gemm"), inputs)
    before = m.insert_macro(after[0], migraphx.macro("einsum", equation="ij,jk->ik"), inputs)
    order = list(m)
    assert order.index(before[-1]) < order.index(after[0])
    m.add_return([before[-1]])
    p.compile(migraphx.get_target("ref"))
    assert p.run({})[-1].tolist() == PRODUCT
