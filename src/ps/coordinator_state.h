// The closures and workers of a coordinator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ps/coordinator.h"

namespace tandem::ps {

struct Coordinator::WorkersFunction {
  WorkersFunction(std::uint64_t id_, proto::Function message_)
      : id(id_),
        message(std::move(message_)),
        decided(std::make_shared<const Decisions::Function>(id, message)) {}

  const std::uint64_t id;
  const proto::Function message;
  const std::shared_ptr<const Decisions::Function> decided;
};

struct Coordinator::WorkersIterator {
  std::uint64_t id;
  data::DatasetDescription dataset;
  data::IterateOptions start;
};

class Coordinator::RunClosure final : public Closure {
 public:
  RunClosure(Coordinator& coordinator, FunctionRun run_, std::vector<WorkersArgument> workers_)
      : run(std::move(run_)), workers(std::move(workers_)), coordinator_(coordinator) {}
  void scheduled() override { coordinator_.open(*this); }
  void cancel(const std::exception_ptr& why) noexcept override {
    coordinator_.decisions_.drop(run.closure);
    coordinator_.finish(run.closure);
    result->abort(why);
    release();
  }
  bool started() const override { return started_; }
  void start() { started_ = true; }
  // It does not run again. Before join() returns, so that then its function can be removed.
  void release() {
    function.reset();
    iterators.clear();
  }

  FunctionRun run;  // not changed once it is scheduled
  const std::vector<WorkersArgument> workers;
  std::shared_ptr<const WorkersFunction> function;
  std::vector<std::shared_ptr<const WorkersIterator>> iterators;
  const std::shared_ptr<RemoteResult> result = std::make_shared<RemoteResult>();

 private:
  Coordinator& coordinator_;
  std::atomic<bool> started_ = false;
};

struct Coordinator::RunEnd {
  bool worker_lost = false;
  bool again = false;  // another run of the closure is needed
};

struct Coordinator::WorkerState {
  WorkerState(int index_, WorkerTask task)
      : index(index_), name(std::move(task.name)), client(std::move(task.channel)) {}

  const int index;
  const std::string name;
  WorkerClient client;
  std::vector<std::thread> threads;
  std::mutex starting;                                                      // guards the following
  std::uint64_t incarnation = 0;                                            // 0: not known
  std::map<std::uint64_t, std::weak_ptr<const WorkersFunction>> functions;  // of this incarnation
  struct OwnIterator {
    std::weak_ptr<const WorkersIterator> iterator;
    bool made = false;  // whether this incarnation has it
  };
  std::map<std::uint64_t, OwnIterator> iterators;
  std::mutex mutex;                 // guards the following
  std::condition_variable changed;  // a closure ended, or the worker is back
  bool lost = false;                // until recover() has ended
  // The runs here, and their calls, which may be cancelled. Null: not started, or ended.
  std::map<std::uint64_t, WorkerClient::Running*> runs;
  std::vector<std::uint64_t> settled;  // FunctionRun, of the next run
  // By iterator: the position after the closures that finished.
  std::map<std::uint64_t, data::IterateOptions> positions;
};

}  // namespace tandem::ps
