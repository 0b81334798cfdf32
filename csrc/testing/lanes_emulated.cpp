// The CUDA operators, with lanes emulated on the CPU: for tests.
#include "lanes_emulated.h"

#include "dirichlet/dirichlet_lane.h"
#include "lsa/lsa_registers.h"
#include "lsa/lsa_tensors.h"

namespace lsa {

// Searches in registers, or in memory for more columns and for capacities.
template <int W, int K, class T>
void emulate(const Batch<T>& batch) {
  if (!batch.col_capacity && std::max(batch.rows, batch.cols) <= 32 * W * K) {
    constexpr int32_t teams = W == 1 ? 2 : 1;
    const int64_t blocks = (batch.problems + 2 * teams - 1) / (2 * teams);  // each team takes two
    std::vector<char> memory(teams * Search<T, W, K>::kBytes);
    for (int64_t block = 0; block < blocks; ++block)
      lanes::run_block(static_cast<unsigned>(block), 32 * W * teams,
                       [&] { solve_in_registers<W, K>(batch, teams, blocks * teams, memory.data()); });
    return;
  }
  using Team = lanes::Block<64>;
  const int64_t blocks = (batch.problems + 1) / 2;
  std::vector<char> memory(blocks * batch.search_bytes());
  for (int64_t block = 0; block < blocks; ++block)
    lanes::run_block(static_cast<unsigned>(block), Team::kThreads,
                     [&] { solve_assigned<Team>(batch, blocks, memory.data()); });
}

template <bool one_warp>
struct OnLanes {
  explicit OnLanes(const Tensor&) {}
  template <class T>
  void operator()(const Batch<T>& batch) const {
    if constexpr (one_warp) emulate<1, 4>(batch);
    else emulate<sizeof(T) == 4 ? 4 : 8, 1>(batch);
  }
};

}  // namespace lsa

namespace dirichlet {

template <class Team>
void sums_on_lanes(Tensor out, Tensor prevalence, Tensor alphas, std::optional<Tensor> weights, Tensor keys,
                   int64_t start) {
  with_tables(out, prevalence, alphas, weights, keys, start, [](const auto& problem) {
    using T = std::remove_pointer_t<decltype(problem.out)>;
    const int64_t total = problem.experiments * problem.samples;
    const int64_t blocks = (total + 2 * Team::kTeams - 1) / (2 * Team::kTeams);  // each team draws two
    std::vector<char> shared(Team::kTeams * Matrix<Team, T>::bytes(problem));
    for (int64_t block = 0; block < blocks; ++block)
      lanes::run_block(static_cast<unsigned>(block), Team::kThreads,
                       [&] { draw_assigned<Team>(problem, blocks * Team::kTeams, nullptr, shared.data()); });
  });
}

void sums_by_lanes(Tensor out, Tensor prevalence, Tensor alphas, std::optional<Tensor> weights, Tensor keys,
                   int64_t start) {
  with_tables(out, prevalence, alphas, weights, keys, start, [](const auto& problem) {
    using T = std::remove_pointer_t<decltype(problem.out)>;
    const int64_t units = problem.experiments * ((problem.samples + kWarp - 1) / kWarp), blocks = (units + 1) / 2;
    std::vector<char> shared(LaneMatrix<T>::bytes(problem));
    for (int64_t block = 0; block < blocks; ++block)
      lanes::run_block(static_cast<unsigned>(block), kWarp, [&] { draw_samples(problem, blocks, shared.data()); });
  });
}

}  // namespace dirichlet

STABLE_TORCH_LIBRARY_IMPL(tensormetrics, CPU, m) {
  m.impl("lsa_warp", TORCH_BOX(&lsa::solve<lsa::OnLanes<true>>));
  m.impl("lsa_block", TORCH_BOX(&lsa::solve<lsa::OnLanes<false>>));
  m.impl("dirichlet_sums_lane", TORCH_BOX(&dirichlet::sums_by_lanes));
  m.impl("dirichlet_sums_warp", TORCH_BOX(&dirichlet::sums_on_lanes<lanes::Warp>));
  m.impl("dirichlet_sums_block", TORCH_BOX(&dirichlet::sums_on_lanes<lanes::Block<64>>));
}
