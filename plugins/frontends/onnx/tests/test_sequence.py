"""Sequences, optionals and strings in whole models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import mgx_core as mgx
from mgx_core import MgxError
from mgx_onnx.backend import RefBackend


def run_text(text: str, *inputs: Any) -> list[Any]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    return list(RefBackend.prepare(model).run(list(inputs)))


def test_chain() -> None:
    out = run_text(
        """g (float[n, 2] a, float[m, 2] b) => (float[k, 2] joined, int64 length, float[p, 2] last) {
            first = SequenceConstruct(a, b)
            two = Constant<value_int = -2>()
            more = SequenceInsert(first, b, two)
            fewer = SequenceErase(more, two)
            joined = ConcatFromSequence<axis = 0>(more)
            length = SequenceLength(fewer)
            last = SequenceAt(fewer, two)
        }""",
        np.float32([[1, 2]]),
        np.float32([[3, 4], [5, 6]]),
    )
    assert out[0].tolist() == [[3, 4], [5, 6], [1, 2], [3, 4], [5, 6]]
    assert out[1] == 2 and out[2].tolist() == [[3, 4], [5, 6]]


def mapped(outer: str) -> str:
    """Maps rows of x to 3 * relu(row), where the factor is a value outside of the body."""
    return f"""g (float[n, 3] x, float {outer}) => (float[n, 3] y) {{
            rows = SplitToSequence<axis = 0>(x)
            more = SequenceMap<body = b (float[1, 3] row) => (float[1, 3] out) {{
                positive = Relu(row)
                out = Mul(positive, {outer})
            }}>(rows)
            y = ConcatFromSequence<axis = 0>(more)
        }}"""


@pytest.mark.parametrize("rows", [1, 4])
def test_a_mapped_body_reads_values_outside(rows: int) -> None:
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) - 4
    (y,) = run_text(mapped("factor"), x, np.float32(3))
    np.testing.assert_array_equal(y, 3 * np.maximum(x, 0))


def test_such_a_value_must_not_be_called_as_one_of_the_definition() -> None:
    with pytest.raises(
        MgxError, match="'input_sequence', which the operator's definition calls another value; rename it"
    ):
        run_text(mapped("input_sequence"), np.ones((2, 3), np.float32), np.float32(3))


def test_split_gives_a_sequence() -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    parts = run_text(
        "g (float[2, 5] x, int64 s) => (seq(float[2, n]) y) { y = SplitToSequence<axis = 1>(x, s) }", x, np.asarray(2)
    )[0]
    assert [p.tolist() for p in parts] == [x[:, :2].tolist(), x[:, 2:4].tolist(), x[:, 4:].tolist()]
    rows = run_text("g (float[2, 5] x) => (seq(float[5]) y) { y = SplitToSequence<keepdims = 0>(x) }", x)[0]
    assert [r.tolist() for r in rows] == x.tolist()


def test_grown_from_empty_with_items_of_several_ranks() -> None:
    out = run_text(
        """g (float[3] a) => (float z, int64 n) {
            none = SequenceEmpty<dtype = 1>()
            one = SequenceInsert(none, a)
            s = ReduceSum<keepdims = 0>(a)
            two = SequenceInsert(one, s)
            last = Constant<value_int = -1>()
            z = SequenceAt(two, last)
            n = SequenceLength(two)
        }""",
        np.float32([1, 2, 3]),
    )
    assert out[0] == 6 and out[1] == 2


def test_optional_type_attribute() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    nodes = [
        helper.make_node("Optional", [], ["o"], type=tensor),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("OptionalGetElement", ["o"], ["value"]),
    ]
    out = helper.make_tensor_value_info("has", TensorProto.BOOL, [])
    model = helper.make_model(helper.make_graph(nodes[:2], "g", [], [out]), opset_imports=[helper.make_opsetid("", 18)])
    assert RefBackend.prepare(model).run([])[0] == np.False_
    out = helper.make_tensor_value_info("value", TensorProto.FLOAT, [2])
    model = helper.make_model(helper.make_graph(nodes, "g", [], [out]), opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(MgxError, match="no value"):
        RefBackend.prepare(model).run([])


def test_an_optional_of_a_value_is_resolved_statically() -> None:
    then = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["o"], ["held"]), helper.make_node("Neg", ["held"], ["negated"])],
        "then",
        [],
        [helper.make_tensor_value_info("negated", TensorProto.FLOAT, [2])],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["absolute"])],
        "other",
        [],
        [helper.make_tensor_value_info("absolute", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=then, else_branch=other),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)])
    program = mgx.parse_onnx_buffer(model.SerializeToString())
    program.compile(mgx.get_target("ref"))
    assert [i.name for i in program.get_main_module() if i.name in ("optional", "if")] == []
    np.testing.assert_array_equal(program.run({"x": np.float32([1, -2])})[0].to_numpy(), np.float32([-1, 2]))


def test_strings(run: Any) -> None:
    x = np.array(["a,b", "C"], object)
    parts, counts = run("StringSplit", x, opset=20, outputs=2, delimiter=",")
    assert parts.tolist() == [["a", "b"], ["C", ""]] and counts.tolist() == [2, 1]
    assert run("StringConcat", x, np.array("!", object), opset=20)[0].tolist() == ["a,b!", "C!"]
    assert run("RegexFullMatch", x, opset=20, pattern="[a-z,]+")[0].tolist() == [True, False]
    assert run("StringNormalizer", x, stopwords=["c"], case_change_action="UPPER")[0].tolist() == ["A,B"]
    assert run("Tokenizer", x, domain="com.microsoft", mincharnum=1, pad_value="", tokenexp="[a-z]", mark=0)[
        0
    ].tolist() == [
        ["a", "b"],
        ["", ""],
    ]
    with pytest.raises(MgxError, match=r"RegexFullMatch.*missing"):
        run("RegexFullMatch", x, opset=20, pattern="(")


def test_ngrams(agree: Any) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 12)).astype(np.int64)
    pool = [0, 1, 2, 0, 1, 2, 3, 3, 3, 1, 0, 1, 2, 2, 1]
    for mode in ("TF", "IDF", "TFIDF"):
        agree(
            "TfIdfVectorizer", x, mode=mode, min_gram_length=1, max_gram_length=3, max_skip_count=3, ngram_counts=[0, 3, 9],
            ngram_indexes=[7, 0, 1, 2, 3, 4, 6, 5], pool_int64s=pool, weights=[0.5, 1.5, 2.0, 3.0, 0.25, 1.0, 4.0, 0.125],
        )  # fmt: skip


def test_image(run: Any) -> None:
    pytest.importorskip("PIL")
    ppm = b"P6 2 1 255\n" + bytes([1, 2, 3, 4, 5, 6])
    out = run("ImageDecoder", np.frombuffer(ppm, np.uint8), opset=20, pixel_format="BGR")[0]
    assert out.tolist() == [[[3, 2, 1], [6, 5, 4]]]


def test_model_is_checked(run: Any) -> None:
    with pytest.raises(MgxError, match="a sequence is required"):
        run("SequenceLength", np.zeros(3, np.float32))
    text = "g (seq(float[2]) s) => (float[n] y) { y = ConcatFromSequence(s) }"
    with pytest.raises(MgxError, match="'axis' is required"):
        run_text(text)
