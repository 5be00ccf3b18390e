// Micro-kernels of matrix products for one instruction set.  Included with MGX_LANES, MGX_TALL (rows of the tallest tile),
// MGX_TILE and MGX_PANELS (names of the functions).  With MGX_PAIRS, "floats" of both operands are pairs of bfloat16 along the depth.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "product_tiles.h"
#include "register_tiles.h"

namespace mgx {

namespace {

constexpr int64_t width = 2 * lanes; // columns of a panel
constexpr int few = 3;               // rows up to which weights are read once, and bfloat16 ones are widened as they are loaded

constexpr int64_t float_terms = 128; // products summed in float before the partial sum is added in double (see DoubleSums)

typedef double Doubles __attribute__((vector_size(MGX_LANES * 8)));

// Accumulators in double for tiles of few rows with AVX2, which has too few registers for several partial sums per result.  Their
// cost is hidden by loading the weights.  Layers on pooled features need the precision: they often compute small differences of
// large sums.
template <int H, int V> struct DoubleSums {
    Doubles whole[H][V] = {};

    void add(const Floats (&sums)[H][V]) {
        for (int r = 0; r < H; ++r)
            for (int v = 0; v < V; ++v)
                whole[r][v] += __builtin_convertvector(sums[r][v], Doubles);
    }

    void read(Floats (&sums)[H][V]) const {
        for (int r = 0; r < H; ++r)
            for (int v = 0; v < V; ++v)
                sums[r][v] = __builtin_convertvector(whole[r][v], Floats);
    }
};

[[gnu::always_inline]] inline void add_terms(Floats &sum, Floats a, Floats b) {
#ifdef MGX_PAIRS
    asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
    add_product(sum, a, b);
#endif
}

template <int H, int V> [[gnu::always_inline]] inline void store_rows(const Floats (&sums)[H][V], float *to, int64_t step) {
    MGX_UNROLLED
    for (int r = 0; r < H; ++r) {
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            store(to + v * lanes, sums[r][v]);
        to += step;
        opaque(to);
    }
}

constexpr int most_terms = 4;

// The epilogue of a product: terms are added to the sums, which are clamped then; the last terms are added after that.
struct ProductEpilogue {
    int64_t before, paired; // terms added before the clamp; 1: the last two are added to each other first
    int64_t bounds, after;  // number of bounds of the clamp (0, 1: low, 2: both); terms added after it
    int64_t low, high;      // the bounds, as bits of floats
};

// Terms of a tile's results: addresses and row strides.
struct Terms {
    const float *at[most_terms];
    int64_t step[most_terms];
};

inline Floats as_floats(int64_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return all(number);
}

// Loads the initial accumulators from the results (or starts at 0), applies the epilogue, if any, in registers and stores the
// results.  Products with an epilogue and without share functions, because each takes long to compile.
struct Ends {
    float *results;
    int64_t step; // row stride in elements
    bool add;
    const ProductEpilogue *epilogue; // null: none
    const Terms *terms;

    template <int H, int V> [[gnu::always_inline]] inline void begin(Floats (&sums)[H][V]) const {
        if (!add) return;
        const float *from = results;
        MGX_UNROLLED
        for (int r = 0; r < H; ++r) {
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                sums[r][v] = load(from + v * lanes);
            from += step;
            opaque(from);
        }
    }

    template <int H, int V> [[gnu::always_inline]] inline void end(Floats (&sums)[H][V]) const {
#ifndef MGX_PAIRS // which have no epilogues
        if (epilogue) finish(sums);
#endif
        store_rows(sums, results, step);
    }

private:
    template <int H, int V> [[gnu::always_inline]] inline void finish(Floats (&sums)[H][V]) const {
        const ProductEpilogue &e = *epilogue;
        const int64_t alone = e.before - 2 * e.paired;
        for (int64_t t = 0; t < alone; ++t)
            add_term(sums, t);
        if (e.paired) {
            const float *one = terms->at[alone], *other = terms->at[alone + 1];
            MGX_UNROLLED
            for (int r = 0; r < H; ++r) {
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    sums[r][v] += load(one + v * lanes) + load(other + v * lanes);
                one += terms->step[alone];
                other += terms->step[alone + 1];
                opaque(one);
                opaque(other);
            }
        }
        if (e.bounds > 0) each_sum(sums, [low = as_floats(e.low)](Floats sum) { return larger(low, sum); });
        if (e.bounds > 1) each_sum(sums, [high = as_floats(e.high)](Floats sum) { return smaller(high, sum); });
        for (int64_t t = e.before; t < e.before + e.after; ++t)
            add_term(sums, t);
    }

    template <int H, int V> [[gnu::always_inline]] inline void add_term(Floats (&sums)[H][V], int64_t t) const {
        const float *from = terms->at[t];
        MGX_UNROLLED
        for (int r = 0; r < H; ++r) {
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                sums[r][v] += load(from + v * lanes);
            from += terms->step[t];
            opaque(from);
        }
    }

