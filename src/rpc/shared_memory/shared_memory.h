// Large attachments of messages between tasks of one host go through shared memory, and the message
// has only their places. Two tasks find out that they can do this from what they announce with
// their first call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/frame.h"
#include "rpc/shared_memory/area.h"

namespace tandem::rpc {

// A bit of Frame::outcome. The header of such a frame begins with
//
//   the number of attachments in shared memory u32, the size of the area's name u32, the name,
//   and for each of them its index among all attachments u32, and its BlockPlace as three u64
inline constexpr std::uint32_t kInSharedMemory = 1u << 31;

// This process, for its peers. Empty where processes of a host cannot recognize each other.
const std::string& announcement();
// The process that announced itself with this text, if it is one of the same host, network
// namespace, /dev/shm and user; otherwise nothing.
std::optional<ProcessIdentity> neighbor(std::string_view announced);

// The sender's side. Thread-safe. Its area is made when it is used for the first time.
class SharedSender {
 public:
  // The blocks of a message that is being sent.
  class Sent {
   public:
    // Takes back the blocks that the receiver has not taken. Any number of times.
    void revoke();

   private:
    friend class SharedSender;
    std::shared_ptr<Area> area_;
    std::vector<BlockPlace> places_;
  };

  // Moves attachments of at least kLeast bytes into shared memory, as far as there is room: the
  // frame then begins with their places.
  Sent share(Frame& frame, const Delivery& delivery);
  // See Area::reserve(). Null for fewer than kLeast bytes.
  std::shared_ptr<std::byte> reserve(std::size_t bytes);

  static constexpr std::size_t kLeast = std::size_t{64} << 10;

 private:
  std::shared_ptr<Area> area();

  std::mutex mutex_;
  std::shared_ptr<Area> area_;
  bool failed_ = false;  // there is no shared memory
};

// Turns a frame of share() into the one that was given to it; does nothing to others. Throws
// DataLossError for places that are not complete or that refer to nothing.
void take_shared(Frame& frame, PeerAreas& areas);

}  // namespace tandem::rpc
