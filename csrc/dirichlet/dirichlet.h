// Gamma variates by Marsaglia & Tsang's method (2000, doi:10.1145/358407.358414). Each depends only on its address: the key
// of its stream and the indices of its cell and its sample. Philox4x32-10 (Salmon et al. 2011,
// doi:10.1145/2063384.2063405) maps an address to four 32-bit integers, which are used for two neighboring cells.
//
// The functions are branch-free scalar arithmetic for the CPU and for CUDA threads: compilers vectorize a loop over samples
// for any processor, which calls of a mathematical library would prevent.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __CUDACC__
#define DIRICHLET_FN __host__ __device__ inline
#else  // inlined into loops compiled for wide vectors; a separate function would be compiled for narrow ones
#define DIRICHLET_FN __attribute__((always_inline)) inline
#endif

namespace dirichlet {

struct Key {
  uint32_t low, high;
};

struct RandomBits {
  uint32_t w0, w1, w2, w3;
};

template <int rounds>
DIRICHLET_FN RandomBits philox(RandomBits c, uint32_t k0, uint32_t k1) {
  if constexpr (rounds == 0) return c;
  else {
    const uint64_t p = uint64_t(0xD2511F53) * c.w0, q = uint64_t(0xCD9E8D57) * c.w2;
    const RandomBits next{uint32_t(q >> 32) ^ c.w1 ^ k0, uint32_t(q), uint32_t(p >> 32) ^ c.w3 ^ k1, uint32_t(p)};
    return philox<rounds - 1>(next, k0 + 0x9E3779B9, k1 + 0xBB67AE85);
  }
}

constexpr uint32_t kBoost = 0x80000000;  // the attempt index of random bits that correct shapes below 1
constexpr uint32_t kAttempts = 64;       // proposals are rejected with probability <= 0.05, so all fail with 0.05^64

DIRICHLET_FN RandomBits block(uint32_t low, uint32_t high, uint32_t pair, uint32_t attempt, const Key& key) {
  return philox<10>({low, pair, attempt, high}, key.low, key.high);
}

// Constants of a floating-point format: the last terms of series, and the layout of exponent and fraction.
template <class T>
struct Real;

template <>
struct Real<float> {
  using Bits = uint32_t;
  static constexpr int kFraction = 23, kBias = 127, kExp = 7, kTurn = 9, kAtanh = 9, kBracket = 11;
  static constexpr Bits kRootHalf = 0x3F3504F3;
  static constexpr float kLn2 = 0.693359375f, kLn2Rest = -2.12194440e-4f, kLowest = -87.0f;
};

template <>
struct Real<double> {
  using Bits = uint64_t;
  static constexpr int kFraction = 52, kBias = 1023, kExp = 13, kTurn = 17, kAtanh = 21, kBracket = 16;
  static constexpr Bits kRootHalf = 0x3FE6A09E667F3BCD;
  static constexpr double kLn2 = 0x1.62e42feep-1, kLn2Rest = 0x1.a39ef35793c76p-33, kLowest = -708.0;
};

template <class To, class From>
DIRICHLET_FN To bits_as(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  memcpy(&to, &from, sizeof(to));
  return to;
}

constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }

// Sum of x^k / n and of x^k / n!, for n = first + k step up to `last`.
template <int n, int step, int last, class T>
DIRICHLET_FN T reciprocal_series(T x) {
  if constexpr (n > last) return 0;
  else return T(1.0 / n) + x * reciprocal_series<n + step, step, last>(x);
}
template <int n, int step, int last, class T>
DIRICHLET_FN T factorial_series(T x) {
  if constexpr (n > last) return 0;
  else return T(1.0 / factorial(n)) + x * factorial_series<n + step, step, last>(x);
}

template <class T>
DIRICHLET_FN T exp_of(T x) {  // x <= 0; returns 0 if the result is subnormal
  using R = Real<T>;
  const T bounded = x > R::kLowest ? x : R::kLowest;
  const int32_t n = int32_t(bounded * T(1.4426950408889634) - T(0.5));
  const T rest = (bounded - T(n) * R::kLn2) - T(n) * R::kLn2Rest;
  const auto power = typename R::Bits(uint32_t(n + R::kBias)) << R::kFraction;
  // A factor, because a conditional would prevent vectorization.
  return factorial_series<0, 1, R::kExp>(rest) * bits_as<T>(power) * T(x > R::kLowest);
}

template <class T>
struct Split {
  T fraction, exponent;  // x = (1 + fraction) 2^exponent, 1 + fraction in [sqrt(1/2), sqrt(2))
};

template <class T>
DIRICHLET_FN Split<T> split(T x) {  // x > 0
  using R = Real<T>;
  using Bits = typename R::Bits;
  const Bits bits = bits_as<Bits>(x), one = Bits(R::kBias) << R::kFraction;
  const Bits biased = (bits + (one - R::kRootHalf)) >> R::kFraction;
  const Bits fraction = bits + one - (biased << R::kFraction);
  return {bits_as<T>(fraction) - 1, T(int32_t(biased) - R::kBias)};
}

