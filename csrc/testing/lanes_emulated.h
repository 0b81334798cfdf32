// Emulation of the CUDA functions of lanes.h on a CPU: the lanes of a block take turns, each on a separate stack, from one
// synchronization (meeting) to the next; their order varies, and warps run ahead of each other. So an unsynchronized read
// gives another result than the CPU kernel, and lanes of a warp that synchronize differently, or not at all, are an error.
#pragma once
#undef _FORTIFY_SOURCE  // its longjmp refuses to change stacks
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

inline double __dmul_rn(double x, double y) { return x * y; }

struct Index {
  unsigned x;
};
static Index threadIdx, blockIdx;

namespace lanes {

enum Meeting { kNone, kSync, kExchange, kReduce, kBlock, kEnd };

struct Lane {
  ucontext_t start;
  jmp_buf context;
  Meeting meeting = kNone;
  bool is_waiting = false, has_started = false;
  int64_t values[2];  // exchanged values, used alternately
  int turn = 0;
};

struct Emulation {
  static constexpr size_t kStack = 1 << 18;
  std::vector<Lane> lanes;
  std::vector<char> stacks;
  std::function<void()> body;
  Lane* current = nullptr;  // null between the turns of lanes
  std::string failure;
  uint32_t random_state = 0;
  jmp_buf home;
};
static Emulation emulation;  // one block at a time, in one thread

// Aborts the block: run_block throws.
[[noreturn]] inline void fail(const std::string& why) {
  emulation.failure = "emulated lanes: " + why;
  if (emulation.current) _longjmp(emulation.home, 1);  // an exception would not leave the stack of a lane
  throw std::runtime_error(emulation.failure);
}

__attribute__((noinline)) inline void meet(Meeting meeting) {
  Lane& lane = *emulation.current;
  lane.meeting = meeting;
  lane.is_waiting = true;
  if (_setjmp(lane.context) == 0) _longjmp(emulation.home, 1);
}

inline void begin_lane() {
  emulation.body();
  emulation.current->meeting = kEnd;
  emulation.current->is_waiting = true;
  _longjmp(emulation.home, 1);
}

__attribute__((noinline)) inline void resume(Lane& lane, unsigned index) {
  threadIdx.x = index;
  emulation.current = &lane;
  if (_setjmp(emulation.home) != 0) {
    emulation.current = nullptr;
    if (!emulation.failure.empty()) throw std::runtime_error(emulation.failure);
    return;
  }
  if (lane.has_started) _longjmp(lane.context, 1);
  lane.has_started = true;
  setcontext(&lane.start);
}

// Resumes the warps whose lanes have all met, or else the block. Returns false if all lanes have ended.
inline bool release(std::vector<Lane>& lanes) {
  bool any = false;
  for (size_t first = 0; first < lanes.size(); first += 32) {
    const Meeting meeting = lanes[first].meeting;
    const bool wait = lanes[first].is_waiting;
    for (size_t k = first; k < first + 32; ++k) {
      if (lanes[k].meeting != meeting || lanes[k].is_waiting != wait) fail("the lanes of a warp part");
      lanes[k].is_waiting = wait && meeting >= kBlock;
    }
    any |= !lanes[first].is_waiting;
  }
  if (any) return true;
  for (Lane& lane : lanes) {
    if (lane.meeting != lanes[0].meeting) fail("the warps of a block part");
    lane.is_waiting = lane.meeting == kEnd;
  }
  return !lanes[0].is_waiting;
}

// `threads` is a power of two.
inline void run_block(unsigned block, int threads, std::function<void()> body) {
  Emulation& e = emulation;
  e.lanes.assign(threads, Lane());
  e.stacks.resize(threads * Emulation::kStack);
  e.body = std::move(body);
  e.failure.clear();
  blockIdx.x = block;
  for (int k = 0; k < threads; ++k) {
    getcontext(&e.lanes[k].start);
    e.lanes[k].start.uc_stack.ss_sp = e.stacks.data() + k * Emulation::kStack;
    e.lanes[k].start.uc_stack.ss_size = Emulation::kStack;
    makecontext(&e.lanes[k].start, begin_lane, 0);
  }
  uint32_t resting = 0;  // a bit for each warp, for some turns
  for (int turn = 0; turn == 0 || release(e.lanes); ++turn) {
    e.random_state = e.random_state * 1664525u + 1013904223u;
    if (turn % 32 == 0) resting = e.random_state >> 16;
    const int step = e.random_state >> 31 ? 1 : threads - 1;
    for (int k = 0, index = e.random_state >> 8 & (threads - 1); k < threads; ++k, index = (index + step) % threads) {
      const bool rests = resting >> (index / 32 % 8) & 1;
      if (!rests && !e.lanes[index].is_waiting) resume(e.lanes[index], index);
    }
  }
}

// Exchanges a value with all lanes of the warp, and passes use() a function from a lane to its value.
template <class Use>
auto all_gather(int64_t value, Meeting meeting, Use use) {
  Lane& mine = *emulation.current;
  const int turn = mine.turn;
  mine.values[turn] = value;
  mine.turn = 1 - turn;
  meet(meeting);
  const Lane* const warp = &emulation.lanes[threadIdx.x / 32 * 32];
  return use([&](int lane) { return warp[lane].values[turn]; });
}

}  // namespace lanes

inline void __syncwarp() { lanes::meet(lanes::kSync); }
inline void __syncthreads() { lanes::meet(lanes::kBlock); }

inline int __shfl_xor_sync(unsigned, int x, int offset) {
  return lanes::all_gather(x, lanes::kExchange, [&](auto of) { return int(of((threadIdx.x % 32) ^ offset)); });
}

inline unsigned __ballot_sync(unsigned, bool x) {
  return lanes::all_gather(x, lanes::kReduce, [&](auto of) {
    unsigned mask = 0;
    for (int lane = 0; lane < 32; ++lane) mask |= unsigned(of(lane) != 0) << lane;
    return mask;
  });
}
inline int __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

template <class X>
X __reduce_min_sync(unsigned, X x) {  // int or unsigned
  return lanes::all_gather(x, lanes::kReduce, [&](auto of) {
    X minimum = X(of(0));
    for (int lane = 1; lane < 32; ++lane) minimum = std::min(minimum, X(of(lane)));
    return minimum;
  });
}
