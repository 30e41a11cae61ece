#include "rpc/grpc/module/served_call.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/status.h"
#include "rpc/credential.h"
#include "rpc/error_code.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {

namespace {

std::string text_of(const grpc::GenericCallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

ServedCall::ServedCall(Service& service, grpc::GenericCallbackServerContext& context)
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
  caller_ = text_of(context, kCallerKey);
  neighbor_ = neighbor(text_of(context, kProcessKey));
  if (neighbor_) context.AddTrailingMetadata(kProcessKey, announcement());
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
    if (cancelled_) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    Frame request = from_buffer(request_);
    request_.Clear();
    take_shared(request, service_.areas);
    const std::size_t bytes = frame_bytes(request.message);
    if (bytes > service_.options.largest_message)
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
              fmt::format("the request has {} bytes, more than the server's limit of {}", bytes,
                          service_.options.largest_message)});
    else
      send({.message = reply_to(std::move(request))});
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

Message ServedCall::reply_to(Frame request) {
  if (request.outcome != 0) fail<DataLossError>("[rpc] a reply was received as a request");
  const auto handler = service_.handlers.find(method_);
  if (handler == service_.handlers.end())
    fail<NotFoundError>("[rpc] the server has no method '{}'", method_);
  Message reply = handler->second(*this, std::move(request.message));
  if (frame_bytes(reply) > service_.options.largest_message)
    fail<ResourceExhaustedError>(
        "[rpc] the reply of '{}' has {} bytes, more than the server's limit of {}", method_,
        frame_bytes(reply), service_.options.largest_message);
  return reply;
}

void ServedCall::send(Frame frame) {
  if (neighbor_)
    sent_ =
        service_.sender.share(frame, {*neighbor_, std::chrono::steady_clock::now() + remaining()});
  reply_ = to_buffer(std::move(frame));
  StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
}

void ServedCall::send(const Error& error) {
  send({.outcome = code_of(error), .message = {.header = error.what()}});
}

void ServedCall::OnDone() {
  if (cancelled_) sent_.revoke();
  delete this;
}

}  // namespace tandem::rpc::grpc_module
