// How calls end, whatever they go over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "rpc/frame.h"

namespace tandem::rpc {

// The outcome of a reply whose header says that the request, or the reply, is too large. Unlike a
// handler's error, it is thrown with the description of the call.
inline constexpr std::uint32_t kTooLarge = 1u << 30;
Frame too_large(std::string why);

// A call in error messages: its method, task and address.
class CallDescription {
 public:
  CallDescription(const std::string& method, const std::string& task, const std::string& address,
                  std::chrono::milliseconds limit);

  const std::string& text() const { return text_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // The message of a reply. Throws the error that the reply has; ResourceExhaustedError if it has
  // more than `largest` bytes.
  Message message_of(Frame reply, std::size_t largest) const;

  [[noreturn]] void fail_late() const;       // CallDeadlineError
  [[noreturn]] void fail_cancelled() const;  // AbortedError
  [[noreturn]] void fail_taken() const;      // FailedPreconditionError: wait() was called before
  [[noreturn]] void fail_damaged(const std::string& why) const;      // DataLossError
  [[noreturn]] void fail_too_large(const std::string& why) const;    // ResourceExhaustedError
  [[noreturn]] void fail_untrusted(const std::string& why) const;    // PeerNotTrustedError
  [[noreturn]] void fail_unreachable(const std::string& why) const;  // PeerUnavailableError

 private:
  const std::string text_;
  const std::chrono::milliseconds limit_;
};

}  // namespace tandem::rpc
