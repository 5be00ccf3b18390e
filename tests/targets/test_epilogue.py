"""Epilogues as chains: which members may be left out, and which may not."""

from __future__ import annotations

import pytest

from mgx_core.errors import No
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.targets.epilogue import Link, read_chain

TYPES = {"f": "float32", "h": "float16", "b": "bfloat16"}


def chain_of(path: str) -> object:
    """Returns the chain from an anchor of the first type through the others; ``*`` is a relu."""
    lines, at, kind = ["module main", f'%0 = @param["x"] -> {TYPES[path[0]]}[2]'], 0, TYPES[path[0]]
    for n, step in enumerate(path[1:], 1):
        kind = kind if step == "*" else TYPES[step]
        made = "relu()" if step == "*" else f"convert[target_type={kind}]()"
        lines.append(f"%{n} = {made.replace('()', f'(%{at})')} -> {kind}[2]")
        at = n
    lines.append(f"@return(%{at})")
    body = parse_module("\n".join(lines), STANDARD)
    return read_chain(body, body.parameters["x"])


@pytest.mark.parametrize("path", ["f*", "fh", "f*h", "fh*", "hf*", "hf*h", "bf*b"])
def test_stores_round_once(path: str) -> None:
    links = chain_of(path)
    assert isinstance(links, list)
    assert [link.algorithm for link in links] == ["relu"] * path.count("*")


def test_whole_numbers_that_pass_through_bytes_stay_in_the_chain() -> None:
    body = parse_module(
        """\
module main
%x = @param["x"] -> int32[2]
%low = @literal(0.0) -> float32[]
%high = @literal(255.0) -> float32[]
%a = multibroadcast[out_lens=[2]](%low) -> float32[2]
%b = multibroadcast[out_lens=[2]](%high) -> float32[2]
%1 = convert[target_type=float32](%x) -> float32[2]
%2 = nearbyint(%1) -> float32[2]
%3 = clip(%2, %a, %b) -> float32[2]
%4 = convert[target_type=uint8](%3) -> uint8[2]
%5 = convert[target_type=float32](%4) -> float32[2]
%6 = relu(%5) -> float32[2]
@return(%6)""",
        STANDARD,
    )
    links = read_chain(body, body.parameters["x"])
    assert isinstance(links, list)
    assert [link.algorithm for link in links] == ["round", "clip", "relu"]


def test_the_logistic_approximation_of_gelu_is_a_swish_with_a_factor() -> None:
    text = 'module main\n%x = @param["x"] -> float32[2]\n%1 = quick_gelu[alpha=1.702](%x) -> float32[2]\n@return(%1)'
    body = parse_module(text, STANDARD)
    links = read_chain(body, body.parameters["x"])
    assert isinstance(links, list)
    assert [(link.algorithm, link.alpha) for link in links] == [("swish", 1.702)]


@pytest.mark.parametrize("path", ["fhf", "fhf*", "fh*f", "fhb", "fb*f*"])
def test_a_conversion_that_rounds_in_between_is_kept(path: str) -> None:
    no = chain_of(path)
    assert isinstance(no, No)
    assert "in mid-chain rounds" in no.why


def test_what_a_product_is_subtracted_from_is_added_to_its_opposite() -> None:
    """x - dot(a, b), a step of gradient descent or of the delta rule."""
    text = """\
module main
  %y = @param["y"] -> float32[2]
  %x = @param["x"] -> float32[2]
  %1 = sub(%x, %y) -> float32[2]
  @return(%1)"""
    body = parse_module(text, STANDARD)
    added = Link("binary", "add", operand=body.parameters["x"])
    assert read_chain(body, body.parameters["y"]) == [Link("eltwise", "linear", -1.0, 0.0), added]
