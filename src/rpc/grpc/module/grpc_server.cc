#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "comm/rendezvous/socket.h"
#include "core/status.h"
#include "rpc/call_outcome.h"
#include "rpc/credential.h"
#include "rpc/error_code.h"
#include "rpc/frame.h"
#include "rpc/grpc/module/process.h"
#include "rpc/grpc/module/wire.h"
#include "rpc/server.h"
#include "rpc/service/handler_threads.h"

namespace tandem::rpc::grpc_module {
namespace {

// The part that does not depend on how calls reach the server. Thread-safe once the handlers are
// set.
struct Service {
  ServerOptions options;
  std::string credential;  // of the job's token
  std::map<std::string, Handler> handlers = {};

  // The reply of the method's handler, or an error: its own, that of `receive`, or that of a
  // request or reply which is too large.
  Frame answer(const std::string& method, const CallContext& context,
               const std::function<Frame()>& receive) noexcept;
  // The answers to calls for which there is no thread, or no memory.
  Frame busy() const;
  static Frame no_memory(const std::string& method);

 private:
  Frame handle(const std::string& method, const CallContext& context, Frame request);
};

Frame frame_of(const Error& error) {
  return {.outcome = code_of(error), .message = {.header = error.what()}};
}

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

std::string text_of(const grpc::ServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

// A connection to the Unix socket. Throws UnavailableError if nothing listens there.
Socket connect_to_unix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open())
    fail<ResourceExhaustedError>("[rpc] cannot open a socket: {}", std::strerror(errno));
  if (connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    fail<UnavailableError>("[rpc] cannot connect to unix:{}: {}", path, std::strerror(errno));
  return socket;
}

// Whether the server reacts to a new connection before the deadline. It closes those with bytes
// that are neither of TLS nor of HTTP/2. Throws UnavailableError if nothing listens there.
bool accepts_connections(const std::string& unix_path, const Endpoint& endpoint,
                         Clock::time_point deadline) {
  const Socket socket =
      unix_path.empty() ? connect_to(endpoint, deadline) : connect_to_unix(unix_path);
  send_all(socket, "Does this server accept connections?", deadline);
  return wait_readable(socket, deadline);
}

// gRPC would take the address over.
void expect_no_listener(const std::string& unix_path) {
  try {
    connect_to_unix(unix_path);
  } catch (const UnavailableError&) {
    return;
  }
  fail<AlreadyExistsError>("[rpc] cannot listen on unix:{}: another job or program listens there",
                           unix_path);
}

// The parts of a server that its calls use.
struct ServerParts {
  explicit ServerParts(const ServerOptions& options)
      : service{.options = options, .credential = credential_of(options.token)} {}

  bool take_event();

  Service service;
  grpc::AsyncGenericService requests;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;  // of all events; the threads poll it
  std::atomic<int> calls = 0;                          // that exist
  std::optional<HandlerThreads> threads;               // the last member: they use the others
};

// A call that the server expects or has received. It deletes itself. Until the caller has proved
// that it knows the job's token, its message is not read.
class ServedCall final : private CallContext {
 public:
  explicit ServedCall(ServerParts& server) : server_(server) {
    ++server_.calls;
    context_.AsyncNotifyWhenDone(&ended_);
    server_.requests.RequestCall(&context_, &stream_, server_.queue.get(), server_.queue.get(),
                                 &received_);
  }

  // A tag of the queue: the function to call then. `ok`: whether the operation succeeded.
  struct Event {
    ServedCall* call;
    void (ServedCall::*happened)(bool ok);
  };

 private:
  ~ServedCall() override {
    if (--server_.calls == 0) server_.calls.notify_all();
  }

  void on_received(bool ok) {
    if (!ok) {  // the server stops, and on_ended() is not called
      delete this;
      return;
    }
    new ServedCall(server_);  // the next one
    deadline_ = context_.deadline();
    method_ = context_.method();
    if (!proves_membership()) return finish({grpc::StatusCode::UNAUTHENTICATED, kRefusal});
    if (!method_.starts_with(kPathPrefix))
      return finish({grpc::StatusCode::UNIMPLEMENTED, "this is a server of Tandem"});
    method_.erase(0, kPathPrefix.size());
    caller_ = text_of(context_, kCallerKey);
    stream_.Read(&request_, &read_);
  }

  void on_read(bool ok) {
    // Otherwise cancelled, larger than the limit, or there is no message.
    if (!ok) return finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a message"});
    if (!server_.threads->submit([this] { run(); })) send(server_.service.busy());
  }

  void on_ended(bool) {
    cancelled_ = context_.IsCancelled();
    release();
  }
  void on_replied(bool) { release(); }
  void release() {
    if (--awaited_ == 0) delete this;
  }

  const std::string& caller() const override { return caller_; }
  std::chrono::milliseconds remaining() const override {
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::duration_cast<std::chrono::milliseconds>(
                        deadline_ - std::chrono::system_clock::now()));
  }
  bool cancelled() const override { return cancelled_; }

