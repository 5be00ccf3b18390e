"""Rules on arithmetic: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "drop-zero-term",
        """\
  %x = @param["x"] -> float32[n, 3]
  %0 = @literal(0.0) -> float32[]
  %z = multibroadcast[out_lens=[n, 3]](%0)
  %1 = add(%z, %x)
  %2 = sub(%1, %z)
  %3 = neg(%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = neg(%x) -> float32[n, 3]
  @return(%1)""",
    ),
    (
        "drop-unit-factor",
        """\
  %x = @param["x"] -> float32[2, 3]
  %c = @literal(1.0, 1.0, 1.0) -> float32[3]
  %z = multibroadcast[out_lens=[2, 3]](%c)
  %1 = mul(%z, %x)
  %2 = div(%1, %z)
  %3 = pow(%2, %z)
  %4 = neg(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = neg(%x) -> float32[2, 3]
  @return(%1)""",
    ),
    (
        "product-with-zero",
        """\
  %x = @param["x"] -> int32[2, 3]
  %0 = @literal(0) -> int32[]
  %z = multibroadcast[out_lens=[2, 3]](%0)
  %1 = mul(%x, %z)
  @return(%1)""",
        """\
  %x = @param["x"] -> int32[2, 3]
  %1 = @literal(0) -> int32[]
  %2 = multibroadcast[out_lens=[2, 3]](%1) -> int32[2, 3]
  @return(%2)""",
    ),
    (
        "difference-with-itself",
        """\
  %x = @param["x"] -> int64[2]
  %1 = sub(%x, %x)
  @return(%1)""",
        """\
  %x = @param["x"] -> int64[2]
  %1 = @literal(0) -> int64[]
  %2 = multibroadcast[out_lens=[2]](%1) -> int64[2]
  @return(%2)""",
    ),
    (
        "cancel-negations",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = neg(%x)
  %2 = neg(%1)
  %3 = sub(%2, %y)
  %4 = neg(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sub(%y, %x) -> float32[2]
  @return(%1)""",
    ),
    (
        "product-with-minus-one",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(-1.0) -> float32[]
  %m = multibroadcast[out_lens=[2]](%0)
  %1 = mul(%m, %x)
  %2 = exp(%1)
  %3 = div(%2, %m)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = neg(%x) -> float32[2]
  %2 = exp(%1) -> float32[2]
  %3 = neg(%2) -> float32[2]
  @return(%3)""",
    ),
    (
        "zero-minus",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0, 0.0) -> float32[2]
  %1 = sub(%0, %x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = neg(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "absorb-negation",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %m = neg(%x)
  %n = neg(%y)
  %1 = add(%x, %n)
  %2 = add(%m, %y)
  %3 = sub(%x, %n)
  %4 = mul(%m, %n)
  %5 = div(%m, %n)
  @return(%1, %2, %3, %4, %5)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sub(%x, %y) -> float32[2]
  %2 = sub(%y, %x) -> float32[2]
  %3 = add(%x, %y) -> float32[2]
  %4 = mul(%x, %y) -> float32[2]
  %5 = div(%x, %y) -> float32[2]
  @return(%1, %2, %3, %4, %5)""",
    ),
    (
        "even-function-of-negation",
        """\
  %x = @param["x"] -> float32[2]
  %m = neg(%x)
  %1 = abs(%m)
  %2 = cos(%m)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = abs(%x) -> float32[2]
  %2 = cos(%x) -> float32[2]
  @return(%1, %2)""",
    ),
    (
        "apply-once",
        """\
  %x = @param["x"] -> float32[2]
  %1 = relu(%x)
  %2 = relu(%1)
  %3 = abs(%2)
  %4 = floor(%x)
  %5 = ceil(%4)
  @return(%3, %5)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = relu(%x) -> float32[2]
  %2 = floor(%x) -> float32[2]
  @return(%1, %2)""",
    ),
    (
        "join-added-integers",
        """\
  %x = @param["x"] -> int32[2]
  %0 = @literal(5) -> int32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %d = @literal(1, 2) -> int32[2]
  %1 = add(%x, %c)
  %2 = sub(%1, %d)
  @return(%2)""",
        """\
  %x = @param["x"] -> int32[2]
  %1 = @literal(4, 3) -> int32[2]
  %2 = add(%x, %1) -> int32[2]
  @return(%2)""",
    ),
    (
        "join-added-constants",
        """\
  %x = @param["x"] -> float32[n, 2]
  %0 = @literal(5.0) -> float32[]
  %c = multibroadcast[out_lens=[n, 2]](%0)
  %1 = @literal(1.0, 2.0) -> float32[2]
  %d = multibroadcast[out_lens=[n, 2]](%1)
  %2 = add(%x, %c)
  %3 = add(%d, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 2]
  %1 = @literal(6.0, 7.0) -> float32[2]
  %2 = multibroadcast[out_lens=[n, 2]](%1) -> float32[n, 2]
  %3 = add(%x, %2) -> float32[n, 2]
  @return(%3)""",
    ),
    (
        "join-added-constants",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(5.0, 6.0) -> float32[2]
  %d = @literal(1.0, 2.0) -> float32[2]
  %1 = sub(%c, %x)
  %2 = sub(%d, %1)
  %3 = sub(%x, %c)
  %4 = sub(%3, %d)
  %5 = sub(%x, %c)
  %6 = add(%5, %d)
  %7 = sub(%c, %x)
  %8 = add(%7, %d)
  %9 = add(%x, %c)
  %10 = sub(%d, %9)
  %11 = sub(%x, %c)
  %12 = sub(%d, %11)
  @return(%2, %4, %6, %8, %10, %12)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(-4.0, -4.0) -> float32[2]
  %2 = add(%x, %1) -> float32[2]
  %3 = @literal(6.0, 8.0) -> float32[2]
  %4 = sub(%x, %3) -> float32[2]
  %5 = @literal(-4.0, -4.0) -> float32[2]
  %6 = add(%x, %5) -> float32[2]
  %7 = @literal(6.0, 8.0) -> float32[2]
  %8 = sub(%7, %x) -> float32[2]
  %9 = @literal(-4.0, -4.0) -> float32[2]
  %10 = sub(%9, %x) -> float32[2]
  %11 = @literal(6.0, 8.0) -> float32[2]
  %12 = sub(%11, %x) -> float32[2]
  @return(%2, %4, %6, %8, %10, %12)""",
    ),
    (
        "join-integer-factors",
        """\
  %x = @param["x"] -> int32[2]
  %c = @literal(3, 4) -> int32[2]
  %1 = mul(%x, %c)
  %2 = mul(%c, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> int32[2]
  %1 = @literal(9, 16) -> int32[2]
  %2 = mul(%x, %1) -> int32[2]
  @return(%2)""",
    ),
    (
        "join-factors",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(5.0, 6.0) -> float32[2]
  %d = @literal(1.0, 2.0) -> float32[2]
  %1 = mul(%c, %x)
  %2 = mul(%1, %d)
  %3 = div(%x, %c)
  %4 = div(%3, %d)
  %5 = div(%c, %x)
  %6 = mul(%5, %d)
  %7 = div(%c, %x)
  %8 = div(%d, %7)
  %9 = mul(%x, %c)
  %10 = div(%d, %9)
  %11 = div(%x, %c)
  %12 = mul(%11, %d)
  %13 = div(%x, %c)
  %14 = div(%d, %13)
  @return(%2, %4, %6, %8, %10, %12, %14)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(5.0, 12.0) -> float32[2]
  %2 = mul(%x, %1) -> float32[2]
  %3 = @literal(5.0, 12.0) -> float32[2]
  %4 = div(%x, %3) -> float32[2]
  %5 = @literal(5.0, 12.0) -> float32[2]
  %6 = div(%5, %x) -> float32[2]
  %7 = @literal(0.2, 0.33333334) -> float32[2]
  %8 = mul(%x, %7) -> float32[2]
  %9 = @literal(0.2, 0.33333334) -> float32[2]
  %10 = div(%9, %x) -> float32[2]
  %11 = @literal(0.2, 0.33333334) -> float32[2]
  %12 = mul(%x, %11) -> float32[2]
  %13 = @literal(5.0, 12.0) -> float32[2]
  %14 = div(%13, %x) -> float32[2]
  @return(%2, %4, %6, %8, %10, %12, %14)""",
    ),
    (
        "gather-added-constants",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %c = @literal(5.0, 6.0) -> float32[2]
  %d = @literal(1.0, 2.0) -> float32[2]
  %1 = add(%x, %c)
  %2 = add(%d, %y)
  %3 = add(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = @literal(6.0, 8.0) -> float32[2]
  %2 = add(%x, %y) -> float32[2]
  %3 = add(%2, %1) -> float32[2]
  @return(%3)""",
    ),
    (
        "factor-into-sum",
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %0 = @literal(5.0, 6.0) -> float32[2]
  %c = multibroadcast[out_lens=[2, 2]](%0)
  %1 = dot(%x, %w)
  %2 = add(%1, %c)
  %3 = mul(%2, %c)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %2 = @literal(5.0, 6.0) -> float32[2]
  %3 = multibroadcast[out_lens=[2, 2]](%2) -> float32[2, 2]
  %4 = dot(%x, %1) -> float32[2, 2]
  %5 = @literal(25.0, 36.0) -> float32[2]
  %6 = multibroadcast[out_lens=[2, 2]](%5) -> float32[2, 2]
  %7 = mul(%4, %3) -> float32[2, 2]
  %8 = add(%7, %6) -> float32[2, 2]
  @return(%8)""",
    ),
    (
        "relu-out-of-mul",
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, -3.0, 4.0) -> float32[2, 2]
  %0 = @literal(0.5, 2.0) -> float32[2]
  %c = multibroadcast[out_lens=[2, 2]](%0)
  %1 = dot(%x, %w)
  %2 = relu(%1)
  %3 = mul(%2, %c)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = @literal(1.0, 2.0, -3.0, 4.0) -> float32[2, 2]
  %2 = @literal(0.5, 2.0) -> float32[2]
  %3 = multibroadcast[out_lens=[2, 2]](%2) -> float32[2, 2]
  %4 = dot(%x, %1) -> float32[2, 2]
  %5 = mul(%4, %3) -> float32[2, 2]
  %6 = relu(%5) -> float32[2, 2]
  @return(%6)""",
    ),
    (
        "divide-by-power-of-two",
        """\
  %x = @param["x"] -> float16[n]
  %0 = @literal(-8.0) -> float16[]
  %c = multibroadcast[out_lens=[n]](%0)
  %1 = div(%x, %c)
  @return(%1)""",
        """\
  %x = @param["x"] -> float16[n]
  %1 = @literal(-0.125) -> float16[]
  %2 = multibroadcast[out_lens=[n]](%1) -> float16[n]
  %3 = mul(%x, %2) -> float16[n]
  @return(%3)""",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float32[2, 2]
  %0 = @literal(3.0, 10.0) -> float32[2]
  %c = multibroadcast[out_lens=[2, 2]](%0)
  %1 = div(%x, %c)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = @literal(0.33333334, 0.1) -> float32[2]
  %2 = multibroadcast[out_lens=[2, 2]](%1) -> float32[2, 2]
  %3 = mul(%x, %2) -> float32[2, 2]
  @return(%3)""",
    ),
    (
        "square",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(2.0) -> float32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = pow(%x, %c)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = mul(%x, %x) -> float32[2]
  @return(%1)""",
    ),
    (
        "zeroth-power",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0) -> float32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = pow(%x, %c)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(1.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  @return(%2)""",
    ),
    (
        "root-from-power",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.5) -> float32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = @literal(-0.5) -> float32[]
  %d = multibroadcast[out_lens=[2]](%1)
  %2 = pow(%x, %c)
  %3 = pow(%x, %d)
  @return(%2, %3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = sqrt(%x) -> float32[2]
  %2 = rsqrt(%x) -> float32[2]
  @return(%1, %2)""",
    ),
    (
        "reciprocal-of-root",
        """\
  %x = @param["x"] -> float32[2]
  %1 = sqrt(%x)
  %2 = recip(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = rsqrt(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "divide-by-root",
        """\
  %x = @param["x"] -> float32[2, 1]
  %y = @param["y"] -> float32[2, 3]
  %1 = sqrt(%x)
  %2 = multibroadcast[out_lens=[2, 3]](%1)
  %3 = div(%y, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 1]
  %y = @param["y"] -> float32[2, 3]
  %1 = rsqrt(%x) -> float32[2, 1]
  %2 = multibroadcast[out_lens=[2, 3]](%1) -> float32[2, 3]
  %3 = mul(%y, %2) -> float32[2, 3]
  @return(%3)""",
    ),
    (
        "logarithm-of-power",
        """\
  %x = @param["x"] -> float32[2]
  %1 = exp(%x)
  %2 = log(%1)
  %3 = neg(%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = neg(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "power-of-logarithm",
        """\
  %x = @param["x"] -> float32[2]
  %0 = abs(%x)
  %1 = log(%0)
  %2 = exp(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = abs(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "squared-difference",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sub(%x, %y)
  %2 = mul(%1, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sqdiff(%x, %y) -> float32[2]
  @return(%1)""",
    ),
    (
        "squared-difference-from-zero",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0, 0.0) -> float32[2]
  %1 = sqdiff(%x, %0)
  %2 = sqdiff(%0, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = mul(%x, %x) -> float32[2]
  %2 = mul(%1, %1) -> float32[2]
  @return(%2)""",
    ),
    (
        "join-bounds",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(0.5, 0.25) -> float32[2]
  %0 = @literal(0.375) -> float32[]
  %d = multibroadcast[out_lens=[2]](%0)
  %1 = max(%x, %c)
  %2 = max(%d, %1)
  %3 = min(%2, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(0.5, 0.375) -> float32[2]
  %2 = max(%x, %1) -> float32[2]
  @return(%2)""",
    ),
    (
        "relu-from-max",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0) -> float32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = max(%c, %x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = relu(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "clip-from-bounds",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(-0.5) -> float32[]
  %low = multibroadcast[out_lens=[2]](%0)
  %1 = @literal(0.75) -> float32[]
  %high = multibroadcast[out_lens=[2]](%1)
  %2 = max(%x, %low)
  %3 = min(%2, %high)
  %4 = min(%high, %x)
  %5 = max(%4, %low)
  %6 = relu(%x)
  %7 = min(%6, %high)
  @return(%3, %5, %7)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(-0.5) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  %3 = @literal(0.75) -> float32[]
  %4 = multibroadcast[out_lens=[2]](%3) -> float32[2]
  %5 = clip(%x, %2, %4) -> float32[2]
  %6 = clip(%x, %2, %4) -> float32[2]
  %7 = @literal(0.0) -> float32[]
  %8 = multibroadcast[out_lens=[2]](%7) -> float32[2]
  %9 = clip(%x, %8, %4) -> float32[2]
  @return(%5, %6, %9)""",
    ),
    (
        "join-clips",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(-0.5) -> float32[]
  %low = multibroadcast[out_lens=[2]](%0)
  %1 = @literal(0.75) -> float32[]
  %high = multibroadcast[out_lens=[2]](%1)
  %2 = relu(%x)
  %3 = clip(%2, %low, %high)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(0.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  %3 = @literal(0.75) -> float32[]
  %4 = multibroadcast[out_lens=[2]](%3) -> float32[2]
  %5 = clip(%x, %2, %4) -> float32[2]
  @return(%5)""",
    ),
    (
        "relu-of-clip",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(-0.5) -> float32[]
  %low = multibroadcast[out_lens=[2]](%0)
  %1 = @literal(0.75) -> float32[]
  %high = multibroadcast[out_lens=[2]](%1)
  %2 = clip(%x, %low, %high)
  %3 = relu(%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(0.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  %3 = @literal(0.75) -> float32[]
  %4 = multibroadcast[out_lens=[2]](%3) -> float32[2]
  %5 = clip(%x, %2, %4) -> float32[2]
  @return(%5)""",
    ),
    (
        "known-choice",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %0 = @literal(true) -> bool[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = where(%c, %x, %y)
  %2 = @literal(false, false) -> bool[2]
  %3 = where(%2, %x, %y)
  %4 = sub(%1, %3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sub(%x, %y) -> float32[2]
  @return(%1)""",
    ),
    (
        "choice-by-negation",
        """\
  %c = @param["c"] -> bool[2]
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = not(%c)
  %2 = where(%1, %x, %y)
  @return(%2)""",
        """\
  %c = @param["c"] -> bool[2]
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = where(%c, %y, %x) -> float32[2]
  @return(%1)""",
    ),
    (
        "push-negation",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = equal(%x, %y)
  %2 = not(%1)
  %3 = not(%2)
  %4 = not(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = not_equal(%x, %y) -> bool[2]
  @return(%1)""",
    ),
    (
        "float-product-with-zero",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0) -> float32[]
  %c = multibroadcast[out_lens=[2]](%0)
  %1 = mul(%x, %c)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(0.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  @return(%2)""",
    ),
    (
        "join-clips",
        """\
  %x = @param["x"] -> int64[2]
  %0 = @literal(-4611686018427387905) -> int64[]
  %1 = @literal(4611686018427387907) -> int64[]
  %2 = @literal(4611686018427387905) -> int64[]
  %low = multibroadcast[out_lens=[2]](%0)
  %high = multibroadcast[out_lens=[2]](%1)
  %less = multibroadcast[out_lens=[2]](%2)
  %3 = clip(%x, %low, %high)
  %4 = clip(%3, %low, %less)
  @return(%4)""",
        """\
  %x = @param["x"] -> int64[2]
  %1 = @literal(-4611686018427387905) -> int64[]
  %2 = multibroadcast[out_lens=[2]](%1) -> int64[2]
  %3 = @literal(4611686018427387905) -> int64[]
  %4 = multibroadcast[out_lens=[2]](%3) -> int64[2]
  %5 = clip(%x, %2, %4) -> int64[2]
  @return(%5)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "known-choice",
        """\
  %x = @param["x"] -> float32[5]
  %c = @param["c"] -> bool[n]
  %m = multibroadcast[out_lens=[5]](%c)
  %1 = where(%m, %x, %x)
  @return(%1)""",
        "whether the operands' extents fit is known only at run time",
    ),
    (
        "product-with-zero",
        """\
  %x = @param["x"] -> float32[2]
  %0 = @literal(0.0, 0.0) -> float32[2]
  %1 = mul(%x, %0)
  @return(%1)""",
        "infinity and NaN times 0 are NaN",
    ),
    (
        "difference-with-itself",
        """\
  %x = @param["x"] -> float32[2]
  %1 = sub(%x, %x)
  @return(%1)""",
        "infinity and NaN minus themselves are NaN",
    ),
    (
        "join-added-constants",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(1.0, 2.0) -> float32[2]
  %1 = add(%x, %c)
  %2 = add(%1, %c)
  @return(%1, %2)""",
        "the sum inside has other users",
    ),
    (
        "join-factors",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(1e+30, 2.0) -> float32[2]
  %1 = mul(%x, %c)
  %2 = mul(%1, %c)
  @return(%2)""",
        "the constants' product is not finite",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float16[2]
  %c = @literal(60000.0, 2.0) -> float16[2]
  %1 = div(%x, %c)
  @return(%1)""",
        "1 / c is not a normal number of the type",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float32[2, 3]
  %c = @literal(127.5) -> float32[1]
  %1 = reduce_max[axes=[1]](%x)
  %2 = neg(%1)
  %3 = multibroadcast[out_lens=[2, 1]](%c)
  %4 = div(%2, %3)
  @return(%4)""",
        "a range is divided to give a scale: a rounding error in the scale would change how its row is rounded",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float32[7]
  %c = @literal(255.0) -> float32[]
  %1 = reduce_max[axes=[0]](%x)
  %2 = reshape[dims=[]](%1)
  %3 = relu(%2)
  %4 = div(%3, %c)
  @return(%4)""",
        "a range is divided to give a scale: a rounding error in the scale would change how its row is rounded",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float32[3, 2]
  %c = @literal(41.0, 3.0) -> float32[2]
  %h = @literal(0.5, 0.5) -> float32[2]
  %0 = multibroadcast[out_lens=[3, 2]](%c)
  %1 = div(%x, %0)
  %2 = transpose[permutation=[1, 0]](%1)
  %3 = transpose[permutation=[1, 0]](%2)
  %4 = multibroadcast[out_lens=[3, 2]](%h)
  %5 = add(%3, %4)
  %6 = floor(%5)
  @return(%6)""",
        "the quotient is rounded or compared: a rounding error would change the result by a whole step",
    ),
    (
        "divide-by-constant",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %c = @literal(41.0, 3.0) -> float32[2]
  %1 = div(%x, %c)
  %2 = div(%1, %y)
  %3 = greater_or_equal(%2, %y)
  @return(%3)""",
        "the quotient is rounded or compared: a rounding error would change the result by a whole step",
    ),
    (
        "relu-out-of-mul",
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, -3.0, 4.0) -> float32[2, 2]
  %1 = dot(%x, %w)
  %2 = relu(%1)
  %3 = mul(%2, %w)
  @return(%3)""",
        "the factor is not positive everywhere",
    ),
    (
        "join-clips",
        """\
  %x = @param["x"] -> float32[2]
  %a = @literal(1.0, 1.0) -> float32[2]
  %b = @literal(0.0, 0.0) -> float32[2]
  %1 = clip(%x, %a, %b)
  %2 = clip(%1, %b, %a)
  @return(%2)""",
        "the bounds cross",
    ),
    (
        "divide-by-root",
        """\
  %x = @param["x"] -> float32[2]
  %1 = sqrt(%x)
  %2 = div(%x, %1)
  @return(%1, %2)""",
        "the root has other users",
    ),
    (
        "divide-by-root",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = sqrt(%x)
  %2 = div(%y, %1)
  %3 = floor(%2)
  @return(%3)""",
        "the quotient is rounded or compared: a rounding error would change the result by a whole step",
    ),
    (
        "absorb-negation",
        """\
  %x = @param["x"] -> int32[3]
  %y = @param["y"] -> int32[3]
  %1 = neg(%x)
  %2 = neg(%y)
  %3 = div(%1, %2)
  @return(%3)""",
        "negating the most negative integer wraps around",
    ),
    (
        "even-function-of-negation",
        """\
  %x = @param["x"] -> uint8[3]
  %1 = neg(%x)
  %2 = abs(%1)
  @return(%2)""",
        "negation of unsigned integers wraps around",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
