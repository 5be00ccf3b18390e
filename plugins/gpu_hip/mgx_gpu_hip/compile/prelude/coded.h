// Unsigned 4- or 8-bit codes to 16-bit floats for matrix units, four or eight codes at once, minus their zero points, exactly.
namespace coded {
// a * b + c for both halves of a word, rounded once.
template <class T> DEV u32 fma2(u32 a, u32 b, u32 c) {
#if GPU_CUDA
  u32 r;
  if constexpr (is_bf16<T>::value) asm("fma.rn.bf16x2 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
#else
  float part[2];
  for (int i = 0; i < 2; ++i) {
    T x = {(u16)(a >> (16 * i))}, y = {(u16)(b >> (16 * i))}, z = {(u16)(c >> (16 * i))};
    part[i] = to_f(x) * to_f(y) + to_f(z);
  }
  return pair_of<T>(part[0], part[1]);
#endif
}
// A zero point as subtracted from codes in the lowest bits of a number (`plain`), and from half_t of codes four bits above (`high`):
// -(1024 + z), or -(128 + z) of bf16_t, by arithmetic on its bits, and -(64 + z); twice each.
template <class T, int BITS> struct Zero { u32 plain, high; };
template <class T, int BITS> DEV Zero<T, BITS> zero_of(u32 z) {
  const u32 plain = (is_bf16<T>::value ? 0xc300c300u : 0xe400e400u) + z * 0x00010001u;
  return {plain, is_bf16<T>::value ? 0 : fma2<T>(plain, 0x3c003c00u, 0x63806380u)};
}
// Converts the codes at bits 0 and 16 of a word shifted by SHIFT, and subtracts the number whose lowest bits they replaced.
template <class T, int BITS, int SHIFT> DEV u32 numbers(u32 word, const Zero<T, BITS>& zero) {
  constexpr u32 MASK = BITS == 4 ? 0x000f000fu : 0x00ff00ffu;
  if constexpr (is_bf16<T>::value) return fma2<T>(((word >> SHIFT) & MASK) | 0x43004300u, 0x3f803f80u, zero.plain);
  else if constexpr (BITS == 4 && SHIFT % 8 == 4) return fma2<T>(((word >> (SHIFT - 4)) & (MASK << 4)) | 0x64006400u, 0x2c002c00u, zero.high);
  else return fma2<T>(((word >> SHIFT) & MASK) | 0x64006400u, 0x3c003c00u, zero.plain);
}
// Adds the products of a word of codes of columns g and g + 8 with the 32 / BITS elements of a row at the same positions.  The codes
// of elements 2 i and 2 i + 1 are at bits BITS * i and BITS * i + 16, so that a word of x is an operand as it is.
template <class T, int BITS> DEV void add(float* sum, u32 low, u32 high, const Zero<T, BITS>& zl, const Zero<T, BITS>& zh, const u32* x) {
  const u32 first[4] = {numbers<T, BITS, 0>(low, zl), numbers<T, BITS, 0>(high, zh), numbers<T, BITS, BITS>(low, zl), numbers<T, BITS, BITS>(high, zh)};
  unit::mma<T>(sum, first, x);
  if constexpr (BITS == 4) {
    const u32 second[4] = {numbers<T, 4, 8>(low, zl), numbers<T, 4, 8>(high, zh), numbers<T, 4, 12>(low, zl), numbers<T, 4, 12>(high, zh)};
    unit::mma<T>(sum, second, x + 2);
  }
}
}  // namespace coded
