"""The prelude and sample kernels, compiled with every installed compiler."""

from __future__ import annotations

import pytest

from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.compiler import CompileError, wave_of
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.compile.nvrtc import Nvrtc
from mgx_gpu_hip.compile.offline import OfflineClang

AMD = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"]
EM_AMDGPU, EM_CUDA, ELFOSABI_AMDGPU_HSA = 0xE0, 0xBE, 64

SOFTMAX = """KERNEL(256) softmax(const half_t* x, half_t* y, u32 cols) {
  SHARED(float, scratch, [32]);
  x += (u64)blockIdx.x * cols, y += (u64)blockIdx.x * cols;
  float most = Max::id<float>(), sum = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) most = m::max(most, to_f(x[i]));
  most = block_reduce<Max>(most, scratch);
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) sum += fast::exp(to_f(x[i]) - most);
  sum = 1 / block_reduce<Sum>(sum, scratch);
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) y[i] = to_h(fast::exp(to_f(x[i]) - most) * sum);
}"""
GEMM = """template <class T> DEV void tile(const T* a, const T* b, T* c, u32 n, u32 k) {
  SHARED(T, sa, [16][24]); SHARED(T, sb, [16][24]); SHARED(T, scratch, [256]);
  frag_a<T> fa; frag_b<T> fb; frag_c sum; frag_fill(sum, 0.f);
  u32 l = lane_id();
  for (u32 i = 0; i < k; i += 16) {
    if (l < 32) { async_copy<16>(&sa[l / 2][l % 2 * 8], a + l / 2 * k + i + l % 2 * 8);
      async_copy<16>(&sb[l / 2][l % 2 * 8], b + (i + l / 2) * n + l % 2 * 8); }
    async_commit(); async_wait<0>(); __syncthreads();
    frag_load_a_shared(fa, &sa[0][0], 24); frag_load_b_shared(fb, &sb[0][0], 24); frag_mma(sum, fa, fb);
      frag_load_bt(fb, b, n); frag_mma(sum, fa, fb);
    __syncthreads();
  }
  frag_c_to_a(fa, sum, scratch); frag_mma(sum, fa, fb); sum.x[0] = frag_row_reduce<Max>(sum.x[0]);
  frag_store(sum, c, n);
}
KERNEL(64) gemm_half(const half_t* a, const half_t* b, half_t* c, u32 n, u32 k) { tile(a, b, c, n, k); }
KERNEL(64) gemm_bf16(const bf16_t* a, const bf16_t* b, bf16_t* c, u32 n, u32 k) { tile(a, b, c, n, k); }"""
EVERY_FUNCTION = """template <class F> DEV void each(F* y, F a, F b) {
  F r[] = {m::exp(a), m::exp2(a), m::log(a), m::log2(a), m::expm1(a), m::log1p(a), m::sin(a), m::cos(a),
           m::tan(a), m::asin(a), m::acos(a), m::atan(a), m::sinh(a), m::cosh(a), m::tanh(a), m::asinh(a),
           m::acosh(a), m::atanh(a), m::erf(a), m::pow(a, b), m::mod(a, b), m::fmod(a, b), m::min(a, b),
           m::max(a, b), m::sign(a), m::floor(a), m::ceil(a), m::round(a), m::trunc(a), m::sqrt(a), m::rsqrt(a),
           m::abs(a), m::fma(a, b, a), m::copysign(a, b), m::div(a, b), (F)m::isnan(a), (F)m::isinf(b)};
  for (int i = 0; i < sizeof r / sizeof *r; ++i) y[i] = r[i];
}
KERNEL(256) functions(float* f, double* d, i64* q) {
  each(f, f[50], f[51]); each(d, d[50], d[51]);
  f[52] = fast::exp(f[53]) + fast::log(f[53]) + fast::tanh(f[53]) + fast::erf(f[53]) + fast::sigmoid(f[53]);
  f[55] = fast::div(f[53], f[54]);
  q[0] = m::div(q[1], q[2]) + m::mod(q[1], q[2]) + m::pow(q[1], q[2]) + m::shift_left(q[1], q[2]) + m::shift_right(q[1], q[2]);
  q[3] = m::abs(q[1]);
}
KERNEL(256) types(float* f, double* d, i64* q, i32* i, half_t* h, bf16_t* b, f8e4m3_t* e, f8e5m2z_t* z, bool* t) {
  h[0] = convert<half_t>(f[3]), b[0] = convert<bf16_t>(h[1]), e[0] = convert<f8e4m3_t>(b[1]),
    z[0] = convert<f8e5m2z_t>(e[1]), t[0] = convert<bool>(z[1]);
  q[1] = convert<i64>(f[3]) + convert<u64>(d[3]) + convert<i8>(h[2]);
  f[6] = wave_xor(f[7], 3) + wave_down(f[7], 1) + wave_up(f[7], 1) + wave_get(f[7], 5);
  f[9] = (float)wave_ballot(f[1] > 0) + bit_count(3);
  d[6] = wave_xor(d[7], 3) + wave_scan<Sum>(d[1]), h[6] = wave_xor(h[7], 1), q[6] = wave_reduce<Max>(q[5]);
  SHARED_DYNAMIC(float, s); s[threadIdx.x] = f[threadIdx.x]; __syncthreads(); f[8] = s[3]; wave_sync();
    __threadfence(); grid_wait(); grid_done();
  atomic_add(f, 1.f), atomic_max(f, 1.f), atomic_add(d, 1.0), atomic_add(q, (i64)1), atomic_max(i, 1),
    atomic_min(i, 1), atomic_add(h, to_h(1.f)), atomic_mul(b, to_b(1.f));
  stv(f + 12, ldv<float, 4>(f + 16)), stv(h + 8, ldv<half_t, 8>(h + 16)), stv(h + 8, ldv<half_t, 2>(h + 16)),
    i[3] = dot4(i[4], i[5], i[6]);
}"""
SAMPLES = {"softmax": SOFTMAX, "gemm": GEMM, "everything": EVERY_FUNCTION}


