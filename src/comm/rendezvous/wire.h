// The messages between a rank and the rendezvous server, and their frames: a length, then the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

enum class MessageType : std::uint8_t {
  // Of the store: from a client, each answered by one message.
  kSet = 1,  // key, value: kNumber 0
  kGet,      // key: kValue, when the key is there; with number 1, kNumber at once if it is not
  kAdd,      // key, number: kNumber, the sum
  kRemove,   // key: kNumber, 1 if it was there
  // Of the membership: from a client.
  // rank, number: the process's id, key: its host, value: the size of the job, and behind a blank
  // the number of the role where it is no worker's; kAlive
  kJoin,
  kHeartbeat,  // kAlive
  kReport,     // value: why this rank gives up; kReported, when the others are told
  kGoodbye,    // kFarewell
  kGoOn,       // this rank goes on without those that have failed; kWorkers
  // From the server.
  kValue,    // value
  kNumber,   // number
  kError,    // value: why a store's request cannot be met; number 1: for want of memory
  kRefused,  // value: why a rank may not join
  kStarted,  // all ranks are there; number, key: process and host of rank 0
  kAlive,    // number: how many ranks have not joined yet, value: which, key: who was turned away
  kFailed,   // rank, number: 1 when it gave up, 0 when it died; key: the epoch, value: who and why
  kEpoch,    // number: the epoch; a process has failed that this one does not need
  kWorkers,  // number: the epoch, value: the ranks that are no workers or not there any more
  kReported,
  kFarewell,  // this rank has left
};

struct Message {
  MessageType type = MessageType::kHeartbeat;
  std::int32_t rank = 0;
  std::int64_t number = 0;
  std::string key = {}, value = {};
};

inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = std::size_t{16} << 20;

// Throws InvalidArgumentError when the key or the value is too long.
std::string encode(const Message& message);

// Takes messages apart from a stream of bytes.
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next message that is whole. Throws DataLossError for what is none.
  std::optional<Message> next();
  // Whether a message has begun and is not whole.
  bool partial() const { return taken_ < buffer_.size(); }

 private:
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes of it that were messages
};

}  // namespace tandem
