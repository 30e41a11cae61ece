// The state that a group's operations share.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl/module/connections.h"
#include "comm/nccl/nccl_backend.h"

namespace tandem::nccl_backend {

// Pinned host memory. A pool, because pinning is slow and unpinning waits for the GPU. Blocks may
// outlive it. Thread-safe.
class PinnedPool {
 public:
  PinnedPool();
  std::shared_ptr<void> take(std::size_t bytes);

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
};

// Buffers in memory that a GPU can access.
class GpuBuffers {
 public:
  GpuBuffers(std::span<const Buffer> buffers, PinnedPool& pool);

  // The same buffers, or their pinned copies.
  std::span<const Buffer> placed() const { return placed_; }
  // Copy the contents to the pinned copies, or back; no-ops if there are none.
  void copy_in() const;
  void copy_out() const;

 private:
  std::span<const Buffer> buffers_;
  std::vector<Buffer> placed_;
  std::shared_ptr<void> block_;
};

// The connection for messages from one rank to another. A separate one, so that a message that
// waits for its peer blocks nothing else. The first message creates it.
struct MessageConnection {
  std::optional<ncclUniqueId> id;
  const NcclConnection* connection = nullptr;
  std::deque<const void*> queue;  // messages, in order
};

class NcclGroup {
 public:
  // Waits until every rank has created its own.
  NcclGroup(GroupOptions options, NcclDevice where);
  // Announces that this rank leaves.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const GroupOptions& options() const { return options_; }
  const NcclDevice& where() const { return where_; }
  int gpu() const { return where_.gpu; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  Connections& connections() { return connections_; }
  const NcclConnection& connection() const { return *connection_; }
  PinnedPool& pool() { return pool_; }
  bool on_cuda() const { return where_.device->backend() == DeviceBackend::kCuda; }
  cudaStream_t device_stream() const {
    return static_cast<cudaStream_t>(where_.device->stream().native_handle());
  }
  // The connection for messages to a peer (`out`), or from it.
  MessageConnection& message_connection(int peer, bool out);
  // Whether it is connected; makes progress with that without waiting.
  bool connect(MessageConnection& messages, int peer, bool out);

  // The next collective's turn. A collective's data is launched before the next one is announced,
  // so that NCCL sees the same order of calls on every rank.
  std::uint64_t turn = 0;

  // Publishes that this rank has reached a collective, for ranks that report missing ranks. Called
  // by ranks that wait, and by those that leave.
  void publish_reached(std::uint64_t sequence);
  std::vector<int> missing(std::uint64_t sequence) const;
  void publish_failure(GroupFailure failure, const std::string& text) noexcept;
  // Throws the error that the group has published in the store, if any.
  void check_published_failure() const;
  // Throws AbortedError if a rank has left without collective `sequence`.
  void check_left(std::uint64_t sequence, const std::string& waiting_for) const;
  // Aborts what is running, with that error.
  void abort(GroupFailure failure, const std::string& text) noexcept;

 private:
  std::string key(std::string_view what) const;
  std::string message_key(int from, int to) const;  // of the messages' NCCL id
  // The ranks that have not joined.
  std::string describe_absent(std::chrono::milliseconds time) const;
  std::string find(const std::string& key) const;  // empty if the key is missing or the store fails
  void wait_for_connection();
  // The last rank that is connected removes the keys that connecting needed.
  void forget_joining();
  // The last rank that leaves removes the other keys.
  void forget_group();

  const GroupOptions options_;
  const NcclDevice where_;
  PinnedPool pool_;
  Connections connections_;
  const NcclConnection* connection_ = nullptr;
  std::vector<MessageConnection> out_, in_;
  std::uint64_t reached_ = 0;
};

}  // namespace tandem::nccl_backend
