// Matrix products with packed weights, tiled into blocks of rows and groups of panels, with the most common epilogues.
// Included after product_tile_loop.h, once per instruction set, with MGX_ISA and MGX_ADD_PRODUCTS.
#include "loops.h"

namespace mgx {

namespace {

// The loop's arguments, in the order in which `jit/native_gemm.py` writes them.  Buffers: the left matrix; the full panels; the
// last panel if it is partial; then those that `out` and `terms` index.
struct ProductNumbers {
    int64_t m, n, k, lda, depth, rows, group, panels, blocks, groups, near, ahead, rows_first, lines, whole, ragged, narrow, bfloat16;
    int64_t out, out_step;
    ProductEpilogue epilogue;
    struct {
        int64_t buffer, step; // index of the buffer, row stride
    } terms[most_terms];
};

// Applies the epilogue to a vector of sums: adds the terms and clamps.  NaN is preserved, since its comparisons are false.
template <int before, bool paired, int bounds, int after, class Load>
[[gnu::always_inline]] inline Floats finished(Floats sum, Load term, Floats low, Floats high) {
    MGX_UNROLLED
    for (int t = 0; t < (paired ? before - 2 : before); ++t)
        sum += term(t);
    if constexpr (paired) sum += term(before - 2) + term(before - 1);
    if constexpr (bounds > 0) sum = larger(low, sum);
    if constexpr (bounds > 1) sum = smaller(high, sum);
    MGX_UNROLLED
    for (int t = before; t < before + after; ++t)
        sum += term(t);
    return sum;
}

// Applies the epilogue to `count` rows of sums, `pitch` apart, and stores them to the result.
template <int before, bool paired, int bounds, int after>
void finish(const ProductNumbers &p, const float *sums, int64_t pitch, float *out, Terms terms, int64_t count, int64_t columns) {
    const Floats low = as_floats(p.epilogue.low), high = as_floats(p.epilogue.high);
    const int64_t whole = columns - columns % lanes;
    const int64_t left = columns - whole;
    for (int64_t r = 0; r < count; ++r) {
        auto some = [&](int64_t j) __attribute__((always_inline)) {
            auto term = [&](int t) __attribute__((always_inline)) { return load(terms.at[t] + j); };
            store(out + j, finished<before, paired, bounds, after>(load(sums + j), term, low, high));
        };
        if (columns == width) {
            some(0);
            some(lanes);
        } else {
            for (int64_t j = 0; j < whole; j += lanes)
                some(j);
            if (whole < columns) {
                auto term = [&](int t) __attribute__((always_inline)) { return load_some(terms.at[t] + whole, left); };
                store_some(out + whole, finished<before, paired, bounds, after>(load(sums + whole), term, low, high), left);
            }
        }
        sums += pitch;
        out += p.out_step;
        MGX_UNROLLED
        for (int t = 0; t < before + after; ++t)
            terms.at[t] += terms.step[t];
    }
}

using Finish = void (*)(const ProductNumbers &, const float *, int64_t, float *, Terms, int64_t, int64_t);

template <int before, bool paired = false> constexpr std::array<Finish, 5> finishes() {
    return {finish<before, paired, 0, 0>, finish<before, paired, 1, 0>, finish<before, paired, 2, 0>, finish<before, paired, 1, 1>,
            finish<before, paired, 2, 1>};
}

// Divides the rows of a block among tiles whose heights differ by at most one row: a remainder tile of few rows would have too few
// accumulators to hide the latency of additions.
struct TileHeights {
    int64_t tiles, low, over;
    explicit TileHeights(int64_t rows) : tiles((rows + MGX_TALL - 1) / MGX_TALL), low(rows / tiles), over(rows % tiles) {}
    int64_t begin(int64_t t) const { return t * low + (t < over ? t : over); }
    int64_t rows(int64_t t) const { return low + (t < over); }
};

// A work item: the product of one block of rows and one group of panels.
template <class Weight, int most> struct Item {
    const ProductNumbers &p;
    void *const *buffers;
    float *sums;
    Finish finish;

    void run(int64_t block, int64_t group) const {
        const int64_t row0 = block * p.rows, panel0 = group * p.group;
        const int64_t rows = std::min(p.rows, p.m - row0), panels = std::min(p.group, p.panels - panel0);
        const TileHeights heights(rows);
        const float *left = static_cast<const float *>(buffers[0]) + row0 * p.lda;
        if (abreast<1> > 1 && p.m <= few) {
            multiply_few_rows(left, row0, rows, panel0, panels);
            return;
        }
        if (!p.whole) {
            multiply_by_depth(left, heights, row0, rows, panel0, panels);
            return;
        }
        auto tile = [&](int64_t t, int64_t number) {
            const int64_t begin = heights.begin(t), count = heights.rows(t), column0 = number * width;
            const Weight *weights = panel(number);
            const int64_t columns = std::min(width, p.n - column0), vectors = p.narrow && columns < width ? 1 : 2;
            const float *rows_begin = left + begin * p.lda;
            const char *next = next_line(weights + p.k * width, weights, p.k, t);
            if (columns == vectors * lanes) {
                const Terms added = terms(row0 + begin, column0);
                const Ends ends {result(row0 + begin, column0), p.out_step, false, &p.epilogue, &added};
                run_of<Weight, most>(count, vectors)(rows_begin, p.lda, weights, p.k, next, p.ahead, ends);
            } else {
                product_tile<Weight, most>(rows_begin, p.lda, weights, p.k, sums, width, count, vectors, 0, next, p.ahead);
                finish_at(sums, width, row0 + begin, count, column0, columns);
            }
        };
        if (p.near)
            for (int64_t t = 0; t < heights.tiles; ++t) {
                if (p.lines) prefetch_results(row0 + heights.begin(t + 1), heights.low);
                for (int64_t i = 0; i < panels; ++i)
                    tile(t, panel0 + i);
            }
        else
            for (int64_t i = 0; i < panels; ++i)
                for (int64_t t = 0; t < heights.tiles; ++t)
                    tile(t, panel0 + i);
    }

private:
    const Weight *panel(int64_t number) const {
        if (p.ragged && number == p.panels - 1) return static_cast<const Weight *>(buffers[2]);
        return static_cast<const Weight *>(buffers[1]) + number * p.k * width;
    }

    // Returns the address from which tile t prefetches: its share of the next panel, or the current panel once the next one is
    // completely prefetched.
    const char *next_line(const Weight *following, const Weight *weights, int64_t depth, int64_t t) const {
        const int64_t done = t * depth * p.ahead * (64 / 4), bytes = depth * width * int64_t(sizeof(Weight));
        return done < bytes ? reinterpret_cast<const char *>(following) + done : reinterpret_cast<const char *>(weights);
    }

    // Prefetches the cache lines of result rows for writing, since stores that miss the cache would stall.
    void prefetch_results(int64_t row, int64_t count) const {
        for (int64_t r = 0; r < count; ++r)
            for (int64_t l = 0; l < p.lines; ++l)
                __builtin_prefetch(reinterpret_cast<const char *>(result(row + r, 0)) + 64 * l, 1, 3);
    }

    // Multiplies few rows with several panels at a time; the sums of the whole group are kept in scratch memory.
    void multiply_few_rows(const float *left, int64_t row0, int64_t rows, int64_t panel0, int64_t panels) const {
        const int64_t pitch = p.group * width, full = std::min(panels, p.panels - p.ragged - panel0);
        product_panels<Weight>(left, p.lda, panel(panel0), p.k * width, p.k, sums, pitch, rows, full);
        if (full < panels)
            product_panels<Weight>(left, p.lda, panel(panel0 + full), 0, p.k, sums + full * width, pitch, rows, 1);
        const int64_t column0 = panel0 * width;
        finish_at(sums, pitch, row0, rows, column0, std::min(panels * width, p.n - column0));
    }

    // Blocks the depth (k); the partial sums of all rows and panels are kept in scratch memory.
    void multiply_by_depth(const float *left, const TileHeights &heights, int64_t row0, int64_t rows, int64_t panel0,
            int64_t panels) const {
        const int64_t pitch = p.group * width;
        for (int64_t k0 = 0; k0 < p.k; k0 += p.depth) {
            const int64_t depth = std::min(p.depth, p.k - k0);
            for (int64_t i = 0; i < panels; ++i) {
                const Weight *weights = panel(panel0 + i) + k0 * width;
                for (int64_t t = 0; t < heights.tiles; ++t) {
                    const int64_t begin = heights.begin(t);
                    product_tile<Weight, most>(left + begin * p.lda + k0, p.lda, weights, depth, sums + i * width + begin * pitch,
                            pitch, heights.rows(t), 2, k0 != 0, next_line(weights + p.k * width, weights, depth, t), p.ahead);
                }
            }
        }
        const int64_t column0 = panel0 * width;
        finish_at(sums, pitch, row0, rows, column0, std::min(panels * width, p.n - column0));
    }

    void finish_at(const float *from, int64_t pitch, int64_t row, int64_t count, int64_t column, int64_t columns) const {
        finish(p, from, pitch, result(row, column), terms(row, column), count, columns);
    }

    float *result(int64_t row, int64_t column) const { return static_cast<float *>(buffers[p.out]) + row * p.out_step + column; }

    Terms terms(int64_t row, int64_t column) const {
        Terms terms {};
        for (int64_t t = 0; t < p.epilogue.before + p.epilogue.after; ++t) {
            terms.step[t] = p.terms[t].step;
            terms.at[t] = static_cast<const float *>(buffers[p.terms[t].buffer]) + row * p.terms[t].step + column;
        }
        return terms;
    }
};

template <class Weight, int most> void items(const ProductNumbers &p, void *const *buffers, int64_t begin, int64_t end, void *scratch) {
    static constexpr std::array<std::array<Finish, 5>, most_terms + 2> table {
            finishes<0>(), finishes<1>(), finishes<2>(), finishes<3>(), finishes<2, true>(), finishes<3, true>()};
    const ProductEpilogue &epilogue = p.epilogue;
    const Finish finish = table[epilogue.before + 2 * epilogue.paired][epilogue.bounds + 2 * epilogue.after];
    const Item<Weight, most> item {p, buffers, static_cast<float *>(scratch), finish};
    for (int64_t i = begin; i < end; ++i) { // by default the row block varies fastest, so that each thread reads different weights
        if (p.rows_first)
            item.run(i / p.groups, i % p.groups);
        else
            item.run(i % p.blocks, i / p.blocks);
    }
}

void packed_product(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const auto &p = *reinterpret_cast<const ProductNumbers *>(args);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); // DAZ and FTZ: operations on denormals take 100 times longer
    if (p.bfloat16)
        items<uint16_t, few>(p, buffers, begin, end, scratch);
    else
        items<float, MGX_TALL>(p, buffers, begin, end, scratch);
    _mm_setcsr(mode);
}

} // namespace

void MGX_ADD_PRODUCTS(NamedLoops &loops) { loops["packed_product_" MGX_ISA] = packed_product; }

} // namespace mgx
