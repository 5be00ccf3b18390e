// Processor features, and measured peak rates of arithmetic and memory.
#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.h>
#include <pybind11/stl.h>

#include "memory.h"
#include "team.h"
#include "tile_palette.h"

namespace py = pybind11;

namespace mgx {

namespace {

struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf leaf(unsigned number, unsigned part) {
    Leaf r;
    __get_cpuid_count(number, part, &r.a, &r.b, &r.c, &r.d);
    return r;
}

// Requests permission for AMX tile data from Linux.  Every process must do so before its first AMX instruction, including one
// that only loads compiled code.
bool request_tiles() {
    static const bool granted = [] {
        constexpr long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
        return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
    }();
    return granted;
}

// Returns the register states that the operating system saves (XCR0), without tiles (bits 17 and 18) if permission was denied.
uint64_t enabled_states() {
    constexpr uint64_t tiles = 0x60000;
    unsigned low = 0, high = 0;
    if (!(leaf(1, 0).c & (1u << 27))) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const uint64_t state = (static_cast<uint64_t>(high) << 32) | low;
    return (state & tiles) && !request_tiles() ? state & ~tiles : state;
}

std::vector<std::string> read_features() {
    Leaf one = leaf(1, 0), seven = leaf(7, 0), more = leaf(7, 1), extended = leaf(0x80000001, 0);
    uint64_t state = enabled_states();
    bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6, tiles = (state & 0x60000) == 0x60000;
    std::vector<std::string> found;
    auto add = [&](bool has, const char *name) {
        if (has) found.emplace_back(name);
    };
    auto bit = [](unsigned word, int n) { return ((word >> n) & 1u) != 0; };
    add(bit(one.c, 19), "sse4_1");
    add(bit(one.c, 22), "movbe");
    add(bit(seven.b, 3), "bmi1");
    add(bit(seven.b, 8), "bmi2");
    add(bit(extended.c, 5), "lzcnt");
    add(ymm && bit(one.c, 28), "avx");
    add(ymm && bit(one.c, 12), "fma");
    add(ymm && bit(one.c, 29), "f16c");
    add(ymm && bit(seven.b, 5), "avx2");
    add(ymm && bit(more.a, 4), "avx_vnni");
    add(zmm && bit(seven.b, 16), "avx512f");
    add(zmm && bit(seven.b, 17), "avx512dq");
    add(zmm && bit(seven.b, 28), "avx512cd");
    add(zmm && bit(seven.b, 30), "avx512bw");
    add(zmm && bit(seven.b, 31), "avx512vl");
    add(zmm && bit(seven.c, 1), "avx512_vbmi");
    add(zmm && bit(seven.c, 11), "avx512_vnni");
    add(zmm && bit(more.a, 5), "avx512_bf16");
    add(zmm && bit(seven.d, 23), "avx512_fp16");
    add(tiles && bit(seven.d, 24), "amx_tile");
    add(tiles && bit(seven.d, 25), "amx_int8");
    add(tiles && bit(seven.d, 22), "amx_bf16");
    return found;
}

// Returns the processor's features, read once: on a virtual machine, the host answers each `cpuid`, which takes microseconds.
const std::vector<std::string> &features() {
    static const std::vector<std::string> found = read_features();
    return found;
}

// True if oneDNN uses VNNI; its maximum ISA may be limited to less than the processor supports.
bool uses_vnni() {
    const int isa = dnnl_get_effective_cpu_isa();
    auto has = [&](int wanted) { return (isa & wanted) == wanted; };
    return has(dnnl_cpu_isa_avx2_vnni) || has(dnnl_cpu_isa_avx512_core_vnni);
}

// True if oneDNN uses AVX2-VNNI rather than AVX-512 VNNI.
bool uses_avx2_vnni() {
    const int wide = dnnl_cpu_isa_avx512_core_vnni;
    return uses_vnni() && (dnnl_get_effective_cpu_isa() & wide) != wide;
}

// True if AMX int8 may be used: the processor has it, Linux grants it to the process, and oneDNN's maximum ISA includes it.
bool multiplies_tiles() {
    const auto &list = features();
    const bool has = std::find(list.begin(), list.end(), "amx_int8") != list.end();
    const int wanted = dnnl_cpu_isa_avx512_core_amx;
    return has && (dnnl_get_effective_cpu_isa() & wanted) == wanted;
}

// Returns a fingerprint of everything that compilers and libraries base instruction selection on; equal for equal processors.
std::string processor_key() {
    Leaf zero = leaf(0, 0), one = leaf(1, 0), seven = leaf(7, 0), more = leaf(7, 1), saves = leaf(13, 1);
    Leaf extended = leaf(0x80000001, 0);
    uint64_t state = enabled_states();
    std::string text;
    char word[16];
    for (unsigned value : {zero.b, zero.c, zero.d, one.a, one.c, one.d, seven.b, seven.c, seven.d, more.a, saves.a, extended.c,
                 extended.d, static_cast<unsigned>(state)}) {
        std::snprintf(word, sizeof word, "%08x", value);
        text += word;
    }
    return text;
}

std::map<std::string, int64_t> cache_sizes() {
    auto value = [](int name) { return std::max<int64_t>(0, sysconf(name)); };
    return {{"l1d", value(_SC_LEVEL1_DCACHE_SIZE)}, {"l2", value(_SC_LEVEL2_CACHE_SIZE)},
            {"l3", value(_SC_LEVEL3_CACHE_SIZE)}, {"line", value(_SC_LEVEL1_DCACHE_LINESIZE)}};
}

std::string model_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown";
}

constexpr int64_t rounds = 1000000;
constexpr int chains = 12; // independent accumulators: enough to hide the latency of two FMA units

// Twelve accumulators, each updated by one instruction per round; the empty asm keeps them live in registers.
#define MGX_TWELVE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define MGX_SUM(i) auto s##i = start;
#define MGX_LOOP(CONSTRAINT, STEP) \
    for (int64_t n = 0; n < rounds; ++n) { \
        MGX_TWELVE(STEP) \
        __asm__ volatile("" \
                         : "+" CONSTRAINT(s0), "+" CONSTRAINT(s1), "+" CONSTRAINT(s2), "+" CONSTRAINT(s3), \
                         "+" CONSTRAINT(s4), "+" CONSTRAINT(s5), "+" CONSTRAINT(s6), "+" CONSTRAINT(s7), \
                         "+" CONSTRAINT(s8), "+" CONSTRAINT(s9), "+" CONSTRAINT(s10), "+" CONSTRAINT(s11)); \
    }

// Each returns the number of operations executed.
__attribute__((target("avx512f"))) double fma_512() {
    const __m512 start = _mm512_set1_ps(1.0f), x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    MGX_TWELVE(MGX_SUM)
#define MGX_STEP(i) s##i = _mm512_fmadd_ps(s##i, x, y);
    MGX_LOOP("v", MGX_STEP)
#undef MGX_STEP
    return 2.0 * 16 * chains * rounds;
}

__attribute__((target("avx2,fma"))) double fma_256() {
    const __m256 start = _mm256_set1_ps(1.0f), x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    MGX_TWELVE(MGX_SUM)
#define MGX_STEP(i) s##i = _mm256_fmadd_ps(s##i, x, y);
    MGX_LOOP("x", MGX_STEP)
#undef MGX_STEP
    return 2.0 * 8 * chains * rounds;
}

__attribute__((target("avx512f,avx512bf16"))) double dot_bf16() {
    const __m512 start = _mm512_setzero_ps();
    const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
    MGX_TWELVE(MGX_SUM)
#define MGX_STEP(i) s##i = _mm512_dpbf16_ps(s##i, x, x);
    MGX_LOOP("v", MGX_STEP)
#undef MGX_STEP
    return 4.0 * 16 * chains * rounds;
}

__attribute__((target("avx512f,avx512vnni"))) double dot_int8() {
    const __m512i start = _mm512_setzero_si512(), x = _mm512_set1_epi8(1);
    MGX_TWELVE(MGX_SUM)
#define MGX_STEP(i) s##i = _mm512_dpbusd_epi32(s##i, x, x);
    MGX_LOOP("v", MGX_STEP)
#undef MGX_STEP
    return 8.0 * 16 * chains * rounds;
}

// Tile products into four accumulators from two by two operands; OPERATIONS: depth of a tile for the element type.
#define MGX_TILES(PRODUCT, OPERATIONS) \
    _tile_loadconfig(&palette); \
    _tile_zero(0); \
    _tile_zero(1); \
    _tile_zero(2); \
    _tile_zero(3); \
    _tile_zero(4); \
    _tile_zero(5); \
    _tile_zero(6); \
    _tile_zero(7); \
    for (int64_t n = 0; n < rounds / 8; ++n) { \
        PRODUCT(0, 4, 6); \
        PRODUCT(1, 4, 7); \
        PRODUCT(2, 5, 6); \
        PRODUCT(3, 5, 7); \
    } \
    _tile_release(); \
    return 2.0 * 16 * 16 * OPERATIONS * 4 * (rounds / 8);

__attribute__((target("amx-tile,amx-bf16"))) double tiles_bf16() { MGX_TILES(_tile_dpbf16ps, 32) }

__attribute__((target("amx-tile,amx-int8"))) double tiles_int8() { MGX_TILES(_tile_dpbssd, 64) }

__attribute__((target("avx2"))) void read_all(const char *data, size_t bytes) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t at = 0; at + 128 <= bytes; at += 128) {
        auto *line = reinterpret_cast<const __m256i *>(data + at);
        a = _mm256_or_si256(a, _mm256_load_si256(line));
        b = _mm256_or_si256(b, _mm256_load_si256(line + 1));
        c = _mm256_or_si256(c, _mm256_load_si256(line + 2));
        d = _mm256_or_si256(d, _mm256_load_si256(line + 3));
    }
    __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the best of a few measurements in billions of operations per second, over all threads.
