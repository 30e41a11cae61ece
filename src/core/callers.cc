#include "core/callers.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/shared_cores.h"

namespace tandem {
namespace {

// The state of a thread that computes, or has computed and may do so again. Each has a cache line.
struct alignas(64) Slot {
  std::atomic<bool> taken{false}, inside{false};
};
// More threads are not counted.
constexpr int kSlots = 64;
constinit std::array<Slot, kSlots> slots{};
constinit std::atomic<int> slots_in_use{0};  // those from here on have never been taken

constexpr int kUnknown = -1, kNone = -2;
// Another team means that threads end and others start, so that a thread takes more cores again
// only after this number of calls without as many others.
constexpr int kCalls = 64;

}  // namespace

// The state of one thread. A call looks it up once.
struct Caller::State {
  void take_slot();
  void look_at_others();
  int others_inside() const;

  int slot = kUnknown;
  bool inside = false;
  int others = 0;           // that the thread leaves cores to
  int calls = 0, most = 0;  // since it has seen as many, and the most that it has seen in these
  SharedCores cores;
};

Caller::State& Caller::state_of_thread() {
  static constinit thread_local State state;
  return state;
}

void Caller::State::take_slot() {
  slot = kNone;
  for (int i = 0; i < kSlots; ++i) {
    Slot& found = slots[static_cast<std::size_t>(i)];
    if (found.taken.load(std::memory_order_relaxed) || found.taken.exchange(true)) continue;
    int in_use = slots_in_use.load();
    while (in_use <= i && !slots_in_use.compare_exchange_weak(in_use, i + 1)) {
    }
    struct End {
      ~End() {
        State& state = state_of_thread();
        if (state.slot >= 0) slots[static_cast<std::size_t>(state.slot)].taken.store(false);
        state.slot = kNone;
      }
    };
    static thread_local const End end;
    static_cast<void>(end);
    slot = i;
    return;
  }
}

int Caller::State::others_inside() const {
  const int in_use = slots_in_use.load(std::memory_order_relaxed);
  int inside_now = 0;
  for (int i = 0; i < in_use; ++i)
    inside_now +=
        i != slot && slots[static_cast<std::size_t>(i)].inside.load(std::memory_order_relaxed);
  return inside_now;
}

void Caller::State::look_at_others() {
  const int now = others_inside();
  if (now >= others) {
    others = now;
    calls = most = 0;
    return;
  }
  most = std::max(most, now);
  if (++calls < kCalls) return;
  others = most;
  calls = most = 0;
}

Caller::Caller()
    : state_(state_of_thread()), budget_(thread_budget()), counts_(!state_.inside && budget_ == 0) {
  if (!counts_) return;
  if (state_.slot == kUnknown) [[unlikely]]
    state_.take_slot();
  state_.inside = true;
  if (state_.slot >= 0)
    slots[static_cast<std::size_t>(state_.slot)].inside.store(true, std::memory_order_relaxed);
  state_.look_at_others();
}

Caller::~Caller() {
  if (!counts_) return;
  state_.inside = false;
  if (state_.slot >= 0)
    slots[static_cast<std::size_t>(state_.slot)].inside.store(false, std::memory_order_relaxed);
}

int Caller::share(int threads) const {
  if (budget_ > 0) return std::min(budget_, threads);
  const int share = threads / (state_.others + 1);
  return share > 1 ? share - cores_left_to_others(state_.cores, share) : 1;
}

}  // namespace tandem
