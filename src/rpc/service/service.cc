#include "rpc/service/service.h"

#include <new>
#include <utility>

#include "core/status.h"
#include "rpc/call_outcome.h"
#include "rpc/error_code.h"

namespace tandem::rpc {
namespace {

Frame frame_of(const Error& error) {
  return {.outcome = code_of(error), .message = {.header = error.what()}};
}

}  // namespace

Frame Service::answer(const std::string& method, const CallContext& context,
                      const std::function<Frame()>& receive) noexcept {
  try {
    return handle(method, context, receive());
  } catch (const Error& error) {
    return frame_of(error);
  } catch (const std::bad_alloc&) {
    return no_memory(method);
  } catch (const std::exception& error) {
    return frame_of(
        InternalError(fmt::format("[rpc] the handler of '{}' failed: {}", method, error.what())));
  } catch (...) {
    return frame_of(InternalError(fmt::format("[rpc] the handler of '{}' failed", method)));
  }
}

Frame Service::handle(const std::string& method, const CallContext& context, Frame request) {
  if (request.outcome != 0) fail<DataLossError>("[rpc] a reply was received as a request");
  const std::size_t limit = options.largest_message;
  if (const std::size_t bytes = frame_bytes(request.message); bytes > limit)
    return too_large(
        fmt::format("the request has {} bytes, more than the server's limit of {}", bytes, limit));
  const auto handler = handlers.find(method);
  if (handler == handlers.end()) fail<NotFoundError>("[rpc] the server has no method '{}'", method);
  Message reply = handler->second(context, std::move(request.message));
  if (const std::size_t bytes = frame_bytes(reply); bytes > limit)
    fail<ResourceExhaustedError>(
        "[rpc] the reply of '{}' has {} bytes, more than the server's limit of {}", method, bytes,
        limit);
  return {.message = std::move(reply)};
}

Frame Service::no_memory(const std::string& method) {
  return frame_of(ResourceExhaustedError(
      fmt::format("[rpc] the server has no memory for a call of '{}'", method)));
}

Frame Service::busy() const {
  return frame_of(ResourceExhaustedError(
      fmt::format("[rpc] the server is busy: {} calls wait for its {} threads",
                  options.waiting_calls, options.threads)));
}

}  // namespace tandem::rpc