double best_rate(double (*work)(), int threads) {
    double best = 0;
    for (int repeat = 0; repeat < 7; ++repeat) {
        std::vector<double> done(static_cast<size_t>(threads));
        auto start = std::chrono::steady_clock::now();
        in_parts(threads, [&](int me) { done[static_cast<size_t>(me)] = work(); });
        best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / seconds_since(start) / 1e9);
    }
    return best;
}

// Measures GFLOP/s (GOP/s for int8) of multiply-adds on registers; 0 if the processor lacks the instructions.
double peak_rate(const std::string &type, int threads) {
    auto list = features();
    auto has = [&](const char *name) { return std::find(list.begin(), list.end(), name) != list.end(); };
    if (type == "float32") return has("avx512f") ? best_rate(fma_512, threads) : has("avx2") ? best_rate(fma_256, threads) : 0;
    bool tiles = has("amx_tile");
    if (type == "bfloat16" && tiles && has("amx_bf16")) return best_rate(tiles_bf16, threads);
    if (type == "int8" && tiles && has("amx_int8")) return best_rate(tiles_int8, threads);
    if (type == "bfloat16") return has("avx512_bf16") ? best_rate(dot_bf16, threads) : 0;
    if (type == "int8") return has("avx512_vnni") ? best_rate(dot_int8, threads) : 0;
    throw Failure(Fault::parameter, "peak rates can be measured for float32, bfloat16 and int8, got " + type);
}

