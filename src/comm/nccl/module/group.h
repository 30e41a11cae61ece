// What the operations of a group share.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/module/connections.h"
#include "comm/nccl/module/pinned.h"
#include "comm/nccl/nccl_backend.h"

namespace tandem::nccl_backend {

// Messages from one rank to another have a connection of their own, so that one that waits for its
// peer holds up nothing else; made with the first of them.
struct Way {
  std::optional<ncclUniqueId> id;
  const Connection* connection = nullptr;
  std::deque<const void*> queue;  // messages, in order
};

class Group {
 public:
  // Waits until every rank has made its own.
  explicit Group(NcclOptions options);
  // Says goodbye.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const NcclOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  Connections& connections() { return connections_; }
  const Connection& connection() const { return *connection_; }
  PinnedPool& pool() { return pool_; }
  bool on_cuda() const { return options_.device->backend() == DeviceBackend::kCuda; }
  cudaStream_t device_stream() const {
    return static_cast<cudaStream_t>(options_.device->stream().native_handle());
  }
  // The way of messages from this rank to a peer, or back.
  Way& way(int peer, bool out);
  // Whether it is there; does what can be done for it without waiting.
  bool connect(Way& way, int peer, bool out);

  // A collective's data follow its announcement before the next is announced, so that NCCL sees
  // the same calls in the same order on every rank.
  std::uint64_t turn = 0;

  // For whoever waits for the ranks that have not come: this one has. Those that wait say so, and
  // those that leave.
  void publish_reached(std::uint64_t sequence);
  std::vector<int> missing(std::uint64_t sequence) const;
  void publish_failure(GroupFailure failure, const std::string& text) noexcept;
  // Throws what the group has failed with, as far as the store tells.
  void check_told() const;
  // Throws AbortedError when a rank has left without collective `sequence`.
  void check_left(std::uint64_t sequence, const std::string& waiting_for) const;
  // Ends what is under way with that error.
  void abort(GroupFailure failure, const std::string& text) noexcept;

 private:
  std::string key(std::string_view what) const;
  std::string way_key(int from, int to) const;     // of the messages' identifier
  std::string find(const std::string& key) const;  // empty: not there, or nobody tells
  void wait_for_connection();
  // The last rank to be connected removes what the ranks needed for that.
  void forget_joining();
  // The last rank to leave removes the rest.
  void forget_group();

  NcclOptions options_;
  PinnedPool pool_;
  Connections connections_;
  const Connection* connection_ = nullptr;
  std::vector<Way> out_, in_;
  std::uint64_t reached_ = 0;
};

}  // namespace tandem::nccl_backend