  bool proves_membership() const {
    const auto [first, last] = context_.client_metadata().equal_range(kCredentialKey);
    return first != last && std::next(first) == last &&
           same_credential(server_.service.credential,
                           {first->second.data(), first->second.size()});
  }

  void run() {
    if (cancelled_) return finish(grpc::Status::CANCELLED);
    send(server_.service.answer(method_, *this, [this] {
      Frame request = from_buffer(request_);
      request_.Clear();
      return request;
    }));
  }

  void send(Frame frame) {
    stream_.WriteAndFinish(to_buffer(std::move(frame)), grpc::WriteOptions(), grpc::Status::OK,
                           &replied_);
  }
  void finish(const grpc::Status& status) { stream_.Finish(status, &replied_); }

  ServerParts& server_;
  Event received_{this, &ServedCall::on_received}, read_{this, &ServedCall::on_read},
      replied_{this, &ServedCall::on_replied}, ended_{this, &ServedCall::on_ended};
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::chrono::system_clock::time_point deadline_;
  std::string method_, caller_;
  grpc::ByteBuffer request_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int> awaited_ = 2;  // on_replied() and on_ended()
};

bool ServerParts::take_event() {
  void* tag = nullptr;
  bool ok = false;
  if (!queue->Next(&tag, &ok)) return false;
  const auto* event = static_cast<const ServedCall::Event*>(tag);
  (event->call->*event->happened)(ok);
  return true;
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(const ServerOptions& options) : parts_(options) {}
  ~GrpcServer() override { stop(std::chrono::milliseconds(0)); }

  void handle(const std::string& method, rpc::Handler handler) override {
    const std::lock_guard lock(mutex_);
    if (port_)
      fail<FailedPreconditionError>("[rpc] handler of '{}': the server has started", method);
    if (!parts_.service.handlers.emplace(method, std::move(handler)).second)
      fail<AlreadyExistsError>("[rpc] method '{}' has a handler", method);
  }

  void start() override {
    check_process();
    const std::lock_guard lock(mutex_);
    if (port_) fail<FailedPreconditionError>("[rpc] the server was started before");
    const ServerOptions& options = parts_.service.options;
    grpc::ServerBuilder builder;
    set_limits(builder, options);
    int port = 0;
    if (!options.unix_path.empty()) expect_no_listener(options.unix_path);
    builder.AddListeningPort(address_of(options), credentials_of(options), &port);
    builder.RegisterAsyncGenericService(&parts_.requests);
    parts_.queue = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (!server_ || port <= 0) fail_to_listen();
    parts_.threads.emplace(options.threads, options.waiting_calls,
                           [this] { return parts_.take_event(); });
    for (int i = 0; i < options.threads; ++i) new ServedCall(parts_);
    port_ = options.unix_path.empty() ? static_cast<std::uint16_t>(port) : 0;
  }

  std::uint16_t port() const override {
    const std::lock_guard lock(mutex_);
    if (!port_) fail<FailedPreconditionError>("[rpc] the server has not started");
    return *port_;
  }

  // gRPC accepts no further connections after accept() has failed once, and does not tell.
  void check_listening() const override {
    const ServerOptions& options = parts_.service.options;
    const Endpoint endpoint{options.host, port()};
    std::string why = "no new connection is accepted";
    // The second time for a process that was stopped during the first.
    for (int attempt = 0; attempt < 2; ++attempt) try {
        if (accepts_connections(options.unix_path, endpoint,
                                Clock::now() + options.silence_limit / 2))
          return;
      } catch (const UnavailableError& error) {
        why = error.what();
      } catch (const Error&) {  // says nothing, for instance at this process's descriptor limit
        return;
      }
    fail<UnavailableError>(
        "[rpc] the server does not listen on {} any more, for instance because it had no "
        "descriptor left for a connection (RLIMIT_NOFILE): {}",
        options.unix_path.empty() ? to_string(endpoint) : address_of(options), why);
  }

  void stop(std::chrono::milliseconds limit) override {
    const std::lock_guard lock(mutex_);
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now() + limit);
    for (int calls = parts_.calls; calls != 0; calls = parts_.calls) parts_.calls.wait(calls);
    parts_.queue->Shutdown();
    parts_.threads.reset();
    server_.reset();
  }

 private:
  // gRPC does not say why, so this tries the same.
  [[noreturn]] void fail_to_listen() {
    const ServerOptions& options = parts_.service.options;
    if (options.unix_path.empty()) listen_on({options.host, options.port}, "the server");
    fail<UnavailableError>("[rpc] the server cannot listen on {}", address_of(options));
  }

  mutable std::mutex mutex_;
  ServerParts parts_;
  std::optional<std::uint16_t> port_;     // set by start()
  std::unique_ptr<grpc::Server> server_;  // uses the others
};

}  // namespace
}  // namespace tandem::rpc::grpc_module

extern "C" __attribute__((visibility("default"))) tandem::rpc::Server* tandem_make_grpc_server(
    tandem::rpc::ServerOptions* options) {
  tandem::rpc::grpc_module::check_process();
  return new tandem::rpc::grpc_module::GrpcServer(*options);
}
