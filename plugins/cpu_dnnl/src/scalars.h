// Element types that C++17 lacks (half, bfloat16, bool as a byte), conversions, and the total order of elements.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <immintrin.h>

namespace mgx {

struct Half {
    uint16_t bits;
};
struct BFloat {
    uint16_t bits;
};
struct Bool {
    uint8_t bits;
};

template <typename To, typename From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the widths differ");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// Converts an element to the type that it is computed in: float for half and bfloat16, its own type otherwise.
inline float widened(Half x) { return _cvtsh_ss(x.bits); }
inline float widened(BFloat x) { return same_bits<float>(static_cast<uint32_t>(x.bits) << 16); }
inline uint8_t widened(Bool x) { return x.bits != 0; }
template <typename T>
inline T widened(T x) {
    return x;
}

template <typename T>
using Wide = decltype(widened(T {}));

// Converts a double to float with round-to-odd, so that a later rounding to fewer bits is correct (no double rounding).
inline float odd_rounded(double x) {
    auto near = static_cast<float>(x);
    if (static_cast<double>(near) == x || x != x || near - near != 0) return near;
    auto bits = same_bits<uint32_t>(near);
    if ((near < 0 ? -near : near) > (x < 0 ? -x : x)) --bits;
    return same_bits<float>(bits | 1);
}

inline void store(Half &to, float x) { to.bits = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
inline void store(BFloat &to, float x) {
    auto bits = same_bits<uint32_t>(x);
    to.bits = static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline void store(Half &to, double x) { store(to, odd_rounded(x)); }
inline void store(BFloat &to, double x) { store(to, odd_rounded(x)); }
template <typename T, typename From>
inline void store(T &to, From x) {
    to = static_cast<T>(x);
}

// Returns unsigned integers that compare like the elements: NaN is greater than any number, -0 equals +0.
inline uint8_t ordered(Bool x) { return x.bits != 0; }
inline uint32_t ordered(float x) {
    auto bits = same_bits<uint32_t>(x);
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    key = x == 0 ? 0x80000000u : key;
    return x != x ? 0xffffffffu : key;
}
inline uint64_t ordered(double x) {
    auto bits = same_bits<uint64_t>(x);
    const uint64_t top = uint64_t {1} << 63;
    uint64_t key = bits & top ? ~bits : bits | top;
    key = x == 0 ? top : key;
    return x != x ? ~uint64_t {0} : key;
}
inline uint32_t ordered(Half x) { return ordered(widened(x)); }
inline uint32_t ordered(BFloat x) { return ordered(widened(x)); }
template <typename T>
inline std::enable_if_t<std::is_integral_v<T>, std::make_unsigned_t<T>> ordered(T x) {
    using U = std::make_unsigned_t<T>;
    return static_cast<U>(x) ^ (std::is_signed_v<T> ? static_cast<U>(U {1} << (8 * sizeof(T) - 1)) : U {0});
}

template <typename T>
inline bool is_nan(T x) {
    if constexpr (std::is_floating_point_v<T>)
        return x != x;
    else
        return false;
}

template <typename T>
inline T lowest() {
    if constexpr (std::is_floating_point_v<T>)
        return -std::numeric_limits<T>::infinity();
    else
        return std::numeric_limits<T>::lowest();
}

// Calls call(T {}, name) for every element type of a list.
template <typename... T>
struct Types {};
template <typename Call>
void each(Types<>, const char *const *, const Call &) {}
template <typename First, typename... Others, typename Call>
void each(Types<First, Others...>, const char *const *names, const Call &call) {
    call(First {}, *names);
    each(Types<Others...> {}, names + 1, call);
}

using Numeric = Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double, Half, BFloat, Bool>;
constexpr const char *numeric_names[] = {"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32",
        "float64", "float16", "bfloat16", "bool"};
using Floating = Types<float, double, Half, BFloat>;
constexpr const char *floating_names[] = {"float32", "float64", "float16", "bfloat16"};
using Sizes = Types<uint8_t, uint16_t, uint32_t, uint64_t>;
constexpr const char *size_names[] = {"1", "2", "4", "8"};

} // namespace mgx
