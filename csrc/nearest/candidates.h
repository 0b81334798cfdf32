// Candidates of each query after products of int16 codes: a list of bounded capacity.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "canonical.h"
#include "common/parallel.h"

namespace nearest {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr int64_t kMinCapacity = 8;  // below it an eighth is 0, and a full list would not count as flooded

// Checks that no list that a reference may enter is full.
inline void check_lists(const char* operation, const Tensor& list_size, const Tensor& limit, int64_t capacity) {
  common::check_range<int32_t>(operation, "list_size", list_size, capacity + 1);
  STD_TORCH_CHECK(capacity >= kMinCapacity, operation, ": got lists of ", capacity, " entries, wanted at least ",
                  kMinCapacity);
  const auto* const counts = data<const int32_t>(list_size);
  const auto* const limits = data<const float>(limit);
  bool is_full = false;
  for (int64_t q = 0; q < list_size.numel(); ++q) is_full |= counts[q] == capacity && !(limits[q] == -kInfinity);
  STD_TORCH_CHECK(!is_full, operation, ": got a list that is full, wanted list_size < ", capacity, " or limit = -inf");
}

// References that may be among the k nearest of each query so far. If they exceed the capacity, the query is flooded: it
// has no result, and its count is `capacity`.
struct Candidates {
  float* bounds;       // (Q, 2, capacity), lower and upper
  int32_t* column;     // (Q, capacity)
  int32_t* count;      // (Q,) entries of each list
  float* limit;        // (Q,) only entries below it are added
  const float* rounding_error;  // (Q,)
  int64_t capacity, k;

  Candidates(const Tensor& rounding_error, const Tensor& bounds, const Tensor& column, const Tensor& list_size,
             const Tensor& limit, int64_t k)
      : bounds(data<float>(bounds)), column(data<int32_t>(column)), count(data<int32_t>(list_size)),
        limit(data<float>(limit)), rounding_error(data<const float>(rounding_error)), capacity(bounds.size(2)), k(k) {}

  float* lower(int64_t q) const { return bounds + 2 * q * capacity; }
  float* upper(int64_t q) const { return lower(q) + capacity; }

  // low: a lower bound of the filter value of reference `index`; the upper bound is low + gap
  COMMON_INLINE void push(int64_t q, float low, float gap, int64_t index) const {
    if (!(low < limit[q])) return;
    const int64_t n = count[q]++;
    lower(q)[n] = low;
    upper(q)[n] = low + gap;
    column[q * capacity + n] = static_cast<int32_t>(index);
    if (n + 1 >= capacity) compact(q);
  }
  COMMON_NOINLINE void compact(int64_t q) const {
    lower_limit(q, upper(q), capacity);
    const bool flooded = keep_below_limit(q) > capacity - capacity / 8;
    if (!flooded) return;
    count[q] = static_cast<int32_t>(capacity);
    limit[q] = -kInfinity;
  }

  // Given upper bounds of at least k references, at least k of them do not exceed the k-th smallest bound, up to the error
  // `rounding_error`: a reference above it by more than twice the error is not among the k nearest.
  void lower_limit(int64_t q, const float* values, int64_t count) const {
    if (count < k) return;
    limit[q] = std::min(limit[q], std::nextafter(kth_smallest_bound(values, count) + 2 * rounding_error[q], kInfinity));
  }

  // Removes the entries that are not below the limit, and returns how many remain.
  int64_t keep_below_limit(int64_t q) const {
    float *const low = lower(q), *const high = upper(q);
    int32_t *const columns = column + q * capacity;
    const int64_t size = count[q];
    const float limit_of_query = limit[q];
    int64_t remaining = 0;
    for (int64_t i = 0; i < size; ++i) {
      const bool is_below = low[i] < limit_of_query;
      low[remaining] = low[i];
      high[remaining] = high[i];
      columns[remaining] = columns[i];
      remaining += is_below;
    }
    count[q] = static_cast<int32_t>(remaining);
    return remaining;
  }

  // Returns an upper bound of the k-th smallest value by bisection; few other values are below it.
  float kth_smallest_bound(const float* values, int64_t count) const {
    float bound;
    common::vectorized([=, rank = k, &bound](auto) COMMON_INLINE {
      float low = values[0], high = values[0];
      for (int64_t i = 1; i < count; ++i) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
      }
      for (int turn = 0; turn < 24; ++turn) {
        const float center = low + (high - low) / 2;
        if (!(low < center && center < high)) break;
        int32_t below = 0;
        for (int64_t i = 0; i < count; ++i) below += values[i] <= center;
        (below >= rank ? high : low) = center;
        if (below == rank) break;
      }
      bound = high;
    });
    return bound;
  }
};

}  // namespace nearest
