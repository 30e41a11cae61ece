#include "comm/shm/group.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <new>
#include <thread>

#include "core/log.h"
#include "core/status.h"

namespace tandem::shm {
namespace {

std::string key_of(const ShmOptions& options) { return "shm/" + options.name; }

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit) {
  syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

Group::Group(ShmOptions options) : options_(std::move(options)) {
  layout_.ranks = index(size());
  segment_ = find_segment();
  memory_ = segment_->data();
  state_ = &at<GroupState>(0);
  mine_ = &state(rank());
  // Memory that is not reserved is taken at the first touch, which kills the process where there
  // is none left.
  if (!segment_->reserve(0, layout_.state_bytes()) ||
      !segment_->reserve(layout_.ring(index(rank())), Layout::kRingBytes))
    fail<ResourceExhaustedError>("[shm] /dev/shm has no room for the {} KiB that group '{}' needs",
                                 (layout_.state_bytes() + layout_.ranks * Layout::kRingBytes) >> 10,
                                 options_.name);
  arena_ = std::make_shared<Arena>(segment_, layout_.arena(index(rank())), layout_.arena_bytes);

  mine_->process = ProcessIdentity::self();
  mine_->joined.store(1, std::memory_order_release);
  wait_for_ranks();
  crowded_ = size() > sysconf(_SC_NPROCESSORS_ONLN);
}

Group::~Group() { mine_->left.store(1, std::memory_order_release); }

// Rank 0 makes it and tells the others its name.
std::shared_ptr<Segment> Group::find_segment() {
  if (rank() == 0) {
    layout_.arena_bytes = huge_pages(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                     static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    auto segment = std::make_shared<Segment>(Segment::create(layout_.total()));
    options_.store->set(key_of(options_),
                        fmt::format("{} {}", layout_.arena_bytes, segment->name()));
    return segment;
  }
  std::string value;
  try {
    value = options_.store->get(key_of(options_),
                                std::chrono::steady_clock::now() + options_.time_limit);
  } catch (const DeadlineExceededError&) {
    fail<DeadlineExceededError>(
        "[shm] rank 0 did not join group '{}' within {} ms; rank {} is waiting", options_.name,
        options_.time_limit.count(), rank());
  }
  const std::size_t blank = std::min(value.find(' '), value.size());
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + blank, layout_.arena_bytes);
  if (error != std::errc() || blank + 1 >= value.size())
    fail<DataLossError>("[shm] the store holds '{}' for group '{}', which no rank has put there",
                        value, options_.name);
  return std::make_shared<Segment>(Segment::open(value.substr(blank + 1), layout_.total()));
}

void Group::wait_for_ranks() {
  const auto deadline = std::chrono::steady_clock::now() + options_.time_limit;
  for (int peer = 0; peer < size();) {
    if (state(peer).joined.load(std::memory_order_acquire)) {
      ++peer;
      continue;
    }
    if (options_.membership && options_.membership->failed()) options_.membership->throw_failure();
    if (std::chrono::steady_clock::now() > deadline) {
      std::vector<int> missing, here;
      for (int other = 0; other < size(); ++other)
        (state(other).joined.load(std::memory_order_acquire) ? here : missing).push_back(other);
      if (rank() == 0) options_.store->remove(key_of(options_));
      fail<DeadlineExceededError>("[shm] {} did not join group '{}' within {} ms; {} {} waiting",
                                  list_ranks(missing), options_.name, options_.time_limit.count(),
                                  list_ranks(here), here.size() == 1 ? "is" : "are");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  segment_->unlink();
  if (rank() == 0) options_.store->remove(key_of(options_));
}

void Group::reserve_channel(int from, int to) const {
  if (!segment_->reserve(layout_.channel(index(from), index(to)), Layout::kChannelBytes))
    fail<ResourceExhaustedError>("[send] /dev/shm has no room for a channel to rank {}", to);
}

bool Group::piece_is_free(std::uint64_t number) {
  if (number < taken_by_all_ + kRingPieces) return true;
  std::uint64_t least = number;
  for (int peer = 0; peer < size(); ++peer)
    least = std::min(least, state(peer).taken.load(std::memory_order_acquire));
  taken_by_all_ = least;
  return number < taken_by_all_ + kRingPieces;
}

bool Group::call_is_free(std::uint64_t sequence) {
  if (sequence < completed_by_all_ + kSlots) return true;
  std::uint64_t least = sequence;
  for (int peer = 0; peer < size(); ++peer)
    least = std::min(least, state(peer).completed.load(std::memory_order_acquire));
  completed_by_all_ = least;
  return sequence < completed_by_all_ + kSlots;
}

// Two ranks that the system runs on one core.
bool Group::shares_core() const {
  const std::int32_t core = sched_getcpu() + 1;
  if (mine_->core.load(std::memory_order_relaxed) != core)
    mine_->core.store(core, std::memory_order_relaxed);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && state(peer).core.load(std::memory_order_relaxed) == core) return true;
  return false;
}

// A rank that raises flags beats, then looks for sleepers; one that wants to sleep says so, then
// looks for beats. So one of the two sees the other.
void Group::wake_sleepers() noexcept {
  mine_->beat.fetch_add(1);
  if (state_->sleepers.load() == 0) return;
  state_->bell.fetch_add(1);
  futex(state_->bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void Group::wait_for_peers(std::chrono::microseconds limit) {
  if (const std::uint64_t beats = beats_of_peers(); beats != heard_) {
    heard_ = beats;
    return;
  }
  const std::uint32_t bell = state_->bell.load();
  state_->sleepers.fetch_add(1);
  if (beats_of_peers() == heard_) {
    const timespec time = {.tv_sec = limit.count() / 1'000'000,
                           .tv_nsec = limit.count() % 1'000'000 * 1000};
    futex(state_->bell, FUTEX_WAIT, bell, &time);
  }
  state_->sleepers.fetch_sub(1);
}

std::uint64_t Group::beats_of_peers() const {
  std::uint64_t sum = 0;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) sum += state(peer).beat.load();
  return sum;
}

void Group::set_failure(GroupFailure failure, const std::string& text) noexcept {
  if (state_->claimed.exchange(1, std::memory_order_acq_rel) != 0) return;
  const std::size_t length = std::min(text.size(), sizeof(state_->text) - 1);
  std::memcpy(state_->text, text.data(), length);
  state_->text[length] = 0;
  state_->failure.store(static_cast<std::uint32_t>(failure), std::memory_order_release);
  wake_sleepers();
}

void Group::throw_failure() const {
  const auto failure = static_cast<GroupFailure>(state_->failure.load(std::memory_order_acquire));
  tandem::throw_failure(failure, state_->text);
}

void Group::check_peer(int peer, const std::string& waiting_for) const {
  const RankState& other = state(peer);
  const bool left = other.left.load(std::memory_order_acquire) != 0;
  if (!left && other.process.alive()) return;
  throw_if_failed();  // why it left, should it have told
  if (left)
    fail<AbortedError>("rank {} (pid {}) has left the group; rank {} still waits for it: {}", peer,
                       other.process.pid, rank(), waiting_for);
  fail<AbortedError>("rank {} (pid {}) died; rank {} was waiting for it: {}", peer,
                     other.process.pid, rank(), waiting_for);
}

}  // namespace tandem::shm
