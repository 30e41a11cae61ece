#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "core/status.h"
#include "rpc/credential.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/started_call.h"
#include "rpc/grpc/module/wire.h"

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
