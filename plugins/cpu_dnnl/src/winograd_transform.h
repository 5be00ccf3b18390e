// One-dimensional transforms of Winograd's minimal filtering, generated from the interpolation points (Toom-Cook).
//
// M outputs of a filter of R taps come from N = M + R - 1 products: one for each of the points 0, +a, -a, +b, -b, .., and
// infinity.  Opposite points share their even and odd parts, which halves the work.  The points are close to those with the
// smallest rounding errors, which come in pairs of a and 1 / a.
#pragma once

#include <array>

namespace {

template <int N>
constexpr std::array<double, N / 2 - 1> points();
template <>
constexpr std::array<double, 1> points<4>() { return {1.0}; }
template <>
constexpr std::array<double, 2> points<6>() { return {0.625, 1.5}; }
template <>
constexpr std::array<double, 3> points<8>() { return {0.5, 1.0, 2.0}; }
template <>
constexpr std::array<double, 4> points<10>() { return {0.4, 0.8, 1.25, 2.5}; }

// Returns the coefficients of the product of (z - p^2) over all points but the one left out (-1: none), lowest power first.
template <int N>
constexpr std::array<double, N / 2> product_without(int left_out) {
    std::array<double, N / 2> found {};
    found[0] = 1.0;
    int degree = 0;
    for (int i = 0; i < N / 2 - 1; ++i) {
        if (i == left_out) continue;
        const double square = points<N>()[i] * points<N>()[i];
        ++degree;
        for (int k = degree; k > 0; --k)
            found[k] = found[k - 1] - square * found[k];
        found[0] *= -square;
    }
    return found;
}

template <int N>
struct Table {
    std::array<double, N / 2> whole = product_without<N>(-1);
    std::array<std::array<double, N / 2>, N / 2 - 1> without {};
    constexpr Table() {
        for (int i = 0; i < N / 2 - 1; ++i)
            without[i] = product_without<N>(i);
    }
};

template <int N>
constexpr Table<N> table {};

// Input transform: evaluates the N inputs, `step` apart, at the points.
template <int N, typename V>
MGX_INLINE void to_points(const V *from, int step, V *to, int to_step) {
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
        constexpr const Table<N> &t = table<N>;
        constexpr int pairs = N / 2 - 1;
        V zero = from[pairs * 2 * step], infinity = from[(pairs * 2 + 1) * step];
#pragma GCC unroll 8
        for (int k = 0; k < pairs; ++k) {
            zero += from[2 * k * step] * static_cast<float>(t.whole[k]);
            infinity += from[(2 * k + 1) * step] * static_cast<float>(t.whole[k]);
        }
        to[0] = zero;
        to[(N - 1) * to_step] = infinity;
#pragma GCC unroll 8
        for (int i = 0; i < pairs; ++i) {
            V even = from[pairs * 2 * step], odd = from[(pairs * 2 - 1) * step];
#pragma GCC unroll 8
            for (int k = 0; k + 1 < pairs; ++k) {
                even += from[(2 * k + 2) * step] * static_cast<float>(t.without[i][k]);
                odd += from[(2 * k + 1) * step] * static_cast<float>(t.without[i][k]);
            }
            constexpr auto at = points<N>();
            to[(2 * i + 1) * to_step] = even + odd * static_cast<float>(at[i]);
            to[(2 * i + 2) * to_step] = even - odd * static_cast<float>(at[i]);
        }
    }
}

// Output transform: interpolates M outputs from the products at N points.
template <int M, int N, typename V>
MGX_INLINE void from_points(const V *from, int step, V *to, int to_step) {
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
        constexpr int pairs = N / 2 - 1;
        V sum[pairs], difference[pairs];
#pragma GCC unroll 8
        for (int i = 0; i < pairs; ++i) {
            sum[i] = from[(2 * i + 1) * step] + from[(2 * i + 2) * step];
            difference[i] = from[(2 * i + 1) * step] - from[(2 * i + 2) * step];
        }
        std::array<double, pairs> power {};
        for (int i = 0; i < pairs; ++i)
            power[i] = 1.0;
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            V out = m == M - 1 ? from[(N - 1) * step] : V {};
            if (m == 0) out = out + from[0];
#pragma GCC unroll 8
            for (int i = 0; i < pairs; ++i) {
                out += (m % 2 ? difference[i] : sum[i]) * static_cast<float>(power[i]);
                power[i] *= points<N>()[i];
            }
            to[m * to_step] = out;
        }
    }
}

// Returns the coefficients of the filter transform for the positive points; at the opposite points odd taps change sign.
template <int R, int N>
constexpr std::array<std::array<double, R>, N / 2 - 1> filter_coefficients() {
    std::array<std::array<double, R>, N / 2 - 1> found {};
    for (int i = 0; i < N / 2 - 1; ++i) {
        const double at = points<N>()[i];
        double norm = 0, power = 1;
        for (int k = 0; k < N / 2 - 1; ++k, power *= at * at)
            norm += table<N>.without[i][k] * power;
        found[i][0] = 1.0 / (2 * at * at * norm);
        for (int r = 1; r < R; ++r)
            found[i][r] = found[i][r - 1] * at;
    }
    return found;
}

// Filter transform: evaluates R taps at the N points.
template <int R, int N, typename V>
MGX_INLINE void taps_to_points(const V *from, int step, V *to, int to_step) {
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
        constexpr auto coefficients = filter_coefficients<R, N>();
        to[0] = from[0] * (1.0 / table<N>.whole[0]);
        to[(N - 1) * to_step] = from[(R - 1) * step];
#pragma GCC unroll 8
        for (int i = 0; i < N / 2 - 1; ++i) {
            V even = from[0] * coefficients[i][0], odd = from[step] * coefficients[i][1];
#pragma GCC unroll 8
            for (int r = 2; r < R; ++r)
                (r % 2 ? odd : even) += from[r * step] * coefficients[i][r];
            to[(2 * i + 1) * to_step] = even + odd;
            to[(2 * i + 2) * to_step] = even - odd;
        }
    }
}

} // namespace
