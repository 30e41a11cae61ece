#include "rpc/grpc/module/started_call.h"

#include <utility>

#include "core/status.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {

StartedCall::StartedCall(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<Neighbor> server,
                         CallDescription description, bool wait_for_server)
    : channel_(std::move(channel)),
      server_(std::move(server)),
      description_(std::move(description)),
      stub_(channel_) {
  context_.set_deadline(std::chrono::system_clock::now() + description_.limit());
  context_.set_wait_for_ready(wait_for_server);
}

StartedCall::~StartedCall() {
  if (done()) return;
  context_.TryCancel();
  wait_for_end();
}

void StartedCall::start(const std::string& path, Frame request, SharedSender::Sent sent) {
  sent_ = std::move(sent);
  request_ = to_buffer(std::move(request));
  stub_.UnaryCall(&context_, path, {}, &request_, &reply_,
                  [this](grpc::Status status) { end(std::move(status)); });
}

void StartedCall::end(grpc::Status status) {
  request_.Clear();
  sent_.revoke();  // what the server has not taken, it will not take
  if (status.ok())
    server_->met(announced(kProcessKey), announced(kSocketKey));
  else
    server_->lost();
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  ended_.notify_all();
}

// A text of the server, which may have none.
std::string_view StartedCall::announced(const char* key) const {
  const auto& metadata = context_.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

bool StartedCall::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void StartedCall::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  context_.TryCancel();
}

// gRPC ends the call at its time limit.
void StartedCall::wait_for_end() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return done_; });
}

Message StartedCall::wait() {
  check_process();
  wait_for_end();
  if (std::exchange(taken_, true)) description_.fail_taken();
  if (!status_.ok()) fail_with_status();
  Frame frame;
  try {
    frame = from_buffer(reply_);
  } catch (const DataLossError& error) {
    description_.fail_damaged(error.what());
  }
  reply_.Clear();
  return server_->message_of(std::move(frame), description_);
}

void StartedCall::fail_with_status() const {
  const std::string& detail = status_.error_message();
  switch (status_.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED: description_.fail_late();
    case grpc::StatusCode::UNAUTHENTICATED:
      fail<FailedPreconditionError>("{}: the server refuses this task: {}", description_.text(),
                                    detail);
    case grpc::StatusCode::RESOURCE_EXHAUSTED: description_.fail_too_large(detail);
    case grpc::StatusCode::CANCELLED:
      if (cancelled_) description_.fail_cancelled();
      break;
    default: break;
  }
  description_.fail_unreachable(detail);
}

}  // namespace tandem::rpc::grpc_module
