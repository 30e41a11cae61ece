// A call that the server has received.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "rpc/grpc/module/handler_threads.h"
#include "rpc/server.h"
#include "rpc/shared_memory/shared_memory.h"
#include "tandem/errors.h"

namespace tandem::rpc::grpc_module {

// The parts of a server that all of its calls use.
struct Service {
  ServerOptions options;
  std::string credential;
  std::map<std::string, Handler> handlers = {};
  SharedSender sender = {};
  PeerAreas areas = {};
  HandlerThreads threads;
};

// Owned by gRPC, which calls the On... functions on its own threads; they never wait. Until the
// caller has proved that it knows the job's token, its message is not read.
class ServedCall final : public grpc::ServerGenericBidiReactor, private CallContext {
 public:
  ServedCall(Service& service, grpc::GenericCallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  const std::string& caller() const override { return caller_; }
  std::chrono::milliseconds remaining() const override;
  bool cancelled() const override { return cancelled_; }

  bool proves_membership(const grpc::GenericCallbackServerContext& context) const;
  void run() noexcept;
  Message reply_to(Frame request);
  void send(Frame frame);
  void send(const Error& error);

  Service& service_;
  const std::chrono::system_clock::time_point deadline_;
  std::string method_, caller_;
  std::optional<ProcessIdentity> neighbor_;  // the caller, if it shares memory with this process
  SharedSender::Sent sent_;
  grpc::ByteBuffer request_, reply_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace tandem::rpc::grpc_module
