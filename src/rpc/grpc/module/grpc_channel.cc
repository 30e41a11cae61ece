#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "core/status.h"
#include "rpc/call_outcome.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/frame.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"
#include "rpc/unix_socket/neighbor.h"

namespace tandem::rpc::grpc_module {
namespace {

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

// A call under way, on the caller's side. gRPC reports the end on one of its threads. This object
// outlives that report: were the report the last to use the connection, gRPC's thread would wait
// for itself.
class StartedCall final : public Call {
 public:
  StartedCall(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<Neighbor> server,
              CallDescription description, bool wait_for_server)
      : channel_(std::move(channel)),
        server_(std::move(server)),
        description_(std::move(description)),
        stub_(channel_) {
    context_.set_deadline(std::chrono::system_clock::now() + description_.limit());
    context_.set_wait_for_ready(wait_for_server);
  }

  ~StartedCall() override {
    if (done()) return;
    context_.TryCancel();
    wait_for_end();
  }

  grpc::ClientContext& context() { return context_; }
  // `sent`: the blocks of the request.
  void start(const std::string& path, Frame request, SharedSender::Sent sent) {
    sent_ = std::move(sent);
    request_ = to_buffer(std::move(request));
    stub_.UnaryCall(&context_, path, {}, &request_, &reply_,
                    [this](grpc::Status status) { end(std::move(status)); });
  }

  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
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
    return server_->message_of(std::move(frame), description_);
  }

  void cancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    context_.TryCancel();
  }

 private:
  void end(grpc::Status status) {
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
  std::string_view announced(const char* key) const {
    const auto& metadata = context_.GetServerTrailingMetadata();
    const auto found = metadata.find(key);
    if (found == metadata.end()) return {};
    return {found->second.data(), found->second.size()};
  }
  // gRPC ends the call at its time limit.
  void wait_for_end() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return done_; });
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
    description_.fail_unreachable(detail);
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<Neighbor> server_;
  const CallDescription description_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, reply_;
  SharedSender::Sent sent_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by the mutex.
  bool done_ = false, cancelled_ = false, taken_ = false;
  grpc::Status status_;
};

class GrpcChannel final : public Channel {
 public:
  explicit GrpcChannel(ChannelOptions options)
      : options_(std::move(options)),
        credential_(credential_of(options_.token)),
        address_(to_string(Endpoint{options_.host, options_.port})),
        channel_(
            grpc::CreateCustomChannel(address_, credentials_of(options_), arguments_of(options_))),
        server_(std::make_shared<Neighbor>(options_, credential_)) {}

  std::unique_ptr<Call> start(const std::string& method, Message request,
                              const CallOptions& options) override {
    check_process();
    CallDescription description(method, options_.task, address_, options.limit);
    check(request, description);
    Frame frame{.message = std::move(request)};
    SharedSender::Sent sent = server_->share(frame, options.limit);
    if (auto call = server_->start(method, frame, sent, description)) return call;
    auto call = std::make_unique<StartedCall>(channel_, server_, std::move(description),
                                              options.wait_for_server);
    call->context().AddMetadata(kCredentialKey, credential_);
    call->context().AddMetadata(kCallerKey, options_.caller);
    if (options_.local_transport && !announcement().empty())
      call->context().AddMetadata(kProcessKey, announcement());
    call->start(std::string(kPathPrefix) + method, std::move(frame), std::move(sent));
    return call;
  }

  std::shared_ptr<std::byte> reserve(std::size_t bytes) override { return server_->reserve(bytes); }

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
  const std::shared_ptr<Neighbor> server_;
};

}  // namespace
}  // namespace tandem::rpc::grpc_module

extern "C" __attribute__((visibility("default"))) tandem::rpc::Channel* tandem_make_grpc_channel(
    tandem::rpc::ChannelOptions* options) {
  tandem::rpc::grpc_module::check_process();
  return new tandem::rpc::grpc_module::GrpcChannel(std::move(*options));
}
