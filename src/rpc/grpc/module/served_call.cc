#include "rpc/grpc/module/served_call.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/status.h"
#include "rpc/credential.h"
#include "rpc/error_code.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {

ServedCall::ServedCall(Service& service, const grpc::GenericCallbackServerContext& context)
    : service_(service), deadline_(context.deadline()), method_(context.method()) {
  if (!proves_membership(context)) {
    Finish({grpc::StatusCode::UNAUTHENTICATED, kRefusal});
    return;
  }
  if (!method_.starts_with(kPathPrefix)) {
    Finish({grpc::StatusCode::UNIMPLEMENTED, "this is a server of Tandem"});
    return;
  }
  method_.erase(0, kPathPrefix.size());
  const auto caller = context.client_metadata().find(kCallerKey);
  if (caller != context.client_metadata().end())
    caller_.assign(caller->second.data(), caller->second.size());
  StartRead(&request_);
}

bool ServedCall::proves_membership(const grpc::GenericCallbackServerContext& context) const {
  const auto [first, last] = context.client_metadata().equal_range(kCredentialKey);
  return first != last && std::next(first) == last &&
         same_credential(service_.credential, {first->second.data(), first->second.size()});
}

void ServedCall::OnReadDone(bool ok) {
  if (!ok) {  // cancelled, larger than the limit, or there is no message
    Finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a message"});
    return;
  }
  if (!service_.threads.submit([this] { run(); }))
    send(ResourceExhaustedError(
        fmt::format("[rpc] the server is busy: {} calls wait for its {} threads",
                    service_.options.waiting_calls, service_.options.threads)));
}

std::chrono::milliseconds ServedCall::remaining() const {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(
                      deadline_ - std::chrono::system_clock::now()));
}

void ServedCall::run() noexcept {
  try {
    if (cancelled_)
      Finish(grpc::Status::CANCELLED);
    else
      send(reply_of_handler(), 0);
  } catch (const Error& error) {
    send(error);
  } catch (const std::bad_alloc&) {
    send(ResourceExhaustedError(
        fmt::format("[rpc] the server has no memory for a call of '{}'", method_)));
  } catch (const std::exception& error) {
    send(InternalError(fmt::format("[rpc] the handler of '{}' failed: {}", method_, error.what())));
  } catch (...) {
    send(InternalError(fmt::format("[rpc] the handler of '{}' failed", method_)));
  }
}

Message ServedCall::reply_of_handler() {
  Frame frame = from_buffer(request_);
  request_.Clear();
  if (frame.outcome != 0) fail<DataLossError>("[rpc] a reply was received as a request");
  const auto handler = service_.handlers.find(method_);
  if (handler == service_.handlers.end())
    fail<NotFoundError>("[rpc] the server has no method '{}'", method_);
  Message reply = handler->second(*this, std::move(frame.message));
  if (frame_bytes(reply) > service_.options.largest_message)
    fail<ResourceExhaustedError>(
        "[rpc] the reply of '{}' has {} bytes, more than the server's limit of {}", method_,
        frame_bytes(reply), service_.options.largest_message);
  return reply;
}

void ServedCall::send(Message message, std::uint32_t outcome) {
  reply_ = to_buffer(std::move(message), outcome);
  StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
}

void ServedCall::send(const Error& error) { send({.header = error.what()}, code_of(error)); }

}  // namespace tandem::rpc::grpc_module
