"""Compile settings: `migraphx.compile_modes`, and sizes whose kernels are compiled in advance."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import migraphx
from mgx_core.errors import ParameterError, ShapeError


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


def doubled(*extents: str) -> migraphx.program:
    p = migraphx.program()
    main = p.get_main_module()
    names = {"n": migraphx.shape.dynamic_dimension(1, 4), "m": migraphx.shape.dynamic_dimension(1, 4)}
    x = main.add_parameter("x", migraphx.shape(dyn_dims=list(extents), symbols=names))
    main.add_return([main.add_instruction(migraphx.op("add"), [x, x])])
    return p


def names(p: migraphx.program) -> list[str]:
    return [ins.name() for ins in p.get_main_module()]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_sizes_whose_modules_and_kernels_are_made_at_once(target: str) -> None:
    p = doubled("2*n", "3")
    promised = p.get_output_shapes()
    p.compile(migraphx.get_target(target), split_sizes=[4, 1])
    assert names(p) == ["@param", "select_module", "get_tuple_elem", "@return"]
    assert [m.name for m in p.core.get_main_module().modules] == ["main:n:1", "main:n:4", "main:n:others"]
    assert p.get_output_shapes() == promised
    made = p.core.executable.instances()
    assert len(made) == 2
    for rows in (2, 8):
        assert p.run({"x": np.ones((rows, 3), np.float32)})[0].tolist() == [2] * rows * 3
    assert set(p.core.executable.instances()) == set(made)
    p.run({"x": np.ones((4, 3), np.float32)})  # other sizes on first use
    assert len(p.core.executable.instances()) == 3
    assert {place.place for one in p.core.executable.instances() for place in one.placements} == {"target"}


def test_a_name_of_few_values_gets_a_module_for_each() -> None:
    p = doubled("n", "3")
    p.compile(migraphx.get_target("cpu"))
    assert "select_module" in names(p)
    loaded = migraphx.load_buffer(migraphx.save_buffer(p))
    for n in range(1, 5):
        assert loaded.run({"x": np.ones((n, 3), np.float32)})[0].tolist() == [2] * n * 3
    wide = migraphx.program()
    x = wide.get_main_module().add_parameter("x", migraphx.shape(dyn_dims=["n({[1..5]})"]))
    wide.get_main_module().add_return([x])
    wide.compile(migraphx.get_target("cpu"))
    for p in (wide, doubled("n", "m"), doubled("2", "3")):
        if not p.is_compiled():
            p.compile(migraphx.get_target("cpu"))
        assert "select_module" not in names(p)


def test_the_selected_module_is_traced_and_verified() -> None:
    p = doubled("n", "3")
    assert p.verify(migraphx.get_target("cpu"), params={"x": np.ones((3, 3), np.float32)}).passed()
    p.compile(migraphx.get_target("cpu"))
    for n in (1, 3, 1):
        seen: list[tuple[str, list[int]]] = []
        x = np.ones((n, 3), np.float32)
        p.run_trace({"x": x}, lambda ins, value, to=seen: to.append((ins.name(), value.get_shape().lens())))
        assert seen == [("@param", [n, 3]), ("pointwise", [n, 3])]


def test_no_more_traced_modules_are_held_than_instances() -> None:
    p = doubled("n", "3")
    p.compile(migraphx.get_target("cpu"), instances=2)
    traced: list[weakref.ref[object]] = []
    for n in (1, 2, 3, 4, 1):
        x = np.ones((n, 3), np.float32)
        p.core.run_trace({"x": x}, lambda ins, _, to=traced: to.append(weakref.ref(ins.parent)))
    gc.collect()
    assert len({id(one()) for one in traced if one() is not None}) == 2


def test_a_size_that_the_model_does_not_accept() -> None:
    def windows() -> migraphx.program:
        p = migraphx.program()
        main = p.get_main_module()
        x = main.add_parameter("x", migraphx.shape(dyn_dims=["1", "1", "n({[1..4]})", "4"]))
        w = main.add_literal(np.ones((1, 1, 2, 2), np.float32))
        main.add_return([main.add_instruction(migraphx.op("convolution"), [x, w])])
        return p

    p = windows()
    p.compile(migraphx.get_target("cpu"))
    assert "select_module" not in names(p)
    assert p.run({"x": np.ones((1, 1, 2, 4), np.float32)})[0].tolist() == [4, 4, 4]
    with pytest.raises(ShapeError, match="does not fit"):
        windows().compile(migraphx.get_target("cpu"), split_sizes=[1])


@pytest.mark.parametrize(
    ("extents", "target", "sizes", "message"),
    [
        (("n", "3"), "ref", [1, 4], "split_sizes is not supported by"),
        (("n", "3"), "cpu", [1, 5], r"split_sizes: n must be within \[1, 4, \{\}\], got 5"),
        (("n", "m"), "cpu", [1], "open extents contain exactly one name, got m, n"),
        (("2", "3"), "cpu", [1], "open extents contain exactly one name, got none"),
    ],
)
def test_sizes_that_cannot_be_chosen(extents, target, sizes, message) -> None:
    with pytest.raises(ParameterError, match=message):
        doubled(*extents).compile(migraphx.get_target(target), split_sizes=sizes)
