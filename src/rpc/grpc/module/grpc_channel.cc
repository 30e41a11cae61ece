#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "core/status.h"
#include "core/threads.h"
#include "rpc/call_outcome.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/frame.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"

namespace tandem::rpc::grpc_module {
namespace {

constexpr std::chrono::milliseconds kPollPause{100};
constexpr int kShortestPauseMs = 50, kLongestPauseMs = 2'000, kConnectMs = 10'000;

std::shared_ptr<grpc::ChannelCredentials> credentials_of(const ChannelOptions& options) {
  if (!options.root_certificate) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = *options.root_certificate});
}

grpc::ChannelArguments arguments_of(const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.largest_message));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.largest_message));
  if (options.root_certificate && !options.certificate_host.empty())
    arguments.SetSslTargetNameOverride(options.certificate_host);
  // A connection of its own, so that no channel waits for the data of another.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Tasks of a job are reached directly, and described by nothing but their addresses.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A push that is sent twice would count twice.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kShortestPauseMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestPauseMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // the time to connect
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kLongestPauseMs);
  const Keepalive keepalive(options.silence_limit);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.pause);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.patience);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

// A call under way, on the caller's side. It has a completion queue of its own: the thread that
// waits for the call polls it, and reads from the connections itself. gRPC hands the polling over
// among the threads that wait, and the one that polls reads for all calls.
class StartedCall final : public Call {
 public:
  StartedCall(CallDescription description, std::size_t largest_reply)
      : description_(std::move(description)), largest_reply_(largest_reply) {}

  ~StartedCall() override {
    if (!done()) {
      context_.TryCancel();
      wait_for_end();
    }
    queue_.Shutdown();
  }

  grpc::ClientContext& context() { return context_; }
  void start(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
             Frame request) {
    context_.set_deadline(std::chrono::system_clock::now() + description_.limit());
    reader_ = grpc::GenericStub(channel).PrepareUnaryCall(&context_, path,
                                                          to_buffer(std::move(request)), &queue_);
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, this);
  }

  bool done() const override {
    const std::unique_lock lock(polling_, std::try_to_lock);
    return lock ? poll(gpr_inf_past(GPR_CLOCK_REALTIME)) : done_.load();
  }

  Message wait() override {
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
    return description_.message_of(std::move(frame), largest_reply_);
  }

  void cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  // gRPC ends the call at its time limit.
  void wait_for_end() const {
    const std::lock_guard lock(polling_);
    poll(gpr_inf_future(GPR_CLOCK_REALTIME));
  }
  // Whether the call has ended, which is the only event of its queue. REQUIRES: polling_ is held.
  bool poll(gpr_timespec until) const {
    void* tag = nullptr;
    bool ok = false;
    if (!done_) done_ = queue_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT;
    return done_;
  }

  [[noreturn]] void fail_with_status() const {
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
    for (const char* untrusted : {"Ssl handshake failed", "is not in peer certificate"})
      if (detail.find(untrusted) != std::string::npos) description_.fail_untrusted(detail);
    description_.fail_unreachable(detail);
  }

  const CallDescription description_;
  const std::size_t largest_reply_;
  mutable std::mutex polling_;
  mutable grpc::CompletionQueue queue_;
  mutable std::atomic<bool> done_ = false;
  std::atomic<bool> cancelled_ = false;
  bool taken_ = false;
  grpc::ClientContext context_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader_;  // in the context's memory
};

// Polls now and then, for calls that no thread waits for: they end, and connections answer pings.
void poll_for_all() {
  [[maybe_unused]] static const bool started = [] {
    start_thread([] {
      grpc::CompletionQueue queue;
      void* tag = nullptr;
      bool ok = false;
      while (true) {
        std::this_thread::sleep_for(kPollPause);
        queue.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_REALTIME));
      }
    }).detach();
    return true;
  }();
}

class GrpcChannel final : public Channel {
 public:
  explicit GrpcChannel(ChannelOptions options)
      : options_(std::move(options)),
        credential_(credential_of(options_.token)),
        address_(address_of(options_)),
        channel_(grpc::CreateCustomChannel(address_, credentials_of(options_),
                                           arguments_of(options_))) {}

  std::unique_ptr<Call> start(const std::string& method, Message request,
                              const CallOptions& options) override {
    check_process();
    CallDescription description(method, options_.task, address_, options.limit);
    check(request, description);
    auto call = std::make_unique<StartedCall>(std::move(description), options_.largest_message);
    call->context().set_wait_for_ready(options.wait_for_server);
    call->context().AddMetadata(kCredentialKey, credential_);
    call->context().AddMetadata(kCallerKey, options_.caller);
    call->start(channel_, std::string(kPathPrefix) + method, {.message = std::move(request)});
    return call;
  }

 private:
  void check(const Message& request, const CallDescription& description) const {
    if (description.limit().count() <= 0)
      fail<InvalidArgumentError>("{}: expected a positive time limit, got {} ms",
                                 description.text(), description.limit().count());
    if (const std::size_t bytes = frame_bytes(request); bytes > options_.largest_message)
      description.fail_too_large(fmt::format("the request has {} bytes, more than the limit of {}",
                                             bytes, options_.largest_message));
  }

  const ChannelOptions options_;
  const std::string credential_, address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace
}  // namespace tandem::rpc::grpc_module

extern "C" __attribute__((visibility("default"))) tandem::rpc::Channel* tandem_make_grpc_channel(
    tandem::rpc::ChannelOptions* options) {
  tandem::rpc::grpc_module::check_process();
  tandem::rpc::grpc_module::poll_for_all();
  return new tandem::rpc::grpc_module::GrpcChannel(std::move(*options));
}
