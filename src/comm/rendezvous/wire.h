// The messages between a rank and the rendezvous server. A frame is a length and a body.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

enum class MessageType : std::uint8_t {
  // Store requests of a client, each answered by one message. rank: the number of the job, among
  // successive jobs of the server.
  kSet = 1,  // key, value; answered by kNumber 0
  kGet,      // key; kValue once the key exists; with number 1, kNumber at once if it does not
  kAdd,      // key, number; kNumber, the sum
  kRemove,   // key; kNumber
  // Membership messages of a client.
  // rank, number: pid, key: host, value: JoinTerms; answered by kAlive
  kJoin,
  kHeartbeat,  // answered by kAlive
  kReport,     // value: why this rank fails; kReported, once the others have been informed
  kGoodbye,    // answered by kFarewell
  // Messages of the server.
  kValue,    // value
  kNumber,   // number
  kError,    // value: why a store request failed; number 1: not enough memory
  kRefused,  // value: why a rank may not join
  // All ranks have joined; rank: the job's number, number and key: the server's pid and host.
  kStarted,
  // number: ranks that have not joined, value: which, rank: the first that has; key: processes that
  // were refused
  kAlive,
  // rank, -1 for a server that is not a rank; number: 1 if it reported the failure, 0 if it died;
  // value: the rank and the reason
  kFailed,
  kReported,
  kFarewell,  // this rank has left
};

struct WireMessage {
  MessageType type = MessageType::kHeartbeat;
  std::int32_t rank = 0;
  std::int64_t number = 0;
  std::string key = {}, value = {};
};

inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = std::size_t{16} << 20;

// Throws InvalidArgumentError if the key or the value is too long.
std::string encode(const WireMessage& message);

// The value of a kJoin: the rank's view of the job, and its limit.
struct JoinTerms {
  std::int64_t size = 1;                                         // of the job
  std::chrono::milliseconds silence = std::chrono::seconds(30);  // until the rank counts as dead
};
std::string encode(const JoinTerms& terms);
// Empty if `text` is invalid.
std::optional<JoinTerms> decode_join_terms(std::string_view text);

// The name in error messages of a server that is not one of the ranks.
inline constexpr const char* kOutsideServer = "the rendezvous server";

// "no message was received ...", and that this host has too many threads, if that may be the
// reason.
std::string describe_silence(std::chrono::milliseconds time, double threads_per_core);
// Threads that run or want to, on average of the last minute.
double threads_per_core();

// The message on the ranks that a kAlive lists as missing, at the end of `limit`.
std::string describe_missing(const WireMessage& alive, int size, std::chrono::milliseconds limit);

// Splits a stream of bytes into messages.
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next complete message. Throws DataLossError for an invalid one.
  std::optional<WireMessage> next();
  // Whether an incomplete message is in the buffer.
  bool partial() const { return taken_ < buffer_.size(); }

 private:
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes of the buffer that have been decoded
};

}  // namespace tandem
