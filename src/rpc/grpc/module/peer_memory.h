// The memory that a channel shares with its server, if that is a process of the same host.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "rpc/shared_memory/shared_memory.h"

namespace tandem::rpc::grpc_module {

// Thread-safe.
class PeerMemory {
 public:
  explicit PeerMemory(std::size_t largest_message) : largest_message_(largest_message) {}

  // A call has ended in which the server announced itself; or one that has failed, after which
  // another process may listen at the address.
  void met(std::string_view announced) { set(neighbor(announced)); }
  void lost() { set(std::nullopt); }

  // See SharedSender. Does nothing unless the server is known to share memory.
  SharedSender::Sent share(Frame& frame, std::chrono::milliseconds limit) {
    const std::optional<ProcessIdentity> server = get();
    if (!server) return {};
    return sender_.share(frame, {*server, std::chrono::steady_clock::now() + limit});
  }
  std::shared_ptr<std::byte> reserve(std::size_t bytes) {
    return get() ? sender_.reserve(bytes) : nullptr;
  }
  // See take_shared(). Throws ResourceExhaustedError for a reply that is too large.
  void take(Frame& reply) {
    take_shared(reply, areas_);
    const std::size_t bytes = frame_bytes(reply.message);
    if (bytes > largest_message_)
      fail<ResourceExhaustedError>("the reply has {} bytes, more than the limit of {}", bytes,
                                   largest_message_);
  }

 private:
  void set(std::optional<ProcessIdentity> server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }
  std::optional<ProcessIdentity> get() const {
    const std::lock_guard lock(mutex_);
    return server_;
  }

  const std::size_t largest_message_;
  SharedSender sender_;
  PeerAreas areas_;
  mutable std::mutex mutex_;
  std::optional<ProcessIdentity> server_;
};

}  // namespace tandem::rpc::grpc_module
