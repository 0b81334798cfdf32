// The assignment operator on the CPU: one lane per problem, problems spread over threads.
#include <algorithm>
#include <memory>

#include "common/parallel.h"
#include "lsa_bounds.h"
#include "lsa_simd.h"
#include "lsa_tensors.h"
#include "lsa_tiny.h"

namespace lsa {

constexpr int64_t kFew = 128;  // columns: below, a row is too few wide vectors for these to pay
constexpr int kNarrow = 32;
constexpr int64_t kMany = 1024;  // columns: below, finding out what need not be read of a row costs more than reading it

template <class Lane, class T>
void solve_range(const Batch<T>& batch, int64_t begin, int64_t end) {
  Lane group;
  std::vector<char> room(batch.side() * Memory<T>::kBytes);
  const Memory<T> memory(room.data(), batch.side());
  for (int64_t b = begin; b < end && !stop::asked(batch.stop); ++b) batch.solve_one(group, b, memory);
}

// A problem in each lane of a vector.
template <int bytes, class T>
void solve_tiny(const Batch<T>& batch, int64_t begin, int64_t end) {
  using Lanes = Tiny<T, std::min(bytes, kNarrow)>;
  const auto lanes = std::make_unique<Lanes>();
  OneLane<T, std::min(bytes, kNarrow)> group;
  std::vector<char> room(batch.side() * Memory<T>::kBytes);
  const Memory<T> memory(room.data(), batch.side());
  const auto alone = [&](int64_t b) { batch.solve_one(group, b, memory); };
  for (int64_t b = begin; b < end && !stop::asked(batch.stop); b += Lanes::kLanes)
    lanes->solve(batch, b, static_cast<int32_t>(std::min<int64_t>(end - b, Lanes::kLanes)), memory, alone);
}

Results on_cpu(Tensor cost, bool maximize, std::optional<Tensor> row_lengths, std::optional<Tensor> col_lengths,
               std::optional<Tensor> mask, std::optional<Tensor> col_capacity, std::optional<Tensor> unmatched_cost,
               std::optional<int64_t> work_limit) {
  const Inputs in{cost, maximize, row_lengths, col_lengths, mask, col_capacity, unmatched_cost, work_limit};
  return dispatch(in, [](const auto& batch) {
    // About 10^5 cost entries make a task: below that, handing it to another thread costs more than it saves.
    const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
    common::in_parallel("linear_sum_assignment", batch.problems, grain, [&](int64_t begin, int64_t end) {
      common::vectorised([&](auto bytes) {
        constexpr int narrow = std::min<int>(bytes, kNarrow);
        using T = std::remove_const_t<std::remove_pointer_t<decltype(batch.cost)>>;
        using Lanes = Tiny<T, narrow>;
        if (Lanes::serves(batch) && end - begin >= Lanes::kLanes / 2) solve_tiny<bytes>(batch, begin, end);
        else if (batch.cols < kFew) solve_range<OneLane<T, narrow>>(batch, begin, end);
        else if (batch.cols < kMany) solve_range<OneLane<T, bytes>>(batch, begin, end);
        else solve_range<BoundedLane<T, bytes>>(batch, begin, end);
      });
    });
  });
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu));
}
