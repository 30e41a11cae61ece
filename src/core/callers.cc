#include "core/callers.h"

#include <algorithm>
#include <array>
#include <atomic>

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

struct State {
  int slot = kUnknown;
  bool inside = false;
  int others = 0;           // that the thread leaves cores to
  int calls = 0, most = 0;  // since it has seen as many, and the most that it has seen in these
};
constinit thread_local State state;

int take_slot() {
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i)];
    if (slot.taken.load(std::memory_order_relaxed) || slot.taken.exchange(true)) continue;
    int in_use = slots_in_use.load();
    while (in_use <= i && !slots_in_use.compare_exchange_weak(in_use, i + 1)) {
    }
    struct End {
      ~End() {
        if (state.slot >= 0) slots[static_cast<std::size_t>(state.slot)].taken.store(false);
        state.slot = kNone;
      }
    };
    static thread_local const End end;
    static_cast<void>(end);
    return i;
  }
  return kNone;
}

int others_inside() {
  const int in_use = slots_in_use.load(std::memory_order_relaxed);
  int others = 0;
  for (int i = 0; i < in_use; ++i)
    others += i != state.slot &&
              slots[static_cast<std::size_t>(i)].inside.load(std::memory_order_relaxed);
  return others;
}

void look_at_others() {
  const int others = others_inside();
  if (others >= state.others) {
    state.others = others;
    state.calls = state.most = 0;
    return;
  }
  state.most = std::max(state.most, others);
  if (++state.calls < kCalls) return;
  state.others = state.most;
  state.calls = state.most = 0;
}

}  // namespace

Caller::Caller() : counts_(!state.inside && thread_budget() == 0) {
  if (!counts_) return;
  if (state.slot == kUnknown) [[unlikely]]
    state.slot = take_slot();
  state.inside = true;
  if (state.slot >= 0)
    slots[static_cast<std::size_t>(state.slot)].inside.store(true, std::memory_order_relaxed);
  look_at_others();
}

Caller::~Caller() {
  if (!counts_) return;
  state.inside = false;
  if (state.slot >= 0)
    slots[static_cast<std::size_t>(state.slot)].inside.store(false, std::memory_order_relaxed);
}

int Caller::share(int threads) const {
  if (const int budget = thread_budget(); budget > 0) return std::min(budget, threads);
  return std::max(1, threads / (state.others + 1));
}

}  // namespace tandem
