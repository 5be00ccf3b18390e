// Byte lookup tables held in four registers (AVX-512 VBMI), 64 bytes at a time.
#include <immintrin.h>

#include "byte_table.h"

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

    void row(const uint8_t *from, uint8_t *to, int64_t length) const {
        int64_t n = 0;
        for (; n + 64 <= length; n += 64)
            _mm512_storeu_si512(to + n, (*this)(_mm512_loadu_si512(from + n)));
        if (n < length) {
            const __mmask64 rest = ~__mmask64 {0} >> (64 - (length - n));
            _mm512_mask_storeu_epi8(to + n, rest, (*this)(_mm512_maskz_loadu_epi8(rest, from + n)));
        }
    }
};

} // namespace

void add_byte_loops_vbmi(NamedLoops &loops) { loops["map_bytes_vbmi"] = &map_bytes<Table>; }

} // namespace mgx
