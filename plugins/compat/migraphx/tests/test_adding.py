"""Operations added by hand: scalars combined with vectors of one element, and data-dependent numbers of rows."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx

REF = migraphx.get_target("ref")


def of(*lens, kind="float"):
    return migraphx.shape(type=kind, lens=list(lens))


@pytest.fixture
def program():
    return migraphx.program()


def test_scalars_join_vectors_of_one_element(program) -> None:
    main = program.get_main_module()
    x = main.add_parameter("x", migraphx.shape(type="float", lens=[1], strides=[0]))
    two, three = main.add_literal(np.float32(2)), main.add_literal(np.array([3], np.float32))
    assert two.shape() == x.shape() and two.shape().scalar() and not three.shape().scalar()
    total = main.add_instruction(migraphx.op("add"), [x, two])
    assert total.shape().scalar()
    main.add_return([main.add_instruction(migraphx.op("mul"), [total, three])])
    program.compile(REF)
    assert program.run({"x": np.array([5], np.float32)})[0].tolist() == [21]


def test_a_scalar_index_removes_its_axis(program) -> None:
    main = program.get_main_module()
    x = main.add_parameter("x", of(3, 2))
    for index, lens in ((np.int64(1), [2]), (np.array([1]), [1, 2])):
        assert main.add_instruction(migraphx.op("gather", axis=0), [x, main.add_literal(index)]).shape().lens() == lens


def test_failed_matches_leave_no_instructions(program) -> None:
    main = program.get_main_module()
    x, one = main.add_parameter("x", of(3)), main.add_literal(np.float32(1))
    before = len(main)
    with pytest.raises(RuntimeError, match="equal dims"):
        main.add_instruction(migraphx.op("add"), [x, one])
    assert len(main) == before


def test_positions_are_filled_up(program) -> None:
    main = program.get_main_module()
    found = main.add_instruction(migraphx.op("nonzero"), [main.add_parameter("x", of(2, 2))])
    assert found.shape() == of(2, 4, kind="int64_type")
    main.add_return([found])
    again: dict[str, migraphx.program] = {}
    exec(program.to_py(), again)
    assert again["p"] == program
    program.compile(REF)
    assert np.array(program.run({"x": np.array([[0, 1], [2, 0]], np.float32)})[0]).tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
    ]


@pytest.mark.parametrize("dynamic", [False, True])
def test_selected_boxes_are_padded_by_default(program, dynamic) -> None:
    main = program.get_main_module()
    boxes, scores = main.add_parameter("b", of(1, 6, 4)), main.add_parameter("s", of(1, 2, 6))
    op = migraphx.op("nonmaxsuppression", use_dyn_output=dynamic)
    found = main.add_instruction(op, [boxes, scores, main.add_literal(np.array([2]))])
    assert found.shape().dynamic() == dynamic
    assert dynamic or found.shape().lens() == [12, 3]


def test_rows_of_loops_are_filled_up(program) -> None:
    main, body = program.get_main_module(), program.create_module("body")
    trips, more = main.add_literal(np.int64(2)), main.add_literal(np.bool_(True))
    body.add_parameter("n", migraphx.shape(type="int64_type", lens=[1], strides=[0]))
    on = body.add_parameter("on", migraphx.shape(type="bool", lens=[1], strides=[0]))
    value = body.add_parameter("v", of(2))
    twice = body.add_instruction(migraphx.op("add"), [value, value])
    body.add_return([on, twice, twice])
    loop = main.add_instruction(
        migraphx.op("loop", max_iterations=3), [trips, more, main.add_parameter("x", of(2))], [body]
    )
    last, rows = (main.add_instruction(migraphx.op("get_tuple_elem", index=k), [loop]) for k in (0, 1))
    assert last.shape().lens() == [2] and rows.shape().lens() == [3, 2]
    main.add_return([last, rows])
    program.compile(REF)
    last, rows = program.run({"x": np.ones(2, np.float32)})
    assert last.tolist() == [4, 4] and rows.tolist() == [2, 2, 4, 4, 0, 0]


def test_rows_of_one_number_have_an_axis(program) -> None:
    main, body = program.get_main_module(), program.create_module("body")
    trips, more = main.add_literal(np.int64(2)), main.add_literal(np.bool_(True))
    n = body.add_parameter("n", migraphx.shape(type="int64_type", lens=[1], strides=[0]))
    on = body.add_parameter("on", migraphx.shape(type="bool", lens=[1], strides=[0]))
    body.add_return([on, n])
    loop = main.add_instruction(migraphx.op("loop", max_iterations=3), [trips, more], [body])
    rows = main.add_instruction(migraphx.op("get_tuple_elem", index=0), [loop])
    assert rows.shape().lens() == [3, 1]
    main.add_return([rows])
    scope: dict[str, migraphx.program] = {}
    exec(program.to_py(), scope)
    for p in (program, scope["p"]):
        p.compile(REF)
        (found,) = p.run({})
        assert found.get_shape().lens() == [3, 1] and found.tolist() == [0, 1, 0]


def test_new_axes_derive_their_strides_from_the_next_axis(program) -> None:
    main = program.get_main_module()
    x = main.add_parameter("x", of(3, 4, 10))
    made = main.add_instruction(migraphx.op("unsqueeze", axes=[2, 4, 5], steps=[2]), [x])
    assert made.shape().lens() == [3, 4, 2, 5, 1, 1]
    for axes, steps in (([2], [3]), ([3], [2]), ([0], [0])):
        with pytest.raises(RuntimeError, match="must divide"):
            main.add_instruction(migraphx.op("unsqueeze", axes=axes, steps=steps), [x])
    with pytest.raises(RuntimeError, match="at most one step per axis"):
        migraphx.op("unsqueeze", axes=[1], steps=[1, 2])
    assert migraphx.op("unsqueeze", axes=[1], steps=[2]) != migraphx.op("unsqueeze", axes=[1])
    main.add_return([made])
    program.compile(REF)
    values = np.arange(120, dtype=np.float32).reshape(3, 4, 10)
    np.testing.assert_array_equal(program.run({"x": values})[0], values.reshape(3, 4, 2, 5, 1, 1))
