// Building blocks of loops with accumulators in register tiles; included with MGX_LANES.
#pragma once

#include <type_traits>
#include <utility>

#include "vectors.h"

namespace mgx {

namespace {

// Broadcasts the float `offset` bytes into a row that is 0 to 2 strides from a base.  Inline assembly keeps the address computation
// in the load's addressing mode: compilers emit separate additions, which compete with the FMAs for execution ports.
template <int apart, int offset> [[gnu::always_inline]] inline Floats broadcast(const char *base, int64_t step) {
    Floats many;
    if constexpr (apart == 0)
        asm volatile("vbroadcastss %c2(%1), %0" : "=v"(many) : "r"(base), "i"(offset));
    else
        asm volatile("vbroadcastss %c3(%1,%2,%c4), %0" : "=v"(many) : "r"(base), "r"(step), "i"(offset), "i"(apart));
    return many;
}

// Hides the value of a pointer from the optimizer, which would otherwise keep one address per row and run out of registers.
template <class T> inline void opaque(T &pointer) { asm("" : "+r"(pointer)); }

// sum += a * b as an in-place FMA.  `asm volatile` preserves the source order, whose register pressure is known to fit.
[[gnu::always_inline]] inline void add_product(Floats &sum, Floats a, Floats b) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

template <class Part, int... I> [[gnu::always_inline]] inline void each_of(Part part, std::integer_sequence<int, I...>) {
    (part(std::integral_constant<int, I> {}), ...);
}

// Calls part(0), .., part(count - 1) with compile-time constants.
template <int count, class Part> [[gnu::always_inline]] inline void each(Part part) {
    each_of(part, std::make_integer_sequence<int, count> {});
}

#define MGX_UNROLLED _Pragma("GCC unroll 48")

} // namespace

} // namespace mgx
