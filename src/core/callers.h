// The threads of the host that compute at the same time. They share the cores, so that they have no
// teams for all cores each.
#pragma once

namespace tandem {

// The team of the calling thread's ThreadBudget; 0 without one.
int thread_budget();

// Counts the calling thread among those that compute while it lives, unless the thread has a
// ThreadBudget. Scopes nest.
class Caller {
 public:
  Caller();
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // The part of a device's threads that the calling thread may use, at least 1.
  int share(int threads) const;

 private:
  struct State;
  static State& state_of_thread();

  State& state_;
  int budget_;
  bool counts_;
};

}  // namespace tandem
