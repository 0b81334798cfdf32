// What translated kernels (translate.py) need of a GPU: opcodes, memory, and the lanes of lanes_emulated.h.
//
// Every read and write must be aligned, and lie in a tensor, in the parameters, in the thread's own stack, or in the
// shared memory that the block was launched with; else the kernel ends with an error. Shared addresses count from 0.
#pragma once
#include "lanes_emulated.h"

#include <cmath>
#include <limits>
#include <type_traits>

struct Launch {
  uint64_t parameters;
  unsigned threads, blocks;
  uint32_t* entered;  // by each thread, each basic block: how often
};
struct Place {
  int64_t begin, size;
};
struct Kernel {
  const char* name;
  void (*run)(const Launch&);
  std::vector<Place> layout;  // of its parameters
  int64_t parameters, fixed;  // bytes; `fixed` are those of shared memory
  unsigned most;              // threads of a block
  std::vector<int> sizes;     // instructions of each basic block
};

// Memory.

struct Span {
  uint64_t begin, end;
};
static std::vector<Span> memory;  // that threads may use, the last used first
static Span shared;

[[noreturn]] inline void outside(uint64_t address, const char* what) {
  lanes::fail(std::string(what) + " " + std::to_string(address));
}

template <class T, int n>
uint64_t flat(uint64_t address) {
  if (address % (n * sizeof(T))) outside(address, "a misaligned address");
  const uint64_t end = address + n * sizeof(T);
  if (address >= memory[0].begin && end <= memory[0].end) return address;
  for (Span& span : memory)
    if (address >= span.begin && end <= span.end) {
      std::swap(span, memory[0]);
      return address;
    }
  const auto stack = reinterpret_cast<uint64_t>(&lanes::emulation.stacks[threadIdx.x * lanes::Emulation::kStack]);
  if (address >= stack && end <= stack + lanes::Emulation::kStack) return address;
  outside(address, "an address outside of all tensors and of the shared memory:");
}

template <class T, int n>
uint64_t in_shared(uint64_t address) {
  if (shared.begin + address + n * sizeof(T) > shared.end) outside(address, "an address outside of the shared memory:");
  return flat<T, n>(shared.begin + address);
}

// Types of PTX. Bits<T> is what a register gets of a T: floats as their bits, the others extended by their sign.

using PRED = bool;
using B8 = uint8_t;
using U8 = uint8_t;
using S8 = int8_t;
using B16 = uint16_t;
using U16 = uint16_t;
using S16 = int16_t;
using B32 = uint32_t;
using U32 = uint32_t;
using S32 = int32_t;
using F32 = float;
using B64 = uint64_t;
using U64 = uint64_t;
using S64 = int64_t;
using F64 = double;

template <class T>
constexpr bool kFloat = std::is_floating_point<T>::value;
template <class T>
using Bits = std::conditional_t<kFloat<T>, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, T>;

template <class To, class From>
To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  To y;
  memcpy(&y, &x, sizeof(y));
  return y;
}
template <class T>
T value(Bits<T> x) {
  return same_bits<T>(x);
}
template <class T>
Bits<T> bits(T x) {
  return same_bits<Bits<T>>(x);
}

template <class T, int n>
Bits<T> op_ld(uint64_t address, int k) {
  T x;
  memcpy(&x, reinterpret_cast<T*>(flat<T, n>(address)) + k, sizeof(x));
  return bits<T>(x);
}
template <class T, int n>
Bits<T> op_ld_shared(uint64_t address, int k) {
  return op_ld<T, n>(in_shared<T, n>(address), k);
}
template <class T, int n>
Bits<T> op_ld_nc(uint64_t address, int k) {  // of what no kernel writes
  return op_ld<T, n>(address, k);
}
template <class T, int n>
void op_st(uint64_t address, int k, Bits<T> x) {
  memcpy(reinterpret_cast<T*>(flat<T, n>(address)) + k, &x, sizeof(x));
}
template <class T, int n>
void op_st_shared(uint64_t address, int k, Bits<T> x) {
  op_st<T, n>(in_shared<T, n>(address), k, x);
}
template <class T>
T op_cvta(T address) {  // of parameters, locals and globals, which have one address
  return address;
}
template <class T>
T op_cvta_to(T address) {
  return address;
}
template <class T>
T op_cvta_shared(T address) {
  return shared.begin + address;
}
template <class T>
T op_cvta_to_shared(T address) {
  return address - shared.begin;
}

// Arithmetic.

#define OP1(name, result)                \
  template <class T>                     \
  Bits<T> op_##name(Bits<T> a_) {        \
    const T a = value<T>(a_);            \
    return bits<T>(T(result));           \
  }
#define OP2(name, result)                         \
  template <class T>                              \
  Bits<T> op_##name(Bits<T> a_, Bits<T> b_) {     \
    const T a = value<T>(a_), b = value<T>(b_);   \
    return bits<T>(T(result));                    \
  }
#define OP3(name, result)                                            \
  template <class T>                                                 \
  Bits<T> op_##name(Bits<T> a_, Bits<T> b_, Bits<T> c_) {            \
    const T a = value<T>(a_), b = value<T>(b_), c = value<T>(c_);    \
    return bits<T>(T(result));                                       \
  }
#define COMPARE(name, result)                     \
  template <class T>                              \
  bool op_setp_##name(Bits<T> a_, Bits<T> b_) {   \
    const T a = value<T>(a_), b = value<T>(b_);   \
    return result;                                \
  }

