// The messages between a rank and the rendezvous server, and their frames: a length, then the body.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/membership.h"

namespace tandem {

enum class MessageType : std::uint8_t {
  // Of the store: from a client, each answered by one message. rank: the number of the job, of
  // those that a server has one after the other.
  kSet = 1,  // key, value: kNumber 0
  kGet,      // key: kValue, when the key is there; with number 1, kNumber at once if it is not
  kAdd,      // key, number: kNumber, the sum
  kRemove,   // key: kNumber, 1 if it was there
  // Of the membership: from a client.
  // rank, number: the process's id, key: its host, value: JoinTerms; kAlive
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
  // All ranks are there; rank: the number of the job, number, key: the server's process and host.
  kStarted,
  kAlive,  // number: how many ranks have not joined yet, value: which, key: who was turned away
  // rank, -1 for a server outside of the ranks; number: 1 when it gave up, 0 when it died; key: the
  // epoch, value: who and why
  kFailed,
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

// The value of a kJoin: what a rank expects of the job, and how it is to be treated.
struct JoinTerms {
  std::int64_t size = 1;  // of the job
  Role role = Role::kWorker;
  std::chrono::milliseconds silence = std::chrono::seconds(30);  // until the rank counts as dead
};
std::string encode(const JoinTerms& terms);
// Nothing for a text that is none.
std::optional<JoinTerms> decode_join_terms(std::string_view text);

// How errors call a server that is none of the ranks'.
inline constexpr const char* kOutsideServer = "the rendezvous server";

// The ranks that are missing by a kAlive, as an error tells it at the end of `limit`.
std::string describe_missing(const Message& alive, int size, std::chrono::milliseconds limit);

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
