#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/combine.h"
#include "core/env.h"
#include "cuda/nccl/fake_nccl.h"

namespace tandem::fake_nccl {
namespace {

constexpr std::size_t kSlot = 256 << 10;
constexpr std::size_t kPiece = 64 << 10;  // bytes of a message per piece

// The properties of a call that must be equal on all ranks.
struct Described {
  CallKind kind = CallKind::kAllReduce;
  DType dtype = float32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::size_t count = 0;
  bool operator==(const Described&) const = default;
};

bool is_message(const Call& call) {
  return call.kind == CallKind::kSend || call.kind == CallKind::kReceive;
}

}  // namespace

struct RankSegment::Header {
  std::atomic<int> here, gone;
};

struct alignas(64) RankSegment::Place {
  std::atomic<pid_t> pid;
  // Rounds; each transfers one slot's bytes of a collective.
  std::atomic<std::uint64_t> posted, read;
  Described described;
};

// Messages from one rank to another, one piece at a time.
struct alignas(64) RankSegment::Channel {
  std::atomic<std::uint64_t> posted, read;
  std::byte data[kPiece];
};

RankSegment::RankSegment(const ncclUniqueId& id, int rank, int size) : rank_(rank), size_(size) {
  name_ = "/tandem-fake-nccl-" + std::string(id.internal);
  const auto ranks = static_cast<std::size_t>(size);
  bytes_ = 64 + ranks * (sizeof(Place) + kSlot) + ranks * ranks * sizeof(Channel);
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes_)) == 0)
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("the fake of NCCL has no shared memory");
  memory_ = static_cast<Header*>(memory);
  place(rank).pid = getpid();
  if (++memory_->here == size) shm_unlink(name_.c_str());
}

RankSegment::~RankSegment() { munmap(memory_, bytes_); }

bool RankSegment::complete() const { return memory_->here == size_; }
bool RankSegment::deserted() const { return memory_->gone == size_; }

void RankSegment::leave() {
  ++memory_->gone;
  if (!complete()) shm_unlink(name_.c_str());
}

RankSegment::Place& RankSegment::place(int rank) const {
  return reinterpret_cast<Place*>(reinterpret_cast<std::byte*>(memory_) + 64)[rank];
}

std::byte* RankSegment::slot(int rank) const {
  return reinterpret_cast<std::byte*>(&place(size_)) + static_cast<std::size_t>(rank) * kSlot;
}

RankSegment::Channel& RankSegment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(slot(size_))[from * size_ + to];
}

bool RankSegment::peer_is_dead() const {
  for (int rank = 0; rank < size_; ++rank)
    if (kill(place(rank).pid, 0) != 0 && errno == ESRCH) return true;
  return false;
}

template <class F>
bool RankSegment::wait(Rank& mine, const F& done) const {
  const bool tells = env_bool("FAKE_NCCL_TELLS_OF_DEATHS").value_or(false);
  return mine.wait([&] {
    if (done()) return true;
    if (tells && mine.state == ncclSuccess && peer_is_dead()) mine.state = ncclRemoteError;
    return false;
  });
}

template <class F>
bool RankSegment::wait_for_all(Rank& mine, const F& reached) const {
  return wait(mine, [&] {
    for (int rank = 0; rank < size_; ++rank)
      if (!reached(place(rank))) return false;
    return true;
  });
}

// Returns false if it is aborted.
bool RankSegment::collective(Rank& mine, const Call& call) {
  const std::size_t element = size_of(call.dtype);
  const Described described{call.kind, call.dtype, call.op, call.root, call.count};
  const auto* from = static_cast<const std::byte*>(call.from);
  auto* to = static_cast<std::byte*>(call.to);
  for (std::size_t at = 0; at < call.count;) {
    const std::size_t count = std::min(call.count - at, kSlot / element), bytes = count * element;
    const std::size_t offset = at * element;
    ++round_;
    if (!wait_for_all(mine, [&](const Place& its) { return its.read >= round_ - 1; })) return false;
    if (call.kind != CallKind::kBroadcast || rank_ == call.root)
      std::memcpy(slot(rank_), from + offset, bytes);
    place(rank_).described = described;
    place(rank_).posted = round_;
    if (!wait_for_all(mine, [&](const Place& its) { return its.posted >= round_; })) return false;
    std::vector<const void*> slots;
    for (int rank = 0; rank < size_; ++rank) {
      slots.push_back(slot(rank));
      if (place(rank).described == described) continue;
      mine.state = ncclInvalidUsage;  // NCCL would hang or return wrong data
      return wait(mine, [] { return false; });
    }
    if (call.kind == CallKind::kBroadcast) {
      if (rank_ != call.root) std::memcpy(to + offset, slot(call.root), bytes);
      if (rank_ == call.root && to != from) std::memcpy(to + offset, from + offset, bytes);
    } else if (call.kind == CallKind::kAllGather) {
      for (int rank = 0; rank < size_; ++rank)
        std::memcpy(to + static_cast<std::size_t>(rank) * call.count * element + offset, slot(rank),
                    bytes);
    } else if (call.kind == CallKind::kAllReduce || rank_ == call.root) {
      void* const output = to + offset;
      combine(slots, {&output, 1}, static_cast<std::int64_t>(count), call.dtype, call.op,
              CombineOrder::kInOrder);
    }
    place(rank_).read = round_;
    at += count;
  }
  return true;
}

// An open message.
class RankSegment::Message {
 public:
  explicit Message(const Call& call) : call_(call) {}

  std::pair<bool, int> way() const { return {call_.kind == CallKind::kSend, call_.root}; }
  bool done() const { return at_ == call_.count * size_of(call_.dtype); }
  // Transfers a piece, if the peer is ready.
  bool advance(const RankSegment& segment) {
    const bool sends = call_.kind == CallKind::kSend;
    Channel& channel = sends ? segment.channel(segment.rank_, call_.root)
                             : segment.channel(call_.root, segment.rank_);
    if (sends != (channel.posted == channel.read)) return false;
    const std::size_t bytes = std::min(call_.count * size_of(call_.dtype) - at_, kPiece);
    if (sends)
      std::memcpy(channel.data, static_cast<const std::byte*>(call_.from) + at_, bytes);
    else
      std::memcpy(static_cast<std::byte*>(call_.to) + at_, channel.data, bytes);
    ++(sends ? channel.posted : channel.read);
    at_ += bytes;
    return true;
  }

 private:
  const Call& call_;
  std::size_t at_ = 0;
};

void RankSegment::run(Rank& mine, std::span<const Call> calls) {
  std::vector<Message> messages;
  for (const Call& call : calls)
    if (is_message(call))
      messages.emplace_back(call);
    else if (!collective(mine, call))
      return;
  // Messages of a group run concurrently; those with one peer and direction run in order.
  wait(mine, [&] {
    bool all_done = true;
    std::set<std::pair<bool, int>> busy;
    for (Message& message : messages) {
      if (message.done() || !busy.insert(message.way()).second) continue;
      while (!message.done() && message.advance(*this)) {
      }
      all_done = all_done && message.done();
    }
    return all_done && std::all_of(messages.begin(), messages.end(),
                                   [](const Message& message) { return message.done(); });
  });
}

}  // namespace tandem::fake_nccl