    template <int H, int V, class Change> [[gnu::always_inline]] static inline void each_sum(Floats (&sums)[H][V], Change change) {
        MGX_UNROLLED
        for (int r = 0; r < H; ++r)
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                sums[r][v] = change(sums[r][v]);
    }
};

// Number of panels that few rows are multiplied with concurrently, limited by the registers for accumulators.  Processors with
// AVX2 only read memory up to a third faster in several streams than in one.
template <int H> constexpr int abreast = lanes == 16 || H > few ? 1 : H == 1 ? 4 : 2;

// Computes a tile of H rows and V vectors.  Tiles of few rows keep several partial sums per result to hide the latency of
// additions.
template <class Weight, int H, int V>
void run(const float *rows, int64_t step, const void *panel_begin, int64_t depth, const char *prefetch, int64_t ahead, const Ends &ends) {
    constexpr int chains = H * V >= 8 ? 1 : H * V >= 4 ? 2 : 4;
    constexpr int trip = H <= few ? 8 : 4;
    constexpr int bases = (H + 2) / 3; // one base pointer for three rows: the addressing mode scales the step by 0, 1 or 2
    const int64_t left_step = step * int64_t(sizeof(float));
    auto panel = static_cast<const Weight *>(panel_begin);
    const char *left[bases];
    MGX_UNROLLED
    for (int b = 0; b < bases; ++b)
        left[b] = reinterpret_cast<const char *>(rows) + 3 * b * left_step;
    Floats sums[chains][H][V];
    if (ahead == 0) prefetch = reinterpret_cast<const char *>(panel); // no prefetch beyond the weights
    ahead *= 64 * (trip / 4);                                         // bytes per iteration
    const auto sum = [&](int64_t rest, const auto &begin) __attribute__((always_inline)) {
        MGX_UNROLLED
        for (int c = 0; c < chains; ++c)
            MGX_UNROLLED
            for (int r = 0; r < H; ++r)
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    sums[c][r][v] = Floats {};
        begin(sums[0]);
        for (; rest >= trip; rest -= trip) {
            if constexpr (H <= few) { // weights are read once
                if constexpr (abreast<H> == 1) // with several streams the hardware prefetcher is faster
                    for (int n = 0; n < trip * int(width * sizeof(Weight)) / 64; ++n)
                        _mm_prefetch(reinterpret_cast<const char *>(panel) + 2048 + 64 * n, _MM_HINT_T1);
            } else { // two or four lines, unrolled: a loop over their number would cost as much as several FMAs
                _mm_prefetch(prefetch, _MM_HINT_T1);
                _mm_prefetch(prefetch + 64, _MM_HINT_T1);
                if (ahead > 2 * 64) {
                    _mm_prefetch(prefetch + 128, _MM_HINT_T1);
                    _mm_prefetch(prefetch + 192, _MM_HINT_T1);
                }
                prefetch += ahead;
            }
            each<trip>([&](auto u) __attribute__((always_inline)) {
                Floats some[V];
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    some[v] = load(panel + u * width + v * lanes);
                each<H>([&](auto r) __attribute__((always_inline)) {
                    Floats many = broadcast<r % 3, u * int(sizeof(float))>(left[r / 3], left_step);
                    MGX_UNROLLED
                    for (int v = 0; v < V; ++v)
                        add_terms(sums[u % chains][r][v], many, some[v]);
                });
            });
            MGX_UNROLLED
            for (int b = 0; b < bases; ++b) {
                left[b] += trip * sizeof(float);
                opaque(left[b]);
            }
            panel += trip * width;
            opaque(panel);
        }
        for (; rest > 0; --rest) {
            MGX_UNROLLED
            for (int r = 0; r < H; ++r) {
                Floats many = all(*reinterpret_cast<const float *>(left[r / 3] + r % 3 * left_step));
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    add_terms(sums[0][r][v], many, load(panel + v * lanes));
            }
            MGX_UNROLLED
            for (int b = 0; b < bases; ++b) {
                left[b] += sizeof(float);
                opaque(left[b]);
            }
            panel += width;
            opaque(panel);
        }
        MGX_UNROLLED
        for (int c = 1; c < chains; ++c)
            MGX_UNROLLED
            for (int r = 0; r < H; ++r)
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    sums[0][r][v] += sums[c][r][v];
    };
    if constexpr (lanes == 8 && H <= few) {
        DoubleSums<H, V> totals;
        for (int64_t done = 0; done < depth; done += float_terms) {
            sum(std::min(float_terms, depth - done), [](Floats (&)[H][V]) {});
            totals.add(sums[0]);
        }
        Floats before[H][V] = {};
        ends.begin(before);
        totals.add(before);
        totals.read(sums[0]);
    } else {
        sum(depth, [&](Floats (&first)[H][V]) __attribute__((always_inline)) { ends.begin(first); });
    }
    ends.end(sums[0]);
}

using Run = void (*)(const float *, int64_t, const void *, int64_t, const char *, int64_t, const Ends &);

template <class Weight, int... I>
constexpr std::array<Run, sizeof...(I)> table(std::integer_sequence<int, I...>) {
    return {run<Weight, I / 2 + 1, I % 2 + 1>...};
}

// Returns the micro-kernel for `rows` rows, at most `most`, and 1 or 2 `vectors`.
template <class Weight, int most> Run run_of(int64_t rows, int64_t vectors) {
    static constexpr auto runs = table<Weight>(std::make_integer_sequence<int, 2 * most> {});
    return runs[2 * rows + vectors - 3];
}

// Computes H rows times P panels, `size` elements apart.
template <class Weight, int H, int P>
void run_panels(const float *rows, int64_t step, const Weight *panel_begin, int64_t size, int64_t depth, float *sums_begin, int64_t sums_step) {
    constexpr int trip = 4;
    const int64_t left_step = step * int64_t(sizeof(float));
    const char *left = reinterpret_cast<const char *>(rows);
    const Weight *panel[P];
    Floats sums[P][H][2];
    DoubleSums<H, 2> totals[P];
    MGX_UNROLLED
    for (int p = 0; p < P; ++p)
        panel[p] = panel_begin + p * size;
    auto add = [&](auto u) __attribute__((always_inline)) {
        Floats many[H];
        each<H>([&](auto r) __attribute__((always_inline)) { many[r] = broadcast<r, u * int(sizeof(float))>(left, left_step); });
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            MGX_UNROLLED
            for (int v = 0; v < 2; ++v) {
                const Floats some = load(panel[p] + u * width + v * lanes);
                MGX_UNROLLED
                for (int r = 0; r < H; ++r)
                    add_product(sums[p][r][v], many[r], some);
            }
    };
    auto onward = [&](int64_t count) __attribute__((always_inline)) {
        left += count * int64_t(sizeof(float));
        MGX_UNROLLED
        for (int p = 0; p < P; ++p) {
            panel[p] += count * width;
            opaque(panel[p]);
        }
    };
    for (int64_t done = 0; done < depth; done += float_terms) {
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            MGX_UNROLLED
            for (int r = 0; r < H; ++r)
                sums[p][r][0] = sums[p][r][1] = Floats {};
        int64_t rest = std::min(float_terms, depth - done);
        for (; rest >= trip; rest -= trip) {
            each<trip>(add);
            onward(trip);
        }
        for (; rest > 0; --rest) {
            add(std::integral_constant<int, 0> {});
            onward(1);
        }
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            totals[p].add(sums[p]);
    }
    MGX_UNROLLED
    for (int p = 0; p < P; ++p) {
        totals[p].read(sums[p]);
        store_rows(sums[p], sums_begin + p * width, sums_step);
    }
}

template <class Weight, int H>
void panels_of_rows(const float *left, int64_t left_step, const Weight *panel, int64_t size, int64_t depth, float *sums, int64_t sums_step,
        int64_t panels) {
    constexpr int most = abreast<H>;
    int64_t p = 0;
    for (; p + most <= panels; p += most)
        run_panels<Weight, H, most>(left, left_step, panel + p * size, size, depth, sums + p * width, sums_step);
    if constexpr (most > 2)
        for (; p + 2 <= panels; p += 2)
            run_panels<Weight, H, 2>(left, left_step, panel + p * size, size, depth, sums + p * width, sums_step);
    for (; p < panels; ++p)
        run<Weight, H, 2>(left, left_step, panel + p * size, depth, nullptr, 0, {sums + p * width, sums_step, false, nullptr, nullptr});
}

template <class Weight>
void product_panels(const float *left, int64_t left_step, const void *begin, int64_t size, int64_t depth, float *sums, int64_t sums_step,
        int64_t rows, int64_t panels) {
    const auto *panel = static_cast<const Weight *>(begin);
    if (rows == 1)
        panels_of_rows<Weight, 1>(left, left_step, panel, size, depth, sums, sums_step, panels);
    else if (rows == 2)
        panels_of_rows<Weight, 2>(left, left_step, panel, size, depth, sums, sums_step, panels);
    else
        panels_of_rows<Weight, few>(left, left_step, panel, size, depth, sums, sums_step, panels);
}

template <class Weight, int most>
void product_tile(const float *left, int64_t left_step, const void *panel, int64_t depth, float *sums, int64_t sums_step,
        int64_t rows, int64_t vectors, int64_t add, const char *prefetch, int64_t ahead) {
    const Ends ends {sums, sums_step, add != 0, nullptr, nullptr};
    run_of<Weight, most>(rows, vectors)(left, left_step, panel, depth, prefetch, ahead, ends);
}

} // namespace

#ifdef MGX_PAIRS
ProductTile MGX_TILE() { return product_tile<float, MGX_TALL>; }
#else
ProductPanels MGX_PANELS(bool bfloat16) { return bfloat16 ? product_panels<uint16_t> : product_panels<float>; }

ProductTile MGX_TILE(bool bfloat16) { return bfloat16 ? product_tile<uint16_t, few> : product_tile<float, MGX_TALL>; }
#endif

} // namespace mgx
