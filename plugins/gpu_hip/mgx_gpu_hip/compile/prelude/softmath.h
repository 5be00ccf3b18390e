// Elementary functions without a device library: double precision to about 1e-15; float through double unless an instruction exists.
namespace soft {
DEV double scale2(double x, int n) {  // x * 2**n without intermediate overflow
  n = n < -2100 ? -2100 : n > 2100 ? 2100 : n;
  for (; n > 1000; n -= 1000) x *= bits_as<double>((u64)(1023 + 1000) << 52);
  for (; n < -1000; n += 1000) x *= bits_as<double>((u64)(1023 - 1000) << 52);
  return x * bits_as<double>((u64)(1023 + n) << 52);
}
DEV double exp(double x) {
  if (x != x) return x;
  if (x > 709.8) return (double)m::inf();
  if (x < -745.2) return 0;
  double k = m::round(x * 1.4426950408889634), r = m::fma(k, -1.9082149292705877e-10, m::fma(k, -6.93147180369123816490e-01, x)), p = 1;
  for (int i = 13; i > 0; --i) p = 1 + r * p / i;
  return scale2(p, (int)k);
}
DEV double expm1(double x) {
  if (!(m::abs(x) < 0.4)) return exp(x) - 1;
  double p = 1;
  for (int i = 16; i > 1; --i) p = 1 + x * p / i;
  return x * p;
}
DEV double log(double x) {
  if (x != x || x < 0) return (double)m::nan();
  if (x == 0) return -(double)m::inf();
  if (m::isinf(x)) return x;
  int e = 0;
  if (x < 2.2250738585072014e-308) x *= 18014398509481984.0, e = -54;
  u64 b = bits_as<u64>(x);
  e += (int)(b >> 52) - 1023;
  double f = bits_as<double>((b & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (f > 1.4142135623730951) f *= 0.5, ++e;
  double t = (f - 1) / (f + 1), s = t * t, p = 0;
  for (int i = 23; i > 1; i -= 2) p = s * (p + 1.0 / i);
  return e * 6.93147180369123816490e-01 + (2 * t * (1 + p) + e * 1.9082149292705877e-10);
}
DEV double log1p(double x) {
  double u = 1 + x;
  return u == 1 || m::isinf(x) ? (x < 0 && m::isinf(x) ? (double)m::nan() : x) : u <= 0 ? log(u) : log(u) * (x / (u - 1));
}
DEV double log2(double x) {
  u64 b = bits_as<u64>(x);
  if (x > 2.3e-308 && !(b & 0xfffffffffffffull) && !m::isinf(x)) return (double)((int)(b >> 52) - 1023);
  return log(x) * 1.4426950408889634;
}
DEV double sine(double x, int quarter) {  // sin(x + quarter * pi / 2)
  if (x != x || m::isinf(x)) return (double)m::nan();
  double k = m::round(x * 0.63661977236758134);
  double r = m::fma(k, -1.5707963267948966, x);
  r = m::fma(k, -6.123233995736766e-17, r);
  quarter += (int)(k - 4 * m::floor(k * 0.25));
  double s = r * r, p = 1;
  if (quarter & 1) {
    for (int i = 18; i > 0; i -= 2) p = 1 - s * p / (i * (i - 1));
  } else {
    for (int i = 19; i > 1; i -= 2) p = 1 - s * p / (i * (i - 1));
    p *= r;
  }
  return quarter & 2 ? -p : p;
}
DEV double sin(double x) { return x == 0 ? x : sine(x, 0); }
DEV double cos(double x) { return sine(x, 1); }
DEV double tan(double x) { return sin(x) / cos(x); }
DEV double atan(double x) {
  double a = m::abs(x), t = a > 1 ? 1 / a : a;
  t = t / (1 + m::sqrt(1 + t * t));
  double s = t * t, p = 0;
  for (int i = 47; i > 1; i -= 2) p = s * (1.0 / i - p);
  t = 2 * t * (1 - p);
  return m::copysign(a > 1 ? 1.5707963267948966 - t : t, x);
}
DEV double asin(double x) { return m::abs(x) > 1 ? (double)m::nan() : atan(x / m::sqrt((1 - x) * (1 + x))); }
DEV double acos(double x) { return m::abs(x) > 1 ? (double)m::nan() : x != x ? x : 2 * atan(m::sqrt((1 - x) / (1 + x))); }
DEV double sinh(double x) {
  double a = m::abs(x), e;
  if (a > 709) return m::copysign(0.5 * exp(0.5 * a) * exp(0.5 * a), x);
  e = expm1(a);
  return m::copysign(0.5 * (e + e / (e + 1)), x);
}
DEV double cosh(double x) {
  double e = exp(0.5 * m::abs(x));
  return 0.5 * e * e + 0.5 / e / e;
}
DEV double tanh(double x) {
  double a = m::abs(x), e = expm1(2 * (a > 22 ? 22 : a));
  return x != x ? x : m::copysign(e / (e + 2), x);
}
DEV double asinh(double x) {
  double a = m::abs(x);
  if (a > 1e150) return m::copysign(log(a) + 0.69314718055994531, x);
  return m::copysign(log1p(a + a * a / (1 + m::sqrt(a * a + 1))), x);
}
DEV double acosh(double x) {
  double t = x - 1;
  return t < 0 ? (double)m::nan() : x > 1e150 ? log(x) + 0.69314718055994531 : log1p(t + m::sqrt(2 * t + t * t));
}
DEV double atanh(double x) { return m::copysign(0.5 * log1p(2 * m::abs(x) / (1 - m::abs(x))), x); }
DEV double erf(double x) {
  double a = m::abs(x), s = x * x;
  if (x != x) return x;
  if (a > 6) return m::copysign(1.0, x);
  if (a < 3) {  // 2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (2n+1)!!
    double p = 1;
    for (int i = 60; i > 0; --i) p = 1 + 2 * s * p / (2 * i + 1);
    return 1.1283791670955126 * x * p * exp(-s);
  }
  double c = a;  // continued fraction of erfc
  for (int i = 40; i > 0; --i) c = a + 0.5 * i / c;
  return m::copysign(1 - exp(-s) * 0.56418958354775629 / c, x);
}
DEV double pow(double a, double b) {
  if (b == 0 || a == 1) return 1;
  if (a != a || b != b) return (double)m::nan();
  bool whole = m::trunc(b) == b, odd = whole && m::abs(b) < 9007199254740992.0 && m::floor(b * 0.5) != b * 0.5;
  double x = m::abs(a), out;
  if (a < 0 && !whole && !m::isinf(a)) return (double)m::nan();
  if (whole && m::abs(b) <= 64) {
    int n = (int)m::abs(b);
    double p = x;
    for (out = 1; n; n >>= 1, p *= p)
      if (n & 1) out *= p;
    if (b < 0) out = 1 / out;
  } else if (x == 1) {
    out = 1;
  } else if (m::isinf(b)) {
    out = (x > 1) == (b > 0) ? (double)m::inf() : 0;
  } else {
    out = exp(b * log(x));
  }
  return odd && m::copysign(1.0, a) < 0 ? -out : out;
}
}  // namespace soft

#if GPU_CUDA
#define GPU_NATIVE(f) ::f
#else
#define GPU_NATIVE(f) __builtin_##f
#endif
namespace m {
#define GPU_SOFT(name)                                             \
  DEV double name(double x) { return soft::name(x); }
#define GPU_SOFT_FLOAT(name)                                       \
  GPU_SOFT(name)                                                   \
  DEV float name(float x) { return (float)soft::name((double)x); }
GPU_SOFT(exp)
GPU_SOFT(log)
GPU_SOFT(log2)
GPU_SOFT_FLOAT(expm1)
GPU_SOFT_FLOAT(log1p)
GPU_SOFT_FLOAT(sin)
GPU_SOFT_FLOAT(cos)
GPU_SOFT_FLOAT(tan)
GPU_SOFT_FLOAT(asin)
GPU_SOFT_FLOAT(acos)
GPU_SOFT_FLOAT(atan)
GPU_SOFT_FLOAT(sinh)
GPU_SOFT_FLOAT(cosh)
GPU_SOFT_FLOAT(asinh)
GPU_SOFT_FLOAT(acosh)
GPU_SOFT_FLOAT(atanh)
GPU_SOFT(tanh)
GPU_SOFT(erf)
DEV double exp2(double x) { return soft::exp(x * 0.69314718055994531); }
DEV float exp(float x) { return GPU_NATIVE(expf)(x); }
DEV float exp2(float x) { return GPU_NATIVE(exp2f)(x); }
DEV float log(float x) { return GPU_NATIVE(logf)(x); }
DEV float log2(float x) { return GPU_NATIVE(log2f)(x); }
DEV float tanh(float x) {
  float a = abs(x), s = x * x;
  if (a < 0.3f) return x * (1.f + s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f + s * (0.0218694885f - s * 0.00886323553f)))));
  return x != x ? x : copysign(1.f - 2.f / (1.f + exp(2.f * a)), x);
}
DEV float erf(float x) {
  float a = abs(x), s = x * x;
  if (a < 0.6f)
    return x * (1.128379167f + s * (-0.376126389f + s * (0.112837917f + s * (-0.0268661706f + s * (0.00522397762f - s * 0.000854832702f)))));
  float t = 1.f / (1.f + 0.3275911f * a);
  float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  return x != x ? x : copysign(1.f - p * exp(-s), x);
}
DEV double pow(double a, double b) { return soft::pow(a, b); }
DEV float pow(float a, float b) { return (float)soft::pow((double)a, (double)b); }
}  // namespace m
