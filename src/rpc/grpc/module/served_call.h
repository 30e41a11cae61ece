// A call that the server has received.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "rpc/credential.h"
#include "rpc/server.h"
#include "rpc/service/handler_threads.h"
#include "rpc/service/service.h"
#include "rpc/shared_memory/shared_memory.h"
#include "rpc/unix_socket/unix_server.h"

namespace tandem::rpc::grpc_module {

// The parts of a server that its calls use.
struct ServerParts {
  explicit ServerParts(const ServerOptions& options)
      : service{.options = options, .credential = credential_of(options.token)},
        threads(options.threads, options.waiting_calls) {}

  Service service;
  HandlerThreads threads;                   // they use the service
  std::unique_ptr<UnixServer> unix_server;  // null: there is none
};

// Owned by gRPC, which calls the On... functions on its own threads; they never wait. Until the
// caller has proved that it knows the job's token, its message is not read.
class ServedCall final : public grpc::ServerGenericBidiReactor, private CallContext {
 public:
  ServedCall(ServerParts& server, grpc::GenericCallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  const std::string& caller() const override { return caller_; }
  std::chrono::milliseconds remaining() const override;
  bool cancelled() const override { return cancelled_; }

  bool proves_membership(const grpc::GenericCallbackServerContext& context) const;
  void run();
  void send(Frame frame);

  ServerParts& server_;
  const std::chrono::system_clock::time_point deadline_;
  std::string method_, caller_;
  std::optional<ProcessIdentity> neighbor_;  // the caller, if it shares memory with this process
  SharedSender::Sent sent_;
  grpc::ByteBuffer request_, reply_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace tandem::rpc::grpc_module
