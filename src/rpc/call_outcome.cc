#include "rpc/call_outcome.h"

#include <utility>

#include "core/status.h"
#include "rpc/channel.h"
#include "rpc/error_code.h"

namespace tandem::rpc {

Frame too_large(std::string why) {
  return {.outcome = kTooLarge, .message = {.header = std::move(why)}};
}

CallDescription::CallDescription(const std::string& method, const std::string& task,
                                 const std::string& address, std::chrono::milliseconds limit)
    : text_(fmt::format("[rpc] call of '{}' on task {} ({})", method, task, address)),
      limit_(limit) {}

Message CallDescription::message_of(Frame reply, std::size_t largest) const {
  if (reply.outcome == kTooLarge) fail_too_large(reply.message.header);
  if (reply.outcome != 0) throw_error(reply.outcome, reply.message.header);
  if (const std::size_t bytes = frame_bytes(reply.message); bytes > largest)
    fail_too_large(
        fmt::format("the reply has {} bytes, more than the limit of {}", bytes, largest));
  return std::move(reply.message);
}

void CallDescription::fail_late() const {
  throw CallDeadlineError(fmt::format("{} did not end within {} ms", text_, limit_.count()));
}
void CallDescription::fail_cancelled() const { fail<AbortedError>("{} was cancelled", text_); }
void CallDescription::fail_taken() const {
  fail<FailedPreconditionError>("{}: its result was taken before", text_);
}
void CallDescription::fail_damaged(const std::string& why) const {
  fail<DataLossError>("{}: {}", text_, why);
}
void CallDescription::fail_too_large(const std::string& why) const {
  fail<ResourceExhaustedError>("{}: {}", text_, why);
}
void CallDescription::fail_untrusted(const std::string& why) const {
  throw PeerNotTrustedError(fmt::format(
      "{}: the server did not prove that it belongs to the job: it has another token or "
      "certificate, or no TLS: {}",
      text_, why));
}
void CallDescription::fail_unreachable(const std::string& why) const {
  throw PeerUnavailableError(
      fmt::format("{}: the server cannot be reached, or the connection was lost: {}", text_, why));
}

}  // namespace tandem::rpc
