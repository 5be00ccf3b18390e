#include "byte_dots.h"

#include <array>
#include <cstring>
#include <utility>

#include <immintrin.h>

#include "byte_tiles.h"

namespace mgx {

namespace {

constexpr int64_t pitch = 64; // row stride of the sums, in elements
constexpr int max_rows = 14;

#define MGX_UNROLLED _Pragma("GCC unroll 32")

// Most rows whose accumulators fit into registers, by the number of vectors of columns.
constexpr int64_t max_height[] = {14, 12, 8, 6};

// Hides a pointer's value from the compiler, which otherwise keeps an address per row and runs out of registers.
template <class P> inline void opaque(P &pointer) { asm("" : "+r"(pointer)); }

template <bool is_signed, int V, int H>
void dots(const uint8_t *left, int64_t step, const int8_t *panel, int64_t depth, int32_t *sums, const int32_t *start) {
    constexpr int bases = (H + 2) / 3; // each row is zero, one or two strides from a base: x86 addressing modes scale by 1 and 2
    const uint8_t *from[bases];
    MGX_UNROLLED
    for (int b = 0; b < bases; ++b)
        from[b] = left + 3 * b * step;
    __m512i acc[H][V];
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            acc[r][v] = _mm512_loadu_si512(start + 16 * v);
    for (int64_t i = 0; i < depth; ++i, panel += 64 * V) {
        __m512i columns[V];
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            columns[v] = _mm512_loadu_si512(panel + 64 * v);
        MGX_UNROLLED
        for (int r = 0; r < H; ++r) {
            int32_t four;
            std::memcpy(&four, from[r / 3] + r % 3 * step, 4);
            __m512i all = _mm512_set1_epi32(four);
            if constexpr (is_signed) all = _mm512_xor_si512(all, _mm512_set1_epi8(char(-128)));
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], all, columns[v]);
        }
        MGX_UNROLLED
        for (int b = 0; b < bases; ++b) {
            from[b] += 4;
            opaque(from[b]);
        }
    }
    MGX_UNROLLED
    for (int r = 0; r < H; ++r, sums += pitch) {
        opaque(sums);
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            _mm512_storeu_si512(sums + 16 * v, acc[r][v]);
    }
}

using Dots = void (*)(const uint8_t *, int64_t, const int8_t *, int64_t, int32_t *, const int32_t *);

template <bool is_signed, int V, size_t... H> constexpr std::array<Dots, max_rows> heights(std::index_sequence<H...>) {
    return {dots<is_signed, V, int(H) + 1>...};
}

template <bool is_signed>
void byte_dots(const uint8_t *left, int64_t step, const int8_t *panel, int64_t depth, int32_t *sums, int64_t rows, int64_t vectors,
        const int32_t *start, const char *, int64_t) {
    static constexpr std::array<Dots, max_rows> table[] = {heights<is_signed, 1>(std::make_index_sequence<max_height[0]>()),
            heights<is_signed, 2>(std::make_index_sequence<max_height[1]>()), heights<is_signed, 3>(std::make_index_sequence<max_height[2]>()),
            heights<is_signed, 4>(std::make_index_sequence<max_height[3]>())};
    const int64_t parts = (rows + max_height[vectors - 1] - 1) / max_height[vectors - 1], low = rows / parts, over = rows % parts;
    for (int64_t i = 0; i < parts; ++i) {
        const int64_t height = low + (i < over);
        table[vectors - 1][size_t(height - 1)](left, step, panel, depth, sums, start);
        left += height * step;
        sums += height * pitch;
    }
}

} // namespace

void *byte_dot_function(const std::string &name) {
    if (name == "mgx_byte_dots_1_unsigned") return reinterpret_cast<void *>(&byte_dots<false>);
    if (name == "mgx_byte_dots_1_signed") return reinterpret_cast<void *>(&byte_dots<true>);
    return nullptr;
}

} // namespace mgx
