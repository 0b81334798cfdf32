// The assignment operator on the CPU: one lane per problem, problems spread over threads.
// `lsa_lanes` runs the same algorithm with 32 emulated lanes, so that the tests exercise what a CUDA warp does.
#include "lsa_tensors.h"

namespace lsa {

struct OneLane {
  template <class F>
  void for_each(int32_t n, F f) const {
    for (int32_t j = 0; j < n; ++j) f(j);
  }
  template <class F>
  bool any(int32_t n, F f) const {
    bool found = false;
    for (int32_t j = 0; j < n; ++j) found |= f(j);
    return found;
  }
  template <class F>
  auto least(int32_t n, F f) const {
    auto best = f(0);
    for (int32_t j = 1; j < n; ++j) {
      const auto candidate = f(j);
      if (candidate.before(best)) best = candidate;
    }
    return best;
  }
  template <class F>
  void once(F f) const { f(); }
};

struct EmulatedWarp {
  static constexpr int kLanes = 32;

  template <class F>
  void for_each(int32_t n, F f) const {
    for (int lane = kLanes - 1; lane >= 0; --lane)  // backwards: an order that real lanes may take, too
      for (int32_t j = lane; j < n; j += kLanes) f(j);
  }
  template <class F>
  bool any(int32_t n, F f) const {
    bool found = false;
    for_each(n, [&](int32_t j) { found |= f(j); });
    return found;
  }
  template <class F>
  auto least(int32_t n, F f) const {
    using T = decltype(f(0).distance);
    Candidate<T> best[kLanes];
    for (auto& lane : best) lane = no_candidate<T>();
    for_each(n, [&](int32_t j) {
      const auto candidate = f(j);
      if (candidate.before(best[j % kLanes])) best[j % kLanes] = candidate;
    });
    for (int offset = kLanes / 2; offset > 0; offset /= 2)  // the butterfly of the warp's shuffles
      for (int lane = 0; lane < offset; ++lane)
        if (best[lane + offset].before(best[lane])) best[lane] = best[lane + offset];
    return best[0];
  }
  template <class F>
  void once(F f) const { f(); }
};

template <class Group, class T>
Results solve_all(const Tensor& cost, bool maximize, const std::optional<Tensor>& row_lengths,
                  const std::optional<Tensor>& col_lengths) {
  const Outputs out(cost);
  const Batch<T> batch = make_batch<T>(cost, maximize, row_lengths, col_lengths, out);
  // About 10^5 cost entries make a task: below that, handing it to another thread costs more than it saves.
  const int64_t grain = 100000 / (batch.rows * batch.cols + 1) + 1;
  torch::stable::parallel_for(0, batch.problems, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> distance(batch.wide());
    std::vector<int32_t> parent(batch.wide());
    std::vector<uint8_t> reached(batch.wide());
    Batch<T> task = batch;
    task.distance = distance.data();
    task.parent = parent.data();
    task.reached = reached.data();
    for (int64_t b = begin; b < end; ++b) task.solve_one(Group{}, b, 0);
  });
  return out.results();
}

template <class Group>
Results on_cpu(const Tensor& cost, bool maximize, std::optional<Tensor> row_lengths,
               std::optional<Tensor> col_lengths) {
  const ScalarType type = cost.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double, "cost: wanted float32 or float64");
  return type == ScalarType::Float ? solve_all<Group, float>(cost, maximize, row_lengths, col_lengths)
                                   : solve_all<Group, double>(cost, maximize, row_lengths, col_lengths);
}

}  // namespace lsa

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa", TORCH_BOX(&lsa::on_cpu<lsa::OneLane>));
  m.impl("lsa_lanes", TORCH_BOX(&lsa::on_cpu<lsa::EmulatedWarp>));
}
