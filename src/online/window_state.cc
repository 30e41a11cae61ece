// The state of windows, for files.
#include <algorithm>
#include <array>
#include <bit>

#include "core/status.h"
#include "online/window.h"
#include "tensor/tensor_impl.h"

namespace tandem::online {
namespace {

constexpr const char *kWindowNumbers = "numbers", *kWindowX = "x", *kWindowY = "y",
                     *kWindowHeldX = "holdout_x", *kWindowHeldY = "holdout_y";
enum Number {
  kCapacity,
  kHeldCapacity,
  kReplace,
  kPushed,
  kOffered,
  kOldest,
  kHeldOldest,
  kRandomState,
  kNumberCount
};

using State = std::map<std::string, Tensor>;

std::vector<std::int64_t> numbers_of(const State& state) {
  const auto found = state.find(kWindowNumbers);
  if (found == state.end() || found->second.dtype() != int64 ||
      found->second.shape() != Shape{kNumberCount})
    throw DataLossError("[Window] expected the state of a window, got other tensors");
  return found->second.to_vector<std::int64_t>();
}

// Samples of a state, in slots.
struct Stored {
  Tensor x, y;
  std::int64_t size = 0;

  Stored(const State& state, const char* x_name, const char* y_name, std::int64_t capacity,
         std::int64_t oldest) {
    if (const auto found = state.find(x_name); found != state.end()) x = found->second.cpu();
    if (const auto found = state.find(y_name); found != state.end()) y = found->second.cpu();
    if (!x.defined() && !y.defined() && oldest == 0) return;
    if (!x.defined() || !y.defined() || x.rank() < 1 || y.rank() < 1 || x.dim(0) != y.dim(0) ||
        x.dim(0) < 1 || x.dim(0) > capacity || oldest < 0 ||
        oldest >= std::max<std::int64_t>(capacity, 1) || (oldest > 0 && x.dim(0) != capacity))
      throw DataLossError("[Window] the samples of the state do not fit together");
    size = x.dim(0);
  }
  const std::byte* at(const Tensor& tensor, std::int64_t slot) const {
    const auto bytes =
        static_cast<std::size_t>(tensor.shape().num_elements() / size) * size_of(tensor.dtype());
    return impl_of(tensor).data() + static_cast<std::size_t>(slot) * bytes;
  }
};

// Calls take(x, y) with samples of several states, the oldest first; of equal age in their order.
template <class Take>
void by_age(const std::vector<Stored>& all, const std::vector<std::int64_t>& oldest,
            const Take& take) {
  std::int64_t most = 0;
  for (const Stored& each : all) most = std::max(most, each.size);
  for (std::int64_t age = most; age > 0; --age)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (age <= all[i].size) {
        const std::int64_t slot = (oldest[i] + all[i].size - age) % all[i].size;
        take(all[i].at(all[i].x, slot), all[i].at(all[i].y, slot));
      }
}

}  // namespace

State Window::Impl::state() const {
  std::vector<std::int64_t> numbers(kNumberCount);
  numbers[kCapacity] = sampled_.capacity;
  numbers[kHeldCapacity] = held_.capacity;
  numbers[kReplace] = static_cast<std::int64_t>(options_.replace);
  numbers[kPushed] = pushed_;
  numbers[kOffered] = offered_;
  numbers[kOldest] = sampled_.oldest;
  numbers[kHeldOldest] = held_.oldest;
  numbers[kRandomState] = std::bit_cast<std::int64_t>(random_.state());
  State state{{kWindowNumbers, constant(numbers)}};
  const auto add = [&](const Ring& ring, const char* x, const char* y) {
    if (ring.size() == 0) return;
    state[x] = ring.x.all();
    state[y] = ring.y.all();
  };
  add(sampled_, kWindowX, kWindowY);
  add(held_, kWindowHeldX, kWindowHeldY);
  return state;
}

void Window::Impl::restore(const State& state) {
  const std::vector<std::int64_t> numbers = numbers_of(state);
  if (numbers[kCapacity] != sampled_.capacity || numbers[kHeldCapacity] != held_.capacity ||
      numbers[kReplace] != static_cast<std::int64_t>(options_.replace))
    fail<InvalidArgumentError>(
        "[Window] the state is of a window of capacity {} with a holdout of {}; this one has {} "
        "and {}, or replaces other samples",
        numbers[kCapacity] + numbers[kHeldCapacity], numbers[kHeldCapacity], options_.capacity,
        held_.capacity);
  const Stored sampled(state, kWindowX, kWindowY, sampled_.capacity, numbers[kOldest]);
  const Stored held(state, kWindowHeldX, kWindowHeldY, held_.capacity, numbers[kHeldOldest]);
  Ring new_sampled = sampled_, new_held = held_;
  const auto fill = [&](Ring& ring, const Stored& stored, std::int64_t oldest) {
    ring.clear();
    if (stored.size == 0) return;
    new_sampled.expect(stored.x, stored.y);
    new_sampled.become(stored.x, stored.y);
    new_held.become(stored.x, stored.y);
    for (std::int64_t slot = 0; slot < stored.size; ++slot)
      ring.push(stored.at(stored.x, slot), stored.at(stored.y, slot));
    ring.oldest = oldest;
  };
  fill(new_sampled, sampled, numbers[kOldest]);
  fill(new_held, held, numbers[kHeldOldest]);
  sampled_ = std::move(new_sampled);
  held_ = std::move(new_held);
  pushed_ = numbers[kPushed];
  offered_ = numbers[kOffered];
  random_ = RandomNumbers(std::bit_cast<std::uint64_t>(numbers[kRandomState]));
}

void Window::Impl::deal(const std::vector<State>& states, int rank, int ranks) {
  std::vector<Stored> sampled, held;
  std::vector<std::int64_t> oldest, held_oldest;
  std::int64_t pushed = 0, offered = 0;
  for (const State& state : states) {
    const std::vector<std::int64_t> numbers = numbers_of(state);
    sampled.emplace_back(state, kWindowX, kWindowY, numbers[kCapacity], numbers[kOldest]);
    held.emplace_back(state, kWindowHeldX, kWindowHeldY, numbers[kHeldCapacity],
                      numbers[kHeldOldest]);
    oldest.push_back(numbers[kOldest]);
    held_oldest.push_back(numbers[kHeldOldest]);
    pushed += numbers[kPushed];
    offered += numbers[kOffered];
  }
  for (const Stored& each : sampled)
    if (each.size > 0) sampled_.expect(each.x, each.y);
  for (Ring* ring : {&sampled_, &held_}) {
    ring->clear();
    for (const auto* stored : {&sampled, &held})
      for (const Stored& each : *stored)
        if (each.size > 0) ring->become(each.x, each.y);
  }
  std::int64_t number = 0;
  const auto mine = [&] { return number++ % ranks == rank; };
  by_age(sampled, oldest, [&](const std::byte* x, const std::byte* y) {
    if (mine()) sampled_.push(x, y);
  });
  if (held_.capacity > 0)
    by_age(held, held_oldest, [&](const std::byte* x, const std::byte* y) {
      if (mine()) held_.push(x, y);
    });
  pushed_ = pushed / ranks;
  offered_ = std::max(size(), offered / ranks);
  random_ = RandomNumbers(options_.seed + static_cast<std::uint64_t>(pushed_));
}

}  // namespace tandem::online
