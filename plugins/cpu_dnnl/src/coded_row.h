// Products of one row and 4-bit quantized weights, by byte dot products.
//
// A row is split into units of 128 elements.  Each element is scaled by its unit's maximum to a 24-bit integer, stored as three
// signed bytes, so that products with codes are exact integers.  If the maximum is far above most other elements, their rounding
// errors become a second unit, since the maximum's own code may represent 0.
//
// Included by sources that are compiled once per instruction set, each with a class `Vectors`:
//   lanes, splits             int32 lanes of a vector; whether units may contain several blocks
//   Elements(x, count)        128 elements, zero-padded; `largest` magnitude (NaN or infinity if there is one); `mostly_below`:
//                             more nonzero elements are below a bound than not
//   quantize(unit, x, f)      quantizes the elements times f to integers and bytes, and leaves the rounding errors in `x`
//   compute_sums(unit, point) computes the unit's sums
//   Sums, zero_sums, total    accumulators of 128 / lanes products per lane; their initial value; their sum
//   Codes(from, left)         128 codes from `left` bytes, zero-padded
//   Scales, Points            scales and zero points of a unit, loaded by `Lanes<split>`; `Maxima` tracks the largest
//   accumulate<points, plain> adds the products of a unit and codes; points: blocks have zero points; plain: assumed to be small
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "coded_scales.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t width = 128;  // elements of a unit
constexpr int64_t pieces = 3;   // signed bytes of an element
constexpr int64_t ahead = 1024; // prefetch distance in bytes of codes
constexpr float error_ratio = 128;      // elements smaller than the maximum by this factor would keep only 16 bits
constexpr float max_integer = 8355000; // integer of the maximum: below 127 * (1 + 256 + 65536) even after rounding

// The bytes of 128 elements in the order in which codes are unpacked: even elements, then odd ones.
template <int lanes>
struct alignas(64) CodedUnit {
    int8_t even[pieces][64], odd[pieces][64]; // the lowest byte first
    int32_t sums[lanes]; // of 128 / lanes elements each; multiplied by the negated zero point if all weights share one
    float scale;         // value of an integer 1; NaN if an element is not finite
    int32_t has_errors;  // 1: the rounding errors are in the unit `count` units later
    char rest[120 - 4 * lanes];
};
static_assert(sizeof(CodedUnit<8>) == 512 && sizeof(CodedUnit<16>) == 512, "the plan gives as many bytes");

// Quantizes 128 elements to a unit and leaves the rounding errors in `elements`.
template <class Vectors>
void quantize_unit(CodedUnit<Vectors::lanes> &unit, typename Vectors::Elements &elements, float largest, int64_t point) {
    const float limit = std::max(largest, 0x1p-100f);
    const bool finite = std::isfinite(limit);
    unit.scale = finite ? limit / max_integer : std::numeric_limits<float>::quiet_NaN();
    unit.has_errors = 0;
    Vectors::quantize(unit, elements, finite ? max_integer / limit : 0.0f);
    Vectors::compute_sums(unit, point);
}

// Buffers: x; units, followed by as many for the rounding errors.  Arguments: elements of x, the common zero point (negative: one
// per block), units.  Work items: units.
template <class Vectors>
void coded_units(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const float *x = static_cast<const float *>(buffers[0]);
    auto *units = static_cast<CodedUnit<Vectors::lanes> *>(buffers[1]);
    const int64_t count = args[0], point = args[1], error_offset = args[2];
    for (int64_t u = begin; u < end; ++u) {
        typename Vectors::Elements elements(x + u * width, count - u * width);
        const float largest = elements.largest();
        const bool has_errors = std::isfinite(largest) && elements.mostly_below(largest / error_ratio);
        quantize_unit<Vectors>(units[u], elements, largest, point);
        if (!has_errors) continue;
        units[u].has_errors = 1;
        quantize_unit<Vectors>(units[u + error_offset], elements, elements.largest(), point);
    }
}

template <class Unit>
struct Job {
    const float *a;
    const Unit *units;
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // zero points; null: one for all weights, included in `CodedUnit::sums`
    float *out;
    int64_t elements, depth, blocks, block, row_bytes; // elements: of a; depth: of whole blocks
    int point;

    int64_t count() const { return (depth + width - 1) / width; }
};

// Computes a result like the reference implementation, for elements or weights that may not be finite.
template <class Unit>
float reference_result(const Job<Unit> &job, int64_t row) {
    float sum = 0;
    for (int64_t k = 0; k < job.elements; ++k) {
        const int code = job.codes[row * job.row_bytes + k / 2] >> (k % 2 * 4) & 15;
        const int64_t block = row * job.blocks + k / job.block;
        sum += static_cast<float>(code - (job.points ? job.points[block] : job.point)) * job.scales[block] * job.a[k];
    }
    return sum;
}