def compiler(kind):
    try:
        return kind()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc(arch, sample):
    image = compiler(Nvrtc).compile(SAMPLES[sample], (), arch)
    assert image[:4] == b"\x7fELF" and image[18] == EM_CUDA
    for name in {"softmax": ["softmax"], "gemm": ["gemm_half", "gemm_bf16"], "everything": ["functions", "types"]}[
        sample
    ]:
        assert name.encode() in image


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("arch", AMD)
def test_offline_clang(arch, sample):
    image = compiler(OfflineClang).compile(SAMPLES[sample], (), arch)
    assert image[:4] == b"\x7fELF" and image[18] == EM_AMDGPU and image[7] == ELFOSABI_AMDGPU_HSA
    assert f"amdgcn-amd-amdhsa--{arch}".encode() in image  # the target named in the kernels' metadata


def test_nvrtc_reports_errors_with_their_location():
    with pytest.raises(CompileError, match=r"(?s)NVRTC .* for sm_90: kernels.hip\(2\): error.*nope"):
        compiler(Nvrtc).compile("KERNEL(64) k(float* x) {\n  x[0] = nope;\n}", (), "sm_90")


def test_the_host_compiles_every_sample():
    for wave in (32, 64):
        for text in SAMPLES.values():
            image = compiler_for(f"host{wave}").compile(text, (), f"host{wave}")
            assert image[:4] == b"\x7fELF"
            assert b"libstdc++" not in image  # which linking with it would spend most of the time on


def test_architectures():
    assert [wave_of(a) for a in (*AMD, "sm_90", "host64")] == [64, 64, 64, 32, 32, 32, 64]
    with pytest.raises(DeviceError, match=r"an architecture must be gfx.., sm_.., host32 or host64, got 'mips'"):
        compiler_for("mips")


def test_missing_parts_are_named(monkeypatch):
    monkeypatch.setenv("MGX_NVRTC_LIBRARY", "/nowhere/libnvrtc.so")
    with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvrtc"):
        Nvrtc()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("MGX_CLANG", raising=False)
    with pytest.raises(DeviceError, match="pip install ziglang"):
        OfflineClang()
