#include "comm/shm/group.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

#include "comm/process/first_failure.h"
#include "comm/shm/shm_bytes.h"
#include "comm/stall.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::shm {
namespace {

std::string key_of(const GroupOptions& options) { return "shm/" + options.name; }
// The key for failures of ranks that cannot write to the shared memory.
std::string failure_key_of(const GroupOptions& options) { return key_of(options) + "/failure"; }
std::string failures_key_of(const GroupOptions& options) { return key_of(options) + "/failures"; }

// First character of an error in the store, where otherwise a segment's name would be.
constexpr char kFailureMark = '!';
std::string encode(const Error& error) {
  return fmt::format("{}{}{}", kFailureMark, static_cast<int>(failure_of(error)), error.what());
}
[[noreturn]] void throw_decoded(const std::string& value) {
  throw_failure(static_cast<GroupFailure>(value.size() > 1 ? value[1] - '0' : 0),
                value.substr(std::min<std::size_t>(value.size(), 2)));
}

[[noreturn]] void throw_no_room(const GroupOptions& options) {
  fail<ResourceExhaustedError>(
      "[shm] /dev/shm is too small for rank {} of group '{}': the group needs {} KiB, "
      "and {} "
      "KiB are free. Increase it (docker run --shm-size=1g), or choose the gloo backend",
      options.names[options.rank], options.name, shm_group_bytes(options.size) >> 10,
      shm_free_bytes() >> 10);
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit) {
  syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

ShmGroup::ShmGroup(GroupOptions options)
    : options_(std::move(options)), layout_(static_cast<std::size_t>(options_.size)) {
  try {
    map_common();
  } catch (const Error& error) {
    publish_failure(error);
    throw;
  }
  state_ = &at<GroupState>(0);
  mine_ = &state(rank());
  try {
    join();
  } catch (const Error& error) {
    abort(failure_of(error), error.what());
    throw;
  }
  wait_for_ranks();
  constexpr int kCrowd = 64;  // ranks per core
  const auto cores = sysconf(_SC_NPROCESSORS_ONLN);
  oversubscribed_ = size() > cores;
  crowded_ = size() > kCrowd * cores;
}

ShmGroup::~ShmGroup() { mine_->left.store(1, std::memory_order_release); }

// Rank 0 creates the segment and reserves memory for the state, where any rank can report a failure
// from then on. It publishes the segment's name in the store.
void ShmGroup::map_common() {
  const bool makes = rank() == 0;
  segment_ = std::make_shared<Segment>(makes ? Segment::create(layout_.total()) : open_segment());
  common_.emplace(segment_, 0, layout_.common_bytes());
  memory_ = common_->data();
  if (!makes) return;
  if (!common_->reserve(0, layout_.state_bytes())) throw_no_room(options_);
  options_.store->set(key_of(options_), segment_->name());
}

// The group may fail and the segment be removed after the name was read. In that case rank 0 has
// replaced the name by the error.
Segment ShmGroup::open_segment() const {
  const std::string name = name_from_rank_0();
  try {
    return Segment::open(name, layout_.total());
  } catch (const UnavailableError&) {
    if (const std::string value = find_name(); value.starts_with(kFailureMark))
      throw_decoded(value);
    throw;
  }
}

std::string ShmGroup::find_name() const {
  try {
    return options_.store->get(key_of(options_), std::chrono::steady_clock::now());
  } catch (const Error&) {
    return {};
  }
}

std::string ShmGroup::name_from_rank_0() const {
  const auto describe = [&](std::chrono::milliseconds time) {
    return fmt::format("[shm] rank {} did not join group '{}' within {} ms; rank {} is waiting",
                       names()[0], options_.name, time.count(), names()[rank()]);
  };
  std::string value;
  try {
    value = get_or_warn(
        *options_.store, key_of(options_), std::chrono::steady_clock::now() + options_.time_limit,
        [&](std::chrono::milliseconds waited) { logging::warn("{}", describe(waited)); });
  } catch (const DeadlineExceededError&) {
    throw DeadlineExceededError(describe(options_.time_limit));
  }
  if (value.starts_with(kFailureMark)) throw_decoded(value);
  return value;
}

// Rank 0 replaces the segment's name by the error. Other ranks report to rank 0, which informs all.
void ShmGroup::publish_failure(const Error& error) const noexcept {
  try {
    if (rank() == 0) return options_.store->set(key_of(options_), encode(error));
    options_.store->set(failure_key_of(options_), encode(error));
    options_.store->add(failures_key_of(options_), 1);
  } catch (const std::exception& other) {
    logging::debug("[shm] could not publish the failure of group '{}' to its other ranks: {}",
                   options_.name, other.what());
  }
}

void ShmGroup::collect_failures() {
  if (options_.store->add(failures_key_of(options_), 0) == 0) return;
  try {
    throw_decoded(options_.store->get(failure_key_of(options_),
                                      std::chrono::steady_clock::now() + options_.time_limit));
  } catch (const Error& error) {
    abort(failure_of(error), error.what());
  }
}

// Memory must be reserved: otherwise it is allocated at the first access, and the process is killed
// if none is left.
void ShmGroup::join() {
  if (!common_->reserve(layout_.ring(index(rank())), layout_.ring_bytes())) throw_no_room(options_);
  for (std::size_t peer = 0; peer < layout_.ranks(); ++peer)
    arenas_.emplace_back(segment_, layout_.arena(peer), SegmentLayout::kArenaBytes);
  arena_ = std::make_shared<ShmArena>(segment_, layout_.arena(index(rank())),
                                      SegmentLayout::kArenaBytes);
  mine_->process = ProcessIdentity::self();
  mine_->joined.store(1, std::memory_order_release);
  if (state_->joined.fetch_add(1) + 1 == static_cast<std::uint32_t>(size())) wake_sleepers();
}

// Sleeps, because waiting ranks may outnumber the cores that ranks still need to start.
void ShmGroup::wait_for_ranks() {
  using std::chrono::milliseconds;
  constexpr auto kLook = milliseconds(50);  // interval of checks of the membership and the store
  const auto deadline = std::chrono::steady_clock::now() + options_.time_limit;
  LongWait wait;
  const auto waiting = [&] {
    return state_->joined.load() < static_cast<std::uint32_t>(size()) &&
           state_->failure.load() == 0;
  };
  try {
    while (waiting()) {
      if (options_.membership && options_.membership->failed())
        options_.membership->throw_failure();
      if (std::chrono::steady_clock::now() > deadline) {
        abort(GroupFailure::kDeadlineExceeded, describe_missing(options_.time_limit));
        throw_failure();
      }
      if (rank() == 0) {
        collect_failures();
        wait.look([this](milliseconds time) { return describe_missing(time); });
      }
      sleep_until_bell(kLook, waiting);
    }
    throw_if_failed();
  } catch (const Error& error) {
    publish_failed_start(error);
    throw;
  }
  remove_name();
}

// Called by the first rank that knows that all have opened the segment; its creator may have died.
void ShmGroup::remove_name() {
  segment_->unlink();
  if (rank() != 0) return;
  options_.store->remove(key_of(options_));
  options_.store->remove(failure_key_of(options_));
  options_.store->remove(failures_key_of(options_));
}

// Ranks that join later find the error in place of the name. The error is published before the
// segment is removed, so that a rank which fails to open the segment finds it. Since rank 0 may
// have died, any rank can remove the segment.
void ShmGroup::publish_failed_start(const Error& error) noexcept {
  if (rank() == 0) publish_failure(error);
  const bool job_failed = options_.membership && options_.membership->failed();
  const bool maker_died =
      state(0).joined.load(std::memory_order_acquire) != 0 && !state(0).process.alive();
  if (rank() == 0 || job_failed || maker_died) segment_->unlink();
}

std::string ShmGroup::describe_missing(std::chrono::milliseconds time) const {
  std::vector<int> missing, here;
  for (int other = 0; other < size(); ++other)
    (state(other).joined.load(std::memory_order_acquire) ? here : missing).push_back(other);
  return fmt::format("[shm] {} did not join group '{}' within {} ms; {} {} waiting",
                     list_ranks(missing, names()), options_.name, time.count(),
                     list_ranks(here, names()), here.size() == 1 ? "is" : "are");
}

std::byte* ShmGroup::buffer_of(int peer, std::int64_t offset, std::size_t bytes) {
  std::byte* const data =
      offset < 0 ? nullptr : arenas_[index(peer)].map(static_cast<std::size_t>(offset), bytes);
  if (!data)
    fail<DataLossError>("[shm] rank {} published an invalid buffer: {} bytes at offset {}",
                        names()[peer], bytes, offset);
  return data;
}

std::unique_ptr<MappedRange> ShmGroup::map_channel(int from, int to) const {
  auto channel = std::make_unique<MappedRange>(segment_, layout_.channel(index(from), index(to)),
                                               SegmentLayout::kChannelBytes);
  if (!channel->reserve(0, SegmentLayout::kChannelBytes))
    fail<ResourceExhaustedError>(
        "[send] /dev/shm has no room for a channel from rank {} to rank {}", names()[from],
        names()[to]);
  return channel;
}

bool ShmGroup::piece_is_free(std::uint64_t number) {
  if (number < taken_by_all_ + kRingPieces) return true;
  std::uint64_t least = number;
  for (int peer = 0; peer < size(); ++peer)
    least = std::min(least, state(peer).taken.load(std::memory_order_acquire));
  taken_by_all_ = least;
  return number < taken_by_all_ + kRingPieces;
}

bool ShmGroup::call_is_free(std::uint64_t sequence) {
  if (sequence < completed_by_all_ + kSlots) return true;
  std::uint64_t least = sequence;
  for (int peer = 0; peer < size(); ++peer)
    least = std::min(least, state(peer).completed.load(std::memory_order_acquire));
  completed_by_all_ = least;
  return sequence < completed_by_all_ + kSlots;
}

// Whether two of the ranks run on the same core.
bool ShmGroup::shares_core() const {
  const std::int32_t core = sched_getcpu() + 1;
  if (mine_->core.load(std::memory_order_relaxed) != core)
    mine_->core.store(core, std::memory_order_relaxed);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && state(peer).core.load(std::memory_order_relaxed) == core) return true;
  return false;
}

// A rank that raises flags increments its beat and then checks for sleepers. A rank that is about
// to sleep registers and then checks the beats. At least one of the two sees the other. In a crowd,
// ranks would use the cores to wake each other, so that each sleeps for its time.
void ShmGroup::wake_sleepers() noexcept {
  mine_->beat.fetch_add(1);
  if (crowded_ || state_->sleepers.load() == 0) return;
  state_->bell.fetch_add(1);
  futex(state_->bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void ShmGroup::wait_for_peers(std::chrono::microseconds limit) {
  if (crowded_) return std::this_thread::sleep_for(limit);
  if (const std::uint64_t beats = beats_of_peers(); beats != beats_seen_) {
    beats_seen_ = beats;
    return;
  }
  sleep_until_bell(limit, [&] { return beats_of_peers() == beats_seen_; });
}

void ShmGroup::sleep_until_bell(std::chrono::microseconds limit, const auto& waiting) {
  const std::uint32_t bell = state_->bell.load();
  state_->sleepers.fetch_add(1);
  if (waiting()) {
    const timespec time = {.tv_sec = limit.count() / 1'000'000,
                           .tv_nsec = limit.count() % 1'000'000 * 1000};
    futex(state_->bell, FUTEX_WAIT, bell, &time);
  }
  state_->sleepers.fetch_sub(1);
}

std::uint64_t ShmGroup::beats_of_peers() const {
  std::uint64_t sum = 0;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) sum += state(peer).beat.load();
  return sum;
}

// A rank first registers access to peers' buffers and then checks for a failure. A failing rank
// first sets the failure and then checks for accesses. At least one of the two sees the other.
ShmGroup::PeerAccess::PeerAccess(const ShmGroup& group) : in_peers_(group.mine().in_peers) {
  in_peers_.store(1);
  granted_ = group.state_->claimed.load() == 0;
}

void ShmGroup::abort(GroupFailure failure, const std::string& text) noexcept {
  if (state_->claimed.exchange(1) == 0) {
    const std::size_t length = std::min(text.size(), sizeof(state_->text) - 1);
    std::memcpy(state_->text, text.data(), length);
    state_->text[length] = 0;
    state_->failure.store(static_cast<std::uint32_t>(failure), std::memory_order_release);
    wake_sleepers();
  }
  wait_for_peer_access();
}

void ShmGroup::wait_for_peer_access() const noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    while (state(peer).in_peers.load() != 0 && state(peer).process.alive()) {
      if (std::chrono::steady_clock::now() > deadline) {
        logging::warn(
            "[shm] group '{}' has failed, but rank {} (pid {}) does not run and may yet write to "
            "this rank's buffers when it does",
            options_.name, names()[peer], state(peer).process.pid);
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void ShmGroup::throw_failure() const {
  const auto failure = static_cast<GroupFailure>(state_->failure.load(std::memory_order_acquire));
  tandem::throw_failure(failure,
                        std::string(state_->text, strnlen(state_->text, sizeof(state_->text))));
}

bool ShmGroup::is_gone(int peer) const {
  const RankState& other = state(peer);
  return other.left.load(std::memory_order_acquire) != 0 || !other.process.alive();
}

void ShmGroup::throw_gone(int peer, const std::string& waiting_for) const {
  const RankState& other = state(peer);
  throw_if_failed();  // the reason why it left, if it reported one
  throw_first_failure(options_.membership.get(), [this] { throw_if_failed(); });
  if (other.left.load(std::memory_order_acquire) != 0)
    fail<AbortedError>("rank {} (pid {}) has left the group; rank {} still waits for it: {}",
                       names()[peer], other.process.pid, names()[rank()], waiting_for);
  fail<AbortedError>("rank {} (pid {}) died; rank {} was waiting for it: {}", names()[peer],
                     other.process.pid, names()[rank()], waiting_for);
}

}  // namespace tandem::shm
