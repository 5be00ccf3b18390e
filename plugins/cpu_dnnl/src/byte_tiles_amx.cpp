#include "byte_tiles.h"

#include <algorithm>

#include <immintrin.h>

#include "tile_palette.h"

namespace mgx {

namespace {

constexpr int64_t pitch = 64; // row stride of the sums, in elements
constexpr int64_t tile = 1024; // bytes

void begin_tiles() { _tile_loadconfig(&palette); }
void end_tiles() { _tile_release(); }

enum class Kind { unsigned_bytes, signed_bytes, bfloat16 }; // of the left operand's elements

// Tile registers: 0 to 3 accumulators, 4 and 5 rows of the left operand, 6 and 7 columns of the panel.
#define MGX_PRODUCT(SUMS, LEFT, RIGHT) \
    if constexpr (kind == Kind::bfloat16) \
        _tile_dpbf16ps(SUMS, LEFT, RIGHT); \
    else if constexpr (kind == Kind::signed_bytes) \
        _tile_dpbssd(SUMS, LEFT, RIGHT); \
    else \
        _tile_dpbusd(SUMS, LEFT, RIGHT);

// Multiplies one tile of rows (two if `tall`) by one of columns (two if `broad`).
template <Kind kind, bool tall, bool broad>
inline void block(const uint8_t *left, int64_t step, const int8_t *panel, int64_t panel_step, int64_t depth, int32_t *sums,
        const int32_t *start, const char *prefetch, int64_t ahead) {
    const uint8_t *lower = left + 16 * step;
    _tile_loadd(0, start, 0);
    if constexpr (broad) _tile_loadd(1, start + 16, 0);
    if constexpr (tall) _tile_loadd(2, start, 0);
    if constexpr (tall && broad) _tile_loadd(3, start + 16, 0);
    for (int64_t i = 0; i < depth; ++i) {
        _tile_loadd(6, panel, 64);
        _tile_loadd(4, left, step);
        MGX_PRODUCT(0, 4, 6)
        if constexpr (broad) {
            _tile_loadd(7, panel + tile, 64);
            MGX_PRODUCT(1, 4, 7)
        }
        for (int64_t n = 0; n < ahead; ++n)
            _mm_prefetch(prefetch + 64 * n, _MM_HINT_T1);
        prefetch += 64 * ahead;
        if constexpr (tall) {
            _tile_loadd(5, lower, step);
            MGX_PRODUCT(2, 5, 6)
            if constexpr (broad) { MGX_PRODUCT(3, 5, 7) }
        }
        left += 64;
        lower += 64;
        panel += panel_step;
    }
    _tile_stored(0, sums, 4 * pitch);
    if constexpr (broad) _tile_stored(1, sums + 16, 4 * pitch);
    if constexpr (tall) _tile_stored(2, sums + 16 * pitch, 4 * pitch);
    if constexpr (tall && broad) _tile_stored(3, sums + 16 * pitch + 16, 4 * pitch);
}

template <Kind kind>
void byte_tile(const uint8_t *left, int64_t step, const int8_t *panel, int64_t depth, int32_t *sums, int64_t rows, int64_t tiles,
        const int32_t *start, const char *prefetch, int64_t ahead) {
    for (int64_t c = 0; c < tiles; c += 2) {
        const bool broad = c + 1 < tiles;
        const auto work = rows > 16 ? (broad ? block<kind, true, true> : block<kind, true, false>)
                                    : (broad ? block<kind, false, true> : block<kind, false, false>);
        work(left, step, panel + c * tile, tiles * tile, depth, sums + 16 * c, start + 16 * c, prefetch, ahead);
        prefetch += 64 * ahead * depth;
    }
}

void byte_rows(const uint8_t *left, int64_t step, int64_t count, int64_t bytes, uint8_t *rows, int64_t stride) {
    const int64_t whole = (bytes - 1) / 64 * 64;
    const __mmask64 rest = ~0ull >> (64 - (bytes - whole)), room = ~0ull >> (64 - std::min<int64_t>(64, stride - whole));
    for (; count > 0; --count, left += step, rows += stride) {
        for (int64_t i = 0; i < whole; i += 64)
            _mm512_storeu_si512(rows + i, _mm512_loadu_si512(left + i));
        _mm512_mask_storeu_epi8(rows + whole, room, _mm512_maskz_loadu_epi8(rest, left + whole));
    }
}

} // namespace

void *byte_tile_function(const std::string &name) {
    if (name == "mgx_byte_tiles_1_begin") return reinterpret_cast<void *>(&begin_tiles);
    if (name == "mgx_byte_tiles_1_end") return reinterpret_cast<void *>(&end_tiles);
    if (name == "mgx_byte_tile_1_unsigned") return reinterpret_cast<void *>(&byte_tile<Kind::unsigned_bytes>);
    if (name == "mgx_byte_tile_1_signed") return reinterpret_cast<void *>(&byte_tile<Kind::signed_bytes>);
    if (name == "mgx_byte_tile_1_bfloat16") return reinterpret_cast<void *>(&byte_tile<Kind::bfloat16>);
    if (name == "mgx_byte_rows_1") return reinterpret_cast<void *>(&byte_rows);
    return nullptr;
}

} // namespace mgx
