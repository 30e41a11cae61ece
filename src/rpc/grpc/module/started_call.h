// A call under way, on the caller's side.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "rpc/call_outcome.h"
#include "rpc/channel.h"
#include "rpc/frame.h"
#include "rpc/unix_socket/neighbor.h"

namespace tandem::rpc::grpc_module {

// gRPC reports the end on one of its threads. This object outlives that report: were the report the
// last to use the connection, gRPC's thread would wait for itself.
class StartedCall final : public Call {
 public:
  StartedCall(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<Neighbor> server,
              CallDescription description, bool wait_for_server);
  ~StartedCall() override;

  grpc::ClientContext& context() { return context_; }
  // `sent`: the blocks of the request.
  void start(const std::string& path, Frame request, SharedSender::Sent sent);

  bool done() const override;
  Message wait() override;
  void cancel() override;

 private:
  void end(grpc::Status status);
  std::string_view announced(const char* key) const;
  void wait_for_end();
  [[noreturn]] void fail_with_status() const;

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

}  // namespace tandem::rpc::grpc_module
