// Random 64-bit integers as a function of their address, equal to those of association/resampling/random.py. SplitMix64:
// Steele, Lea & Flood 2014, doi:10.1145/2714064.2660195.
#pragma once
#include <cstdint>

#include "common/parallel.h"

namespace subsets {

COMMON_INLINE inline uint64_t random_integer(uint64_t stream_offset, uint64_t row, uint64_t column) {
  uint64_t z = ((row << 24) + column) * 0x9E3779B97F4A7C15ull + stream_offset;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

}  // namespace subsets
