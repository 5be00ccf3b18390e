// Byte lookup tables with AVX2 shuffles, 32 bytes at a time.
#include <immintrin.h>

#include "byte_table.h"

namespace mgx {

namespace {

// A 256-byte table as parts of 16 bytes, one shuffle each.  Every part but the first of each half is XORed with the one before,
// so that the XOR of all parts up to a byte's own yields its entry.
struct Table {
    const uint8_t *bytes;
    __m256i part[2][8];

    explicit Table(const uint8_t *from) : bytes(from) {
        for (int half = 0; half < 2; ++half)
            for (int n = 0; n < 8; ++n) {
                auto *at = reinterpret_cast<const __m128i *>(from + 128 * half + 16 * n);
                const __m128i entries = _mm_loadu_si128(at);
                const __m128i delta = n ? _mm_xor_si128(entries, _mm_loadu_si128(at - 1)) : entries;
                part[half][n] = _mm256_broadcastsi128_si256(delta);
            }
    }

    // Shuffles return 0 for negative indices: bytes below a part, and those of the other half.
    __m256i operator()(__m256i x) const {
        const __m256i step = _mm256_set1_epi8(16);
        __m256i low = x, high = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
        __m256i found = _mm256_or_si256(_mm256_shuffle_epi8(part[0][0], low), _mm256_shuffle_epi8(part[1][0], high));
        for (int n = 1; n < 8; ++n) {
            low = _mm256_subs_epi8(low, step);
            high = _mm256_subs_epi8(high, step);
            found = _mm256_xor_si256(found, _mm256_shuffle_epi8(part[0][n], low));
            found = _mm256_xor_si256(found, _mm256_shuffle_epi8(part[1][n], high));
        }
        return found;
    }

    void row(const uint8_t *from, uint8_t *to, int64_t length) const {
        int64_t n = 0;
        for (; n + 32 <= length; n += 32) {
            const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + n));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + n), (*this)(x));
        }
        for (; n < length; ++n)
            to[n] = bytes[from[n]];
    }
};

} // namespace

void add_byte_loops(NamedLoops &loops) { loops["map_bytes"] = &map_bytes<Table>; }

} // namespace mgx
