#include "rpc/grpc/module/started_call.h"

#include <utility>

#include "core/status.h"
#include "rpc/error_code.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {

StartedCall::StartedCall(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<PeerMemory> memory,
                         std::string description, const CallOptions& options)
    : channel_(std::move(channel)),
      memory_(std::move(memory)),
      description_(std::move(description)),
      limit_(options.limit),
      stub_(channel_) {
  context_.set_deadline(std::chrono::system_clock::now() + options.limit);
  context_.set_wait_for_ready(options.wait_for_server);
}

StartedCall::~StartedCall() {
  if (done()) return;
  context_.TryCancel();
  wait_for_end();
}

void StartedCall::start(const std::string& path, Message request) {
  Frame frame{.message = std::move(request)};
  sent_ = memory_->share(frame, limit_);
  request_ = to_buffer(std::move(frame));
  stub_.UnaryCall(&context_, path, {}, &request_, &reply_,
                  [this](grpc::Status status) { end(std::move(status)); });
}

void StartedCall::end(grpc::Status status) {
  request_.Clear();
  sent_.revoke();  // what the server has not taken, it will not take
  const auto& metadata = context_.GetServerTrailingMetadata();
  const auto process = metadata.find(kProcessKey);
  if (status.ok() && process != metadata.end())
    memory_->met({process->second.data(), process->second.size()});
  else
    memory_->lost();
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  ended_.notify_all();
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
  if (std::exchange(taken_, true))
    fail<FailedPreconditionError>("{}: its result was taken before", description_);
  if (!status_.ok()) fail_with_status();
  Frame frame;
  try {
    frame = from_buffer(reply_);
    memory_->take(frame);
  } catch (const DataLossError& error) {
    fail<DataLossError>("{}: {}", description_, error.what());
  } catch (const ResourceExhaustedError& error) {
    fail<ResourceExhaustedError>("{}: {}", description_, error.what());
  }
  reply_.Clear();
  if (frame.outcome != 0) throw_error(frame.outcome, frame.message.header);
  return std::move(frame.message);
}

void StartedCall::fail_with_status() const {
  const std::string& detail = status_.error_message();
  switch (status_.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      fail<CallDeadlineError>("{} did not end within {} ms", description_, limit_.count());
    case grpc::StatusCode::UNAUTHENTICATED:
      fail<FailedPreconditionError>("{}: the server refuses this task: {}", description_, detail);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      fail<ResourceExhaustedError>("{}: {}", description_, detail);
    case grpc::StatusCode::CANCELLED:
      if (cancelled_) fail<AbortedError>("{} was cancelled", description_);
      break;
    default: break;
  }
  fail<PeerUnavailableError>("{}: the server cannot be reached, or the connection was lost: {}",
                             description_, detail);
}

}  // namespace tandem::rpc::grpc_module
