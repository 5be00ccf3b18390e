// Bytes by a table that lies in four registers, 64 at a time.
#include <immintrin.h>

#include "loops.h"

namespace mgx {

namespace {

struct Table {
    __m512i part[4];

    explicit Table(const uint8_t *from) {
        for (int n = 0; n < 4; ++n)
            part[n] = _mm512_loadu_si512(from + 64 * n);
    }

    __m512i operator()(__m512i x) const {
        const __m512i low = _mm512_permutex2var_epi8(part[0], x, part[1]);
        const __m512i high = _mm512_permutex2var_epi8(part[2], x, part[3]);
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
    }
};

void map_row(const Table &table, const uint8_t *from, uint8_t *to, int64_t length) {
    int64_t n = 0;
    for (; n + 64 <= length; n += 64)
        _mm512_storeu_si512(to + n, table(_mm512_loadu_si512(from + n)));
    if (n < length) {
        const __mmask64 rest = ~__mmask64 {0} >> (64 - (length - n));
        _mm512_mask_storeu_epi8(to + n, rest, table(_mm512_maskz_loadu_epi8(rest, from + n)));
    }
}

// Operands and numbers as of `map_bytes`.
void map_bytes_vbmi(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const uint8_t *>(buffers[0]);
    auto *out = static_cast<uint8_t *>(buffers[2]);
    const Table table(static_cast<const uint8_t *>(buffers[1]));
    if (args[0] == 0)
        map_row(table, x + begin, out + begin, end - begin);
    else
        for (int64_t row = begin; row < end; ++row)
            map_row(table, x + row * args[1], out + row * args[2], args[0]);
}

} // namespace

void add_byte_loops_vbmi(NamedLoops &loops) { loops["map_bytes_vbmi"] = &map_bytes_vbmi; }

} // namespace mgx
