#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "core/log.h"
#include "core/status.h"
#include "rpc/credential.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"
#include "rpc/server.h"
#include "rpc/service/handler_threads.h"
#include "rpc/service/service.h"
#include "rpc/shared_memory/shared_memory.h"
#include "rpc/unix_socket/unix_server.h"

namespace tandem::rpc::grpc_module {
namespace {

// A peer has this time for the handshake of a new connection.
constexpr int kHandshakeMs = 10'000;

std::shared_ptr<grpc::ServerCredentials> credentials_of(const ServerOptions& options) {
  if (!options.tls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions tls(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  tls.pem_key_cert_pairs.push_back({options.tls->key, options.tls->certificate});
  return grpc::SslServerCredentials(tls);
}

void set_limits(grpc::ServerBuilder& builder, const ServerOptions& options) {
  const auto largest = static_cast<int>(options.largest_message);
  builder.SetMaxReceiveMessageSize(largest);
  builder.SetMaxSendMessageSize(largest);
  builder.SetResourceQuota(grpc::ResourceQuota("tandem").Resize(options.memory_limit));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_per_connection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers at one port: an error
  const Keepalive keepalive(options.silence_limit);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.pause);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.patience);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients send pings, too; by default they would be disconnected for that.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

std::string text_of(const grpc::GenericCallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

// The parts of a server that its calls use.
struct ServerParts {
  explicit ServerParts(const ServerOptions& options)
      : service{.options = options, .credential = credential_of(options.token)},
        threads(options.threads, options.waiting_calls) {}

  Service service;
  HandlerThreads threads;                   // they use the service
  std::unique_ptr<UnixServer> unix_server;  // null: there is none
};

// A call that the server has received. Owned by gRPC, which calls the On... functions on its own
// threads; they never wait. Until the caller has proved that it knows the job's token, its message
// is not read.
class ServedCall final : public grpc::ServerGenericBidiReactor, private CallContext {
 public:
  ServedCall(ServerParts& server, grpc::GenericCallbackServerContext& context)
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

  void OnReadDone(bool ok) override {
    if (!ok) {  // cancelled, larger than the limit, or there is no message
      Finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a message"});
      return;
    }
    if (!server_.threads.submit([this] { run(); })) send(server_.service.busy());
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    if (cancelled_) sent_.revoke();
    delete this;
  }

 private:
  const std::string& caller() const override { return caller_; }
  std::chrono::milliseconds remaining() const override {
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::duration_cast<std::chrono::milliseconds>(
                        deadline_ - std::chrono::system_clock::now()));
  }
  bool cancelled() const override { return cancelled_; }

  bool proves_membership(const grpc::GenericCallbackServerContext& context) const {
    const auto [first, last] = context.client_metadata().equal_range(kCredentialKey);
    return first != last && std::next(first) == last &&
           same_credential(server_.service.credential,
                           {first->second.data(), first->second.size()});
  }

  void run() {
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

  void send(Frame frame) {
    if (neighbor_)
      sent_ = server_.service.sender.share(
          frame, {*neighbor_, std::chrono::steady_clock::now() + remaining()});
    reply_ = to_buffer(std::move(frame));
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

  ServerParts& server_;
  const std::chrono::system_clock::time_point deadline_;
  std::string method_, caller_;
  std::optional<ProcessIdentity> neighbor_;  // the caller, if it shares memory with this process
  SharedSender::Sent sent_;
  grpc::ByteBuffer request_, reply_;
  std::atomic<bool> cancelled_ = false;
};

class GrpcServer final : public Server, private grpc::CallbackGenericService {
 public:
  explicit GrpcServer(const ServerOptions& options) : parts_(options) {}
  ~GrpcServer() override { stop(std::chrono::milliseconds(0)); }

  void handle(const std::string& method, rpc::Handler handler) override {
    const std::lock_guard lock(mutex_);
    if (port_ != 0)
      fail<FailedPreconditionError>("[rpc] handler of '{}': the server has started", method);
    if (!parts_.service.handlers.emplace(method, std::move(handler)).second)
      fail<AlreadyExistsError>("[rpc] method '{}' has a handler", method);
  }

  void start() override {
    check_process();
    const std::lock_guard lock(mutex_);
    if (port_ != 0) fail<FailedPreconditionError>("[rpc] the server was started before");
    const ServerOptions& options = parts_.service.options;
    grpc::ServerBuilder builder;
    set_limits(builder, options);
    int port = 0;
    builder.AddListeningPort(to_string(Endpoint{options.host, options.port}),
                             credentials_of(options), &port);
    builder.RegisterCallbackGenericService(this);
    parts_.unix_server = make_unix_server();
    server_ = builder.BuildAndStart();
    if (!server_ || port <= 0) fail_to_listen();
    port_ = static_cast<std::uint16_t>(port);
  }

  std::uint16_t port() const override {
    const std::lock_guard lock(mutex_);
    if (port_ == 0) fail<FailedPreconditionError>("[rpc] the server has not started");
    return port_;
  }

  void stop(std::chrono::milliseconds limit) override {
    const std::lock_guard lock(mutex_);
    if (!server_) return;
    if (parts_.unix_server) parts_.unix_server->begin_to_stop(Clock::now() + limit);
    server_->Shutdown(std::chrono::system_clock::now() + limit);
    if (parts_.unix_server) parts_.unix_server->wait();
    server_.reset();
    parts_.unix_server.reset();
  }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new ServedCall(parts_, *context);
  }

  std::unique_ptr<UnixServer> make_unix_server() {
    if (announcement().empty()) return nullptr;
    try {
      return std::make_unique<UnixServer>(parts_.service, parts_.threads);
    } catch (const Error& error) {
      logging::warn("[rpc] tasks of this host call over TCP: {}", error.what());
      return nullptr;
    }
  }

  // gRPC does not say why, so this tries the same.
  [[noreturn]] void fail_to_listen() {
    const Endpoint endpoint{parts_.service.options.host, parts_.service.options.port};
    listen_on(endpoint, "the server");
    fail<UnavailableError>("[rpc] the server cannot listen on {}", to_string(endpoint));
  }

  mutable std::mutex mutex_;
  ServerParts parts_;
  std::uint16_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // uses the others
};

}  // namespace
}  // namespace tandem::rpc::grpc_module

extern "C" __attribute__((visibility("default"))) tandem::rpc::Server* tandem_make_grpc_server(
    tandem::rpc::ServerOptions* options) {
  tandem::rpc::grpc_module::check_process();
  return new tandem::rpc::grpc_module::GrpcServer(*options);
}
