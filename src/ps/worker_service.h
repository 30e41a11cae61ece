// The calls of a worker.
#pragma once

#include "data/description.h"
#include "ps/worker.h"
#include "rpc/server.h"

namespace tandem::ps {

// Answers calls of WorkerClient for this worker, which has to outlive the server. REQUIRES: before
// start().
void serve(rpc::Server& server, Worker& worker);

// The worker has been restarted since it got the function, and has run nothing.
class WorkerRestartedError : public UnavailableError {
 public:
  using UnavailableError::UnavailableError;
};

// A worker, as the coordinator sees it. Thread-safe. A run is never sent twice: errors of the
// connection (rpc/channel.h) mean that the worker may or may not have run it.
class WorkerClient {
 public:
  explicit WorkerClient(std::shared_ptr<rpc::Channel> channel) : channel_(std::move(channel)) {}

  // The worker's incarnation, which changes when it is restarted.
  std::uint64_t probe(const rpc::CallOptions& options);
  void add_function(std::uint64_t id, const proto::Function& function,
                    const rpc::CallOptions& options);
  void remove_functions(std::span<const std::uint64_t> ids, const rpc::CallOptions& options);
  // The worker makes an iterator over the dataset, which replaces an earlier one with this id.
  void add_iterator(std::uint64_t id, const data::DatasetDescription& dataset,
                    const data::IterateOptions& start, const rpc::CallOptions& options);
  void remove_iterators(std::span<const std::uint64_t> ids, const rpc::CallOptions& options);
  // A run under way. It can be cancelled, and then throws AbortedError.
  class Running {
   public:
    explicit Running(std::unique_ptr<rpc::Call> call) : call_(std::move(call)) {}
    // The results, or the worker's error. Throws WorkerRestartedError. Call it once.
    RunResult wait();
    void cancel() { call_->cancel(); }  // from any thread, also during wait()

   private:
    std::unique_ptr<rpc::Call> call_;
  };
  // `incarnation`: of the worker that has got the function.
  Running run(const FunctionRun& run, std::uint64_t incarnation, const rpc::CallOptions& options);

 private:
  std::shared_ptr<rpc::Channel> channel_;
};

}  // namespace tandem::ps
