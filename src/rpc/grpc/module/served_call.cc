#include "rpc/grpc/module/served_call.h"

#include <algorithm>
#include <utility>

#include "rpc/credential.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {

namespace {

std::string text_of(const grpc::GenericCallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

ServedCall::ServedCall(ServerParts& server, grpc::GenericCallbackServerContext& context)
    : server_(server), deadline_(context.deadline()), method_(context.method()) {
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
  if (neighbor_ && server.unix_server)
    context.AddTrailingMetadata(kSocketKey, server.unix_server->address());
  StartRead(&request_);
}

bool ServedCall::proves_membership(const grpc::GenericCallbackServerContext& context) const {
  const auto [first, last] = context.client_metadata().equal_range(kCredentialKey);
  return first != last && std::next(first) == last &&
         same_credential(server_.service.credential, {first->second.data(), first->second.size()});
}

void ServedCall::OnReadDone(bool ok) {
  if (!ok) {  // cancelled, larger than the limit, or there is no message
    Finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a message"});
    return;
  }
  if (!server_.threads.submit([this] { run(); })) send(server_.service.busy());
}

std::chrono::milliseconds ServedCall::remaining() const {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(
                      deadline_ - std::chrono::system_clock::now()));
}

void ServedCall::run() {
  if (cancelled_) {
    Finish(grpc::Status::CANCELLED);
    return;
  }
  send(server_.service.answer(method_, *this, [this] {
    Frame request = from_buffer(request_);
    request_.Clear();
    return request;
  }));
}

void ServedCall::send(Frame frame) {
  if (neighbor_)
    sent_ = server_.service.sender.share(
        frame, {*neighbor_, std::chrono::steady_clock::now() + remaining()});
  reply_ = to_buffer(std::move(frame));
  StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
}

void ServedCall::OnDone() {
  if (cancelled_) sent_.revoke();
  delete this;
}

}  // namespace tandem::rpc::grpc_module
