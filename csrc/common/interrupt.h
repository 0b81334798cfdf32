// Interruption of a call by Ctrl-C: one Python thread runs the call, another waits for it and sets a flag that loops read
// between tiles, rows or samples. The results of an interrupted call are discarded.
#pragma once
#include <cstdint>

namespace stop {

inline thread_local const int8_t* current_flag = nullptr;  // the flag of this thread's call; null: none

inline bool is_requested(const int8_t* flag) { return flag && __atomic_load_n(flag, __ATOMIC_RELAXED); }

// Created in the thread of the call, read by all its worker threads.
class Flag {
 public:
  bool operator()() const { return is_requested(flag_); }

 private:
  const int8_t* flag_ = current_flag;
};

}  // namespace stop

extern "C" __attribute__((used, visibility("default"))) inline void tensormetrics_stop_flag(const int8_t* flag) {
  stop::current_flag = flag;
}
