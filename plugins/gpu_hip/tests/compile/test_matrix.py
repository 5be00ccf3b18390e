"""Matrix fragments: the lane layout of each instruction, compared with numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulated_device import HostDevice

UNITS = {"mma": (32, 1), "mfma": (64, 2), "wmma": (32, 3), "scalar32": (32, 0), "scalar64": (64, 0)}
TYPES = {"half_t": np.float16, "bf16_t": ml_dtypes.bfloat16}

PRODUCT = """KERNEL(64) k(const {T}* a, const {T}* b, float* c, u32 n, u32 depth) {{
  SHARED({T}, sa, [16][24]); SHARED({T}, sb, [16][24]);
  frag_c sum; frag_fill(sum, 0.f);
  for (u32 k = 0; k < depth; k += 16) {{
    for (u32 e = lane_id(); e < 256; e += WAVE) {{
      sa[e / 16][e % 16] = a[e / 16 * depth + k + e % 16];
      sb[e / 16][e % 16] = {B};
    }}
    __syncthreads();
    frag_a<{T}> fa; frag_b<{T}> fb;
    {LOAD}
    frag_mma(sum, fa, fb);
    __syncthreads();
  }}
  for (u32 i = 0; i < FRAG_C; ++i) c[frag_row(i) * n + frag_col(i)] = sum.x[i];
}}"""
LOADS = {
    "shared": ("b[(k + e / 16) * n + e % 16]", "frag_load_a_shared(fa, sa[0], 24); frag_load_b_shared(fb, sb[0], 24);"),
    "shared transposed": (
        "b[(k + e % 16) * n + e / 16]",
        "frag_load_a_shared(fa, sa[0], 24); frag_load_bt_shared(fb, sb[0], 24);",
    ),
    "any": ("b[(k + e / 16) * n + e % 16]", "frag_load_a(fa, a + k, depth); frag_load_b(fb, b + k * n, n);"),
    "any transposed": ("b[(k + e % 16) * n + e / 16]", "frag_load_a(fa, a + k, depth); frag_load_bt(fb, sb[0], 24);"),
}  # fmt: skip


@pytest.fixture(params=[*UNITS, pytest.param("gpu", marks=pytest.mark.gpu)])
def unit(request):
    if request.param == "gpu":
        return request.getfixturevalue("gpu")
    wave, kind = UNITS[request.param]
    return HostDevice(wave, flags=[f"-DFRAG={kind}"])


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("type", TYPES)
def test_products(unit, rng, type, load):
    b_text, load_text = LOADS[load]
    a, b = (rng.integers(-8, 9, lens).astype(TYPES[type]) for lens in ((16, 48), (48, 16)))
    c = np.zeros((16, 16), np.float32)
    unit.compile(PRODUCT.format(T=type, B=b_text, LOAD=load_text))((1,), (unit.wave,), 0, [a, b, c, 16, 48])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("type", TYPES)
def test_sums_become_operands_and_rows_reduce(unit, rng, type):
    source = f"""KERNEL(64) k(const {type}* a, const {type}* b, const {type}* d, {type}* e, float* most) {{
      SHARED({type}, scratch, [256]);
      frag_a<{type}> fa; frag_b<{type}> fb; frag_c c; frag_fill(c, 0.f);
      frag_load_a(fa, a, 16); frag_load_bt(fb, b, 16); frag_mma(c, fa, fb);
      float row[FRAG_ROWS];
      for (u32 s = 0; s < FRAG_ROWS; ++s) row[s] = -m::inf();
      for (u32 i = 0; i < FRAG_C; ++i) row[frag_slot(i)] = m::max(row[frag_slot(i)], c.x[i]);
      for (u32 s = 0; s < FRAG_ROWS; ++s) most[frag_slot_row(s)] = frag_row_reduce<Max>(row[s]);
      frag_c_to_a(fa, c, scratch);
      frag_load_b(fb, d, 16); frag_fill(c, 1.f); frag_mma(c, fa, fb);
      frag_store(c, e, 16);
    }}"""
    dtype = TYPES[type]
    a, b, d = (rng.integers(-2, 3, (16, 16)).astype(dtype) for _ in range(3))
    e, most = np.zeros((16, 16), dtype), np.zeros(16, np.float32)
    unit.compile(source)((1,), (unit.wave,), 0, [a, b, d, e, most])
    first = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(most, first.max(1))
    np.testing.assert_array_equal(e, (first @ d.astype(np.float32) + 1).astype(dtype))