template <class T>
T nonzero(T x) {
  if (x == 0) lanes::fail("a division of integers by 0");
  return x;
}
template <class T>
T quotient(T a, T b) {
  if constexpr (kFloat<T>) return a / b;
  else return a / nonzero(b);
}
template <class T>
T least(T a, T b) {
  if constexpr (kFloat<T>) return std::fmin(a, b);
  else return a < b ? a : b;
}
template <class T>
T greatest(T a, T b) {
  if constexpr (kFloat<T>) return std::fmax(a, b);
  else return a > b ? a : b;
}
template <class T>
constexpr U32 kBits = 8 * sizeof(T);

OP1(mov, a)
OP1(neg, -a)
OP1(abs, a < 0 ? -a : a == 0 ? T(0) : a)
OP1(sqrt, std::sqrt(a))
OP1(rcp, 1 / a)
OP2(add, a + b)
OP2(sub, a - b)
OP2(mul, a * b)
OP2(mul_lo, a * b)
OP2(div, quotient(a, b))
OP2(rem, a % nonzero(b))
OP2(min, least(a, b))
OP2(max, greatest(a, b))
OP2(and, a & b)
OP2(or, a | b)
OP2(xor, a ^ b)
OP3(mad_lo, a * b + c)
OP3(fma, std::fma(a, b, c))
COMPARE(eq, a == b)
COMPARE(ne, kFloat<T> ? a < b || a > b : a != b)
COMPARE(lt, a < b)
COMPARE(le, a <= b)
COMPARE(gt, a > b)
COMPARE(ge, a >= b)
COMPARE(equ, !(a < b || a > b))
COMPARE(neu, !(a == b))
COMPARE(ltu, !(a >= b))
COMPARE(leu, !(a > b))
COMPARE(gtu, !(a <= b))
COMPARE(geu, !(a < b))
COMPARE(num, a == a && b == b)
COMPARE(nan, a != a || b != b)

template <class T>
T op_not(T a) {
  return std::is_same<T, bool>::value ? !a : ~a;
}
template <class T>
Bits<T> op_selp(Bits<T> a, Bits<T> b, bool first) {
  return first ? a : b;
}
template <class T>
T op_shl(T a, U32 n) {
  return n < kBits<T> ? T(a << n) : T(0);
}
template <class T>
T op_shr(T a, U32 n) {
  return n < kBits<T> ? T(a >> n) : T(a < 0 ? -1 : 0);
}
template <class T>
T op_bfi(T a, T b, U32 first, U32 count) {  // the lowest bits of a, put into b
  const T mask = (count < kBits<T> ? (T(1) << count) - 1 : ~T(0)) << first;
  return (b & ~mask) | (a << first & mask);
}
template <class T>
T op_brev(T a) {
  T reversed = 0;
  for (U32 k = 0; k < kBits<T>; ++k) reversed |= (a >> k & 1) << (kBits<T> - 1 - k);
  return reversed;
}
template <class T>
U32 op_popc(T a) {
  return __builtin_popcount(a);
}
template <class T>
U32 op_bfind_shiftamt(T a) {  // how far the highest bit is from the left
  return a ? __builtin_clz(a) : ~U32(0);
}
template <class T>
T op_shf_l_wrap(T low, T high, U32 n) {
  return n % 32 ? T(high << n % 32 | low >> (32 - n % 32)) : high;
}
template <class T>
Bits<T> op_rcp_approx_ftz(Bits<T> a) {  // of a double the upper half alone
  return bits<T>(1 / value<T>(a)) >> 32 << 32;
}

template <class T>
auto op_mul_wide(T a, T b) {
  if constexpr (sizeof(T) == 2) return std::conditional_t<std::is_signed<T>::value, S32, U32>(a) * b;
  else return std::conditional_t<std::is_signed<T>::value, S64, U64>(a) * b;
}
template <class T>
T op_mul_hi(T a, T b) {
  using Wide = std::conditional_t<std::is_signed<T>::value, __int128, unsigned __int128>;
  return T(Wide(a) * b >> kBits<T>);
}

template <class To, class From>
Bits<To> op_cvt(Bits<From> x) {
  return bits<To>(To(value<From>(x)));
}
template <class To, class From>
To op_cvt_rzi(Bits<From> x_) {
  using Limits = std::numeric_limits<To>;
  const From x = value<From>(x_);
  if (!(x == x)) return 0;
  return x <= From(Limits::min()) ? Limits::min() : x >= From(Limits::max()) ? Limits::max() : To(x);
}
template <class T>
U64 op_low(U64 x) {
  return x & (~U64(0) >> (64 - kBits<T> / 2));
}
template <class T>
U64 op_high(U64 x) {
  return x >> (kBits<T> / 2);
}
template <class T>
T op_pack(U64 low, U64 high) {
  return T(low | high << (kBits<T> / 2));
}

// Lanes.

inline void all_lanes(U32 mask) {
  if (mask != 0xffffffffu) lanes::fail("a mask without all lanes");
}
inline void op_bar_sync(int) { __syncthreads(); }
inline void op_bar_warp_sync(U32 mask) {
  all_lanes(mask);
  __syncwarp();
}
template <class T>
T op_shfl_sync_bfly(T x, U32 offset, U32 clamp, U32 mask) {
  all_lanes(mask);
  if (clamp != 31) lanes::fail("an exchange within a part of a warp");
  return T(__shfl_xor_sync(mask, int(x), int(offset)));
}
template <class T>
bool op_vote_sync_any(bool x, U32 mask) {
  all_lanes(mask);
  return __any_sync(mask, x);
}
template <class T>
T op_vote_sync_ballot(bool x, U32 mask) {
  all_lanes(mask);
  return __ballot_sync(mask, x);
}
template <class T>
T op_redux_sync_min(T x, U32 mask) {
  all_lanes(mask);
  return __reduce_min_sync(mask, x);
}