// Measures the GB/s of repeatedly reading a buffer of this size, each thread its own part.
double read_rate(size_t bytes, int threads) {
    auto parts = static_cast<size_t>(std::max(threads, 1));
    size_t part = std::max<size_t>(bytes / parts / 128, 1) * 128;
    AlignedBuffer buffer(part * parts);
    buffer.touch();
    auto passes = static_cast<int>(std::max<size_t>(1, (size_t {1} << 26) / buffer.size()));
    double best = 0;
    for (int repeat = 0; repeat < 7; ++repeat) {
        auto start = std::chrono::steady_clock::now();
        in_parts(static_cast<int>(parts), [&](int me) {
            for (int pass = 0; pass < passes; ++pass)
                read_all(buffer.data() + part * static_cast<size_t>(me), part);
        });
        best = std::max(best, static_cast<double>(passes) * static_cast<double>(buffer.size()) / seconds_since(start) / 1e9);
    }
    return best;
}

} // namespace

void bind_machine(py::module_ &module) {
    module.def("cpu_features", &features);
    module.def("cpu_key", &processor_key);
    module.def("onednn_sums_bytes", &uses_vnni);
    module.def("onednn_sums_bytes_by_avx2", &uses_avx2_vnni);
    module.def("multiplies_tiles", &multiplies_tiles);
    module.def("cpu_model", &model_name);
    module.def("cache_sizes", &cache_sizes);
    module.def("peak_gflops", &peak_rate, py::arg("dtype"), py::arg("threads"), py::call_guard<py::gil_scoped_release>());
    module.def("read_gbps", &read_rate, py::arg("nbytes"), py::arg("threads"), py::call_guard<py::gil_scoped_release>());
}

} // namespace mgx
