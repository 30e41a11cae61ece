#include "ps/task_meter.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ps/server_methods.h"
#include "ps/tensor_message.h"
#include "ps/worker_methods.h"
#include "rpc/frame.h"

namespace tandem::ps {
namespace {

std::uint64_t milliseconds_of(std::chrono::steady_clock::duration duration) {
  const auto count = std::chrono::floor<std::chrono::milliseconds>(duration).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

class MeasuredServer final : public rpc::Server {
 public:
  MeasuredServer(std::unique_ptr<rpc::Server> server, TaskMeter& meter)
      : server_(std::move(server)), meter_(meter) {}

  void handle(const std::string& method, rpc::Handler handler) override {
    server_->handle(method, [this, method, handler = std::move(handler)](
                                const rpc::CallContext& context, rpc::Message request) {
      return meter_.run(method, handler, context, std::move(request));
    });
  }
  void start() override { server_->start(); }
  std::uint16_t port() const override { return server_->port(); }
  void check_listening() const override { server_->check_listening(); }
  void stop(std::chrono::milliseconds limit) override { server_->stop(limit); }

 private:
  const std::unique_ptr<rpc::Server> server_;
  TaskMeter& meter_;
};

class MeasuredCall final : public rpc::Call {
 public:
  MeasuredCall(std::unique_ptr<rpc::Call> call, TaskMeter& meter)
      : call_(std::move(call)), meter_(meter) {}

  bool done() const override { return call_->done(); }
  rpc::Message wait() override {
    rpc::Message reply = call_->wait();
    meter_.add_bytes_in(rpc::frame_bytes(reply));
    return reply;
  }
  void cancel() override { call_->cancel(); }

 private:
  const std::unique_ptr<rpc::Call> call_;
  TaskMeter& meter_;
};

class MeasuredChannel final : public rpc::Channel {
 public:
  MeasuredChannel(std::shared_ptr<rpc::Channel> channel, TaskMeter& meter)
      : channel_(std::move(channel)), meter_(meter) {}

  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions& options) override {
    const std::size_t bytes = rpc::frame_bytes(request);
    auto call = channel_->start(method, std::move(request), options);
    meter_.add_bytes_out(bytes);
    return std::make_unique<MeasuredCall>(std::move(call), meter_);
  }

 private:
  const std::shared_ptr<rpc::Channel> channel_;
  TaskMeter& meter_;
};

}  // namespace

// Counts as run if it has not thrown.
class TaskMeter::Closure {
 public:
  explicit Closure(TaskMeter& meter) : meter_(meter) {
    const std::lock_guard lock(meter_.mutex_);
    at_ = meter_.running_.insert(Clock::now());
  }
  ~Closure() {
    const std::lock_guard lock(meter_.mutex_);
    meter_.running_.erase(at_);
  }
  Closure(const Closure&) = delete;
  Closure& operator=(const Closure&) = delete;
  void finish() {
    const std::lock_guard lock(meter_.mutex_);
    meter_.last_[meter_.closures_++ % meter_.last_.size()] = Clock::now() - *at_;
  }

 private:
  TaskMeter& meter_;
  std::multiset<Clock::time_point>::iterator at_;
};

rpc::Message TaskMeter::run(const std::string& method, const rpc::Handler& handler,
                            const rpc::CallContext& context, rpc::Message request) {
  add_bytes_in(rpc::frame_bytes(request));
  if (method == kRead || method == kReadRows) ++pulls_;
  if (method == kApply) ++pushes_;
  std::optional<Closure> closure;
  if (method == kRun) closure.emplace(*this);
  rpc::Message reply = handler(context, std::move(request));
  if (closure) closure->finish();
  add_bytes_out(rpc::frame_bytes(reply));
  return reply;
}

// REQUIRES: mutex_ is held.
std::uint64_t TaskMeter::median_ms() const {
  const std::size_t count = std::min<std::size_t>(closures_, last_.size());
  if (count == 0) return 0;
  std::vector<Clock::duration> sorted(last_.begin(),
                                      last_.begin() + static_cast<std::ptrdiff_t>(count));
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return milliseconds_of(*middle);
}

void TaskMeter::describe(proto::StatusReply& reply) const {
  reply.set_bytes_in(bytes_in_);
  reply.set_bytes_out(bytes_out_);
  reply.set_pulls(pulls_);
  reply.set_pushes(pushes_);
  const std::lock_guard lock(mutex_);
  reply.set_closures(closures_);
  reply.set_running(static_cast<std::uint32_t>(running_.size()));
  if (!running_.empty()) reply.set_longest_ms(milliseconds_of(Clock::now() - *running_.begin()));
  reply.set_median_ms(median_ms());
}

std::unique_ptr<rpc::Server> measured(std::unique_ptr<rpc::Server> server, TaskMeter& meter) {
  return std::make_unique<MeasuredServer>(std::move(server), meter);
}

std::shared_ptr<rpc::Channel> measured(std::shared_ptr<rpc::Channel> channel, TaskMeter& meter) {
  return std::make_shared<MeasuredChannel>(std::move(channel), meter);
}

void serve_status(rpc::Server& server, std::function<void(proto::StatusReply&)> describe) {
  server.handle(kStatus,
                [describe = std::move(describe)](const rpc::CallContext&, const rpc::Message&) {
                  proto::StatusReply reply;
                  describe(reply);
                  return message_of(reply);
                });
}

}  // namespace tandem::ps