template <class T>
DIRICHLET_FN T log_of(Split<T> x) {  // ln(1 + f) = 2 atanh(f / (2 + f))
  const T ratio = x.fraction / (2 + x.fraction);
  return x.exponent * T(0.6931471805599453) + 2 * ratio * reciprocal_series<1, 2, Real<T>::kAtanh>(ratio * ratio);
}

template <class T>
DIRICHLET_FN T uniform(uint32_t bits) {  // (bits + 1/2) / 2^32, rounded once
  return (T(int32_t(bits >> 16)) * 65536 + (T(int32_t(bits & 0xFFFF)) + T(0.5))) * T(0x1p-32);
}

template <class T>
DIRICHLET_FN T log_uniform(uint32_t bits) {
  Split<T> x = split(uniform<T>(bits));
  const T to_one = -uniform<T>(~bits);  // more precise near 1: the distance from 1
  x.fraction = bits >= 0xB504F400 ? to_one : x.fraction;
  return log_of(x);
}

template <class T>
struct Cell {
  T d, scale, log_d, boost;  // d = shape - 1/3, 1 / sqrt(9 d), ln d; 1 / alpha for a lifted alpha below 1, else 0
};

// Whether variates of this shape can be drawn: `accepts` computes 3 d, which must be finite.
template <class T>
DIRICHLET_FN bool is_shape(double alpha) {
  return alpha >= 0 && alpha <= double(std::numeric_limits<T>::max() / 4);
}

template <class T>
DIRICHLET_FN Cell<T> make_cell(double alpha) {  // alpha = 0: the variate is 0, always accepted; invalid: nan
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  if (!is_shape<T>(alpha)) return {nan, nan, nan, 0};
  if (alpha == 0) return {0, 0, -std::numeric_limits<T>::infinity(), 0};
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  return {T(d), T(1 / sqrt(9 * d)), T(log(d)), alpha < 1 ? T(1 / alpha) : T(0)};
}

// A range of cells with consecutive indices, from an even index on.
template <class T>
struct Row {
  const Cell<T>* cells;
  int32_t pairs;
  uint32_t first_pair;
  Key key;
  bool linear;  // variates, not their logarithms
  const uint32_t* pair_indices = nullptr;  // of pairs that are not consecutive

  DIRICHLET_FN uint32_t pair_index(int32_t p) const { return first_pair + (pair_indices ? pair_indices[p] : uint32_t(p)); }
};

template <class T>
struct Normals {
  T even, odd;
};

template <class T>
DIRICHLET_FN Normals<T> normals(RandomBits w) {  // Box & Muller
  const uint32_t quarter = (w.w1 + 0x20000000) >> 30;
  const T angle = (T(int32_t(w.w1 - (quarter << 30))) + T(0.5)) * T(6.283185307179586 * 0x1p-32), z = -angle * angle;
  const T s = angle * factorial_series<1, 2, Real<T>::kTurn>(z), c = factorial_series<0, 2, Real<T>::kTurn + 1>(z);
  const T cosine = quarter & 1 ? s : c, sine = quarter & 1 ? c : s;
  const T radius = std::sqrt(-2 * log_uniform<T>(w.w0));
  return {radius * ((quarter + 1) & 2 ? -cosine : cosine), radius * (quarter & 2 ? -sine : sine)};
}

// Below, y is the product of a normal variate and the scale of its cell.
template <class T>
DIRICHLET_FN T log_cube_root(T y) {  // of Gamma / d; undefined unless positive
  const T v = 1 + y;
  return log_of(split(v > T(0x1p-60) ? v : T(0x1p-60)));
}

template <class T>
DIRICHLET_FN uint32_t accepts(T y, uint32_t bits, const Cell<T>& cell) {
  const T y2 = y * y;
  const T series = -y2 * y2 * reciprocal_series<4, 1, Real<T>::kBracket>(-y);
  const T direct = log_cube_root(y) - y + y2 * T(0.5) - y2 * y * T(1.0 / 3);  // cancels for small y
  const T bracket = y2 < T(0.0625) ? series : direct;
  return uint32_t(y > -1) & uint32_t(log_uniform<T>(bits) < 3 * cell.d * bracket);
}

// A sufficient condition for `accepts` without logarithms: Marsaglia & Tsang's squeeze, and for small y the lower bound
// -y^4 / 3 of the bracket above.
template <class T>
DIRICHLET_FN uint32_t squeeze_accepts(T normal, uint32_t bits, const Cell<T>& cell) {
  const T y = normal * cell.scale, y2 = y * y, normal2 = normal * normal;
  return uniform<T>(bits) < 1 - (y2 < T(0.0625) ? cell.d * y2 * y2 : T(0.0331) * normal2 * normal2);
}

template <bool kLinear, class T>
DIRICHLET_FN T value_of(T y, const Cell<T>& cell) {
  const T v = 1 + y;
  return kLinear ? cell.d * v * v * v : cell.log_d + 3 * log_cube_root(y);
}

}  // namespace dirichlet