// R rows of weights, `stride` rows from each other: R streams in different pages, so that their TLB misses overlap.
// split: units contain several blocks; otherwise blocks contain several units.  plain: no unit has rounding errors, and zero
// points are assumed to be small; if they are not, the rows are recomputed without it.
template <class Vectors, int R, bool split, bool block_points, bool plain>
void dots(const Job<CodedUnit<Vectors::lanes>> &job, int64_t row, int64_t stride) {
    const typename Vectors::template Lanes<split> lanes(job.block);
    const int64_t each = split ? width / job.block : 1, units = job.count();
    const int64_t units_per_block = split ? 1 : job.blocks == 1 ? units : job.block / width; // units of the same block
    typename Vectors::Sums sums[R];
    typename Vectors::Maxima largest;
    for (int r = 0; r < R; ++r)
        sums[r] = Vectors::zero_sums();
    for (int64_t b = 0, u = 0; b < job.blocks; b += each) {
        const int64_t count = std::min(each, job.blocks - b);
        typename Vectors::Scales scales[R];
        typename Vectors::Points points[R] = {};
        for (int r = 0; r < R; ++r) {
            const int64_t at = (row + r * stride) * job.blocks + b;
            scales[r] = lanes.scales(job.scales + at, count);
            largest.add_scales(scales[r]);
            if constexpr (!block_points) continue;
            points[r] = lanes.points(job.points + at, count);
            largest.add_points(points[r]);
        }
        for (const int64_t last = std::min(u + units_per_block, units); u < last; ++u) {
            const auto &x = job.units[u];
            const int64_t left = std::min<int64_t>(64, job.row_bytes - 64 * u);
            for (int r = 0; r < R; ++r) {
                const uint8_t *from = job.codes + (row + r * stride) * job.row_bytes + 64 * u;
                _mm_prefetch(reinterpret_cast<const char *>(from + ahead), _MM_HINT_T0);
                const typename Vectors::Codes codes(from, left);
                sums[r] = Vectors::template accumulate<block_points, plain>(codes, x, scales[r], points[r], sums[r]);
                if (!plain && x.has_errors)
                    sums[r] = Vectors::template accumulate<block_points, plain>(codes, job.units[u + units], scales[r], points[r], sums[r]);
            }
        }
    }
    if constexpr (block_points && plain)
        if (largest.has_large_points()) return dots<Vectors, R, split, block_points, false>(job, row, stride);
    const bool finite = largest.has_finite_weights();
    for (int r = 0; r < R; ++r)
        job.out[row + r * stride] = finite ? Vectors::total(sums[r]) : reference_result(job, row + r * stride);
}

template <class Vectors, bool split, bool block_points, bool plain>
void rows(const Job<CodedUnit<Vectors::lanes>> &job, int64_t begin, int64_t end) {
    const int64_t quarter = (end - begin) / 4;
    for (int64_t n = begin; n < begin + quarter; ++n)
        dots<Vectors, 4, split, block_points, plain>(job, n, quarter);
    for (int64_t n = begin + 4 * quarter; n < end; ++n)
        dots<Vectors, 1, split, block_points, plain>(job, n, 1);
}

template <class Vectors, bool split, bool block_points>
void rows_of(const Job<CodedUnit<Vectors::lanes>> &job, bool plain, int64_t begin, int64_t end) {
    plain ? rows<Vectors, split, block_points, true>(job, begin, end) : rows<Vectors, split, block_points, false>(job, begin, end);
}

// Buffers: a, its units, codes, scales, zero points (optional), out.  Arguments: elements of a, blocks, block size (a multiple of
// 128, with `splits` also 16, 32 or 64; any if there is one block), bytes per row of codes, the common zero point or a negative
// value.  Work items: rows of weights.
template <class Vectors>
void coded_row(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const bool block_points = args[4] < 0;
    using Unit = CodedUnit<Vectors::lanes>;
    const Job<Unit> job {static_cast<const float *>(buffers[0]), static_cast<const Unit *>(buffers[1]),
            static_cast<const uint8_t *>(buffers[2]), static_cast<const float *>(buffers[3]),
            block_points ? static_cast<const uint8_t *>(buffers[4]) : nullptr, static_cast<float *>(buffers[block_points ? 5 : 4]),
            args[0], args[1] * args[2], args[1], args[2], args[3], static_cast<int>(args[4])};
    bool plain = true;
    for (int64_t u = 0; u < job.count(); ++u) {
        plain = plain && !job.units[u].has_errors;
        if (!std::isnan(job.units[u].scale)) continue;
        for (int64_t n = begin; n < end; ++n)
            job.out[n] = reference_result(job, n);
        return;
    }
    if constexpr (Vectors::splits)
        if (job.blocks > 1 && job.block < width) {
            block_points ? rows_of<Vectors, true, true>(job, plain, begin, end) : rows_of<Vectors, true, false>(job, plain, begin, end);
            return;
        }
    block_points ? rows_of<Vectors, false, true>(job, plain, begin, end) : rows_of<Vectors, false, false>(job, plain, begin, end);
}

} // namespace

} // namespace mgx
