#include "comm/gloo/module/gloo_transfers.h"

#include <gloo/transport/tcp/unbound_buffer.h>

#include <exception>
#include <mutex>

namespace tandem::gloo_backend {
namespace {

using TcpBuffer = gloo::transport::tcp::UnboundBuffer;

// Gives access to the protected members on which a buffer's own waits are based.
struct Members : TcpBuffer {
  static constexpr std::mutex TcpBuffer::*mutex = &Members::m_;
  static constexpr int TcpBuffer::*sent = &Members::sendCompletions_;
  static constexpr int TcpBuffer::*received = &Members::recvCompletions_;
  static constexpr std::exception_ptr TcpBuffer::*error = &Members::ex_;
};

}  // namespace

bool is_complete(gloo::transport::UnboundBuffer& buffer, bool sends) {
  auto& tcp = static_cast<TcpBuffer&>(buffer);
  const std::lock_guard lock(tcp.*Members::mutex);
  if (tcp.*(sends ? Members::sent : Members::received) > 0) return true;
  if (tcp.*Members::error) std::rethrow_exception(tcp.*Members::error);
  return false;
}

template <class Start>
Transfers::Id GlooTransfers::start(int peer, bool sends, void* data, std::size_t bytes,
                                   Start start) {
  GlooTransfer& transfer = transfers_.emplace_back();
  transfer = {context_.createUnboundBuffer(data, bytes), peer, sends};
  try {
    start(*transfer.buffer);
  } catch (const std::exception& error) {
    throw Broken{peer, error.what()};
  }
  return transfers_.size() - 1;
}

Transfers::Id GlooTransfers::send(int peer, int phase, const std::byte* data, std::size_t bytes) {
  return start(peer, true, const_cast<std::byte*>(data), bytes,
               [&](auto& buffer) { buffer.send(peer, slot_ + static_cast<std::uint64_t>(phase)); });
}

Transfers::Id GlooTransfers::receive(int peer, int phase, std::byte* data, std::size_t bytes) {
  return start(peer, false, data, bytes,
               [&](auto& buffer) { buffer.recv(peer, slot_ + static_cast<std::uint64_t>(phase)); });
}

bool GlooTransfers::complete(Id id) {
  GlooTransfer& transfer = transfers_[id];
  if (!transfer.buffer) return true;
  try {
    if (!is_complete(*transfer.buffer, transfer.sends)) return false;
  } catch (const std::exception& error) {
    throw Broken{transfer.peer, error.what()};
  }
  transfer.buffer.reset();
  return true;
}

bool GlooTransfers::has_arrived(Id id) const noexcept {
  const GlooTransfer& transfer = transfers_[id];
  try {
    return !transfer.buffer || is_complete(*transfer.buffer, transfer.sends);
  } catch (const std::exception&) {
    return false;
  }
}

bool GlooTransfers::waits_for(int peer) const noexcept {
  for (Id id = 0; id < transfers_.size(); ++id)
    if (transfers_[id].peer == peer && !has_arrived(id)) return true;
  return false;
}

}  // namespace tandem::gloo_backend
