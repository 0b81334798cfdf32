// What products of words leave possible: of each query a list, with room for some references.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "canonical.h"
#include "common/parallel.h"

namespace nearest {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr int64_t kLeastCapacity = 8;  // below it, an eighth is nothing, and a list that is full would not be flooded

// Do lists that a reference may enter have room for it?
inline void check_lists(const char* operation, const Tensor& number, const Tensor& limit, int64_t capacity) {
  common::check_range<int32_t>(operation, "number", number, capacity + 1);
  STD_TORCH_CHECK(capacity >= kLeastCapacity, operation, ": got lists of ", capacity, " places, wanted at least ",
                  kLeastCapacity);
  const auto* const numbers = data<const int32_t>(number);
  const auto* const limits = data<const float>(limit);
  bool is_full = false;
  for (int64_t q = 0; q < number.numel(); ++q) is_full |= numbers[q] == capacity && !(limits[q] == -kInfinity);
  STD_TORCH_CHECK(!is_full, operation, ": got a list that is full, wanted number < ", capacity, " or limit = -inf");
}

// What may be among the k nearest of each query so far. Where that is more than there is room for, nothing is known: the
// query is flooded, and `number` is `capacity`.
struct Possible {
  float* bounds;       // (Q, 2, capacity), lower and upper
  int32_t* column;     // (Q, capacity)
  int32_t* number;     // (Q,)
  float* limit;        // (Q,) what is not below does not enter
  const float* slack;  // (Q,)
  int64_t capacity, k;

  Possible(const Tensor& slack, const Tensor& bounds, const Tensor& column, const Tensor& number, const Tensor& limit,
           int64_t k)
      : bounds(data<float>(bounds)), column(data<int32_t>(column)), number(data<int32_t>(number)),
        limit(data<float>(limit)), slack(data<const float>(slack)), capacity(bounds.size(2)), k(k) {}

  float* lower(int64_t q) const { return bounds + 2 * q * capacity; }
  float* upper(int64_t q) const { return lower(q) + capacity; }

  // least: a lower bound of the place of reference `at`; the upper one is `apart` more
  COMMON_INLINE void push(int64_t q, float least, float apart, int64_t at) const {
    if (!(least < limit[q])) return;
    const int64_t n = number[q]++;
    lower(q)[n] = least;
    upper(q)[n] = least + apart;
    column[q * capacity + n] = static_cast<int32_t>(at);
    if (n + 1 >= capacity) make_room(q);
  }
  COMMON_APART void make_room(int64_t q) const {
    lower_limit(q, upper(q), capacity);
    const bool flooded = keep_below_limit(q) > capacity - capacity / 8;
    if (!flooded) return;
    number[q] = static_cast<int32_t>(capacity);
    limit[q] = -kInfinity;
  }

  // Given upper bounds of k or more references, at least k have a place of at most the k-th least of these, but for the
  // slack: what is above it by more than two slacks is none of the k nearest.
  void lower_limit(int64_t q, const float* values, int64_t count) const {
    if (count >= k) limit[q] = std::min(limit[q], std::nextafter(above_least(values, count) + 2 * slack[q], kInfinity));
  }

  // How many are left of what was possible.
  int64_t keep_below_limit(int64_t q) const {
    float *const low = lower(q), *const high = upper(q);
    int32_t *const columns = column + q * capacity;
    const int64_t count = number[q];
    const float limit_here = limit[q];
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      const bool stays = low[i] < limit_here;
      low[left] = low[i];
      high[left] = high[i];
      columns[left] = columns[i];
      left += stays;
    }
    number[q] = static_cast<int32_t>(left);
    return left;
  }

  // A number that k of these values do not exceed, and hardly more: by bisection, which reads them all at once.
  float above_least(const float* values, int64_t count) const {
    float found;
    common::vectorised([=, wanted = k, &found](auto) COMMON_INLINE {
      float low = values[0], high = values[0];
      for (int64_t i = 1; i < count; ++i) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
      }
      for (int turn = 0; turn < 24; ++turn) {
        const float middle = low + (high - low) / 2;
        if (!(low < middle && middle < high)) break;
        int32_t below = 0;
        for (int64_t i = 0; i < count; ++i) below += values[i] <= middle;
        (below >= wanted ? high : low) = middle;
        if (below == wanted) break;
      }
      found = high;
    });
    return found;
  }
};

}  // namespace nearest
