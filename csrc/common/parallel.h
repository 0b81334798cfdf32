// Vector width and thread loop of all CPU operators.
#pragma once
#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <type_traits>

// Inlined into the caller, and so compiled for the caller's vectors.
#define COMMON_INLINE __attribute__((always_inline))
// Compiled once, outside of hot loops: code that allocates, sorts or throws.
#define COMMON_NOINLINE __attribute__((noinline))

namespace common {

template <int bytes>
using Bytes = std::integral_constant<int, bytes>;

// Processor features, each list defined once: functions are compiled for it, and run if all features are supported.
#if defined(__x86_64__)
#define COMMON_NAME(feature) feature
#define COMMON_SUPPORTS(feature) __builtin_cpu_supports(feature)
#define COMMON_FEATURES_64(of, join) of("avx512f") join of("avx512bw") join of("avx512dq") join of("avx512vl") join of("fma")
#define COMMON_FEATURES_32(of, join) of("avx2") join of("fma")

#define COMMON_FEATURES_INT16_64(of, join) COMMON_FEATURES_64(of, join) join of("avx512vnni")
#define COMMON_FEATURES_INT16_32(of, join) COMMON_FEATURES_32(of, join) join of("avxvnni")
#define COMMON_WITH_INT16_64 __attribute__((target(COMMON_FEATURES_INT16_64(COMMON_NAME, ","))))
#define COMMON_WITH_INT16_32 __attribute__((target(COMMON_FEATURES_INT16_32(COMMON_NAME, ","))))

template <class F>
__attribute__((target(COMMON_FEATURES_64(COMMON_NAME, ",")))) void with_64_bytes(const F& body) {
  const F copy = body;
  copy(Bytes<64>());
}
template <class F>
__attribute__((target(COMMON_FEATURES_32(COMMON_NAME, ",")))) void with_32_bytes(const F& body) {
  const F copy = body;
  copy(Bytes<32>());
}
#endif

// Maximum vector width in bytes: the environment variable TENSORMETRICS_VECTOR_BYTES lowers it for experiments.
inline int max_vector_bytes() {
  static const int bytes = [] {
    const char* const value = std::getenv("TENSORMETRICS_VECTOR_BYTES");
    return value ? std::atoi(value) : 64;
  }();
  return bytes;
}

// Vector width in bytes of this processor's instruction that adds products of int16; 0 if it has none. Functions that use
// it are compiled with COMMON_WITH_INT16_64 or _32.
inline int int16_vector_bytes() {
#if defined(__x86_64__)
  if (max_vector_bytes() >= 64 && COMMON_FEATURES_INT16_64(COMMON_SUPPORTS, &&)) return 64;
  if (max_vector_bytes() >= 32 && COMMON_FEATURES_INT16_32(COMMON_SUPPORTS, &&)) return 32;
#endif
  return 0;
}

// Vector width in bytes of the loops that run on this processor.
inline int vector_bytes() {
  static const int bytes = [] {
#if defined(__x86_64__)
    if (max_vector_bytes() >= 64 && COMMON_FEATURES_64(COMMON_SUPPORTS, &&)) return 64;
    if (max_vector_bytes() >= 32 && COMMON_FEATURES_32(COMMON_SUPPORTS, &&)) return 32;
#endif
    return 16;
  }();
  return bytes;
}

// Calls body(Bytes<width>()), compiled for the widest vectors of this processor. The body and the loops that it calls are
// COMMON_INLINE: functions that are not inlined are compiled once, for the baseline processor. The compiler knows that
// values captured by copy do not alias the arrays that the body writes.
template <class F>
void vectorized(const F& body) {
#if defined(__x86_64__)
  if (vector_bytes() == 64) return with_64_bytes(body);
  if (vector_bytes() == 32) return with_32_bytes(body);
#endif
  const F copy = body;
  copy(Bytes<16>());
}

// Calls body(begin, end) over 0..n on all threads. torch's loop drops the message of an exception, so the first exception
// is raised here with the name of the operator.
template <class F>
void in_parallel(const char* name, int64_t n, int64_t grain, const F& body) {
  std::atomic<bool> failed{false};
  std::string message;
  const auto fail = [&](const char* error_message) {
    if (!failed.exchange(true)) message = error_message;
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
  STD_TORCH_CHECK(!failed, name, ": ", message);
}

}  // namespace common
