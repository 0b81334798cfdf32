// What every operator on the CPU runs in: one choice of vector width, and one loop over threads.
#pragma once
#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <type_traits>

// Drawn into its caller, and so compiled for the vectors of it.
#define COMMON_INLINE __attribute__((always_inline))
// Kept out of hot loops, and compiled once: what allocates, sorts or throws.
#define COMMON_APART __attribute__((noinline))

namespace common {

template <int bytes>
using Bytes = std::integral_constant<int, bytes>;

// Features of processors, each list said once: a function is compiled for it, and runs where all of it is there.
#if defined(__x86_64__)
#define COMMON_NAME(feature) feature
#define COMMON_HERE(feature) __builtin_cpu_supports(feature)
#define COMMON_FEATURES_64(of, join) of("avx512f") join of("avx512bw") join of("avx512dq") join of("avx512vl") join of("fma")
#define COMMON_FEATURES_32(of, join) of("avx2") join of("fma")

#define COMMON_FEATURES_WORDS_64(of, join) COMMON_FEATURES_64(of, join) join of("avx512vnni")
#define COMMON_FEATURES_WORDS_32(of, join) COMMON_FEATURES_32(of, join) join of("avxvnni")
#define COMMON_WITH_WORDS_64 __attribute__((target(COMMON_FEATURES_WORDS_64(COMMON_NAME, ","))))
#define COMMON_WITH_WORDS_32 __attribute__((target(COMMON_FEATURES_WORDS_32(COMMON_NAME, ","))))

template <class F>
__attribute__((target(COMMON_FEATURES_64(COMMON_NAME, ",")))) void with_64_bytes(const F& body) {
  const F own = body;
  own(Bytes<64>());
}
template <class F>
__attribute__((target(COMMON_FEATURES_32(COMMON_NAME, ",")))) void with_32_bytes(const F& body) {
  const F own = body;
  own(Bytes<32>());
}
#endif

// The widest vectors that may be used: TENSORMETRICS_VECTOR_BYTES of the environment, for those who try narrower ones.
inline int widest() {
  static const int bytes = [] {
    const char* const said = std::getenv("TENSORMETRICS_VECTOR_BYTES");
    return said ? std::atoi(said) : 64;
  }();
  return bytes;
}

// The width in bytes of the vectors in which this processor adds products of 16-bit words in one instruction, 0: it does
// not. What does so is compiled COMMON_WITH_WORDS_64 or _32.
inline int multiplies_words() {
#if defined(__x86_64__)
  if (widest() >= 64 && COMMON_FEATURES_WORDS_64(COMMON_HERE, &&)) return 64;
  if (widest() >= 32 && COMMON_FEATURES_WORDS_32(COMMON_HERE, &&)) return 32;
#endif
  return 0;
}

// The width in bytes of the vectors for which loops are compiled that run here.
inline int vector_bytes() {
  static const int bytes = [] {
#if defined(__x86_64__)
    if (widest() >= 64 && COMMON_FEATURES_64(COMMON_HERE, &&)) return 64;
    if (widest() >= 32 && COMMON_FEATURES_32(COMMON_HERE, &&)) return 32;
#endif
    return 16;
  }();
  return bytes;
}

// body(Bytes<width>()), compiled for the widest vectors of this processor. The body and the loops that it calls are
// COMMON_INLINE: what stays a function of its own is compiled for the least processor, once for all widths. What the body
// captures by value the compiler knows to be no part of the arrays that it writes to.
template <class F>
void vectorised(const F& body) {
#if defined(__x86_64__)
  if (vector_bytes() == 64) return with_64_bytes(body);
  if (vector_bytes() == 32) return with_32_bytes(body);
#endif
  const F own = body;
  own(Bytes<16>());
}

// body(begin, end) over 0..n on all threads. An exception would lose its message on its way out of torch's loop: the
// first one is raised here, in the name of the operator.
template <class F>
void in_parallel(const char* name, int64_t n, int64_t grain, const F& body) {
  std::atomic<bool> failed{false};
  std::string why;
  const auto fail = [&](const char* with) {
    if (!failed.exchange(true)) why = with;
  };
  torch::stable::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    try {
      body(begin, end);
    } catch (const std::bad_alloc&) {
      fail("out of memory");
    } catch (const std::exception& error) {
      fail(error.what());
    }
  });
  STD_TORCH_CHECK(!failed, name, ": ", why);
}

}  // namespace common
