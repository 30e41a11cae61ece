#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/status.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "train/model_impl.h"

namespace tandem::callbacks {
namespace {

// Written by the signal handler.
constinit std::atomic<int> received{0};
constinit std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (received.compare_exchange_strong(none, number)) return;
  signal(number, SIG_DFL);  // a second signal ends the process
  raise(number);
}

// Installs signal handlers while it lives.
class Handlers {
 public:
  explicit Handlers(const std::vector<int>& signals) {
    if (installed.exchange(true))
      throw FailedPreconditionError(
          "[StopOnSignal] another StopOnSignal handles the process's signals");
    received = 0;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (const int number : signals) {
      struct sigaction former = {};
      if (sigaction(number, &action, &former) != 0) {
        const int error = errno;
        restore();
        fail<InvalidArgumentError>("[StopOnSignal] cannot handle signal {}: {}", number,
                                   std::strerror(error));
      }
      former_.emplace_back(number, former);
    }
  }
  ~Handlers() { restore(); }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  void restore() {
    for (const auto& [number, former] : former_) sigaction(number, &former, nullptr);
    installed = false;
  }

  std::vector<std::pair<int, struct sigaction>> former_;
};

// How many steps the workers take between exchanges of received signals: the same number on all of
// them, and enough to make the cost negligible.
class ExchangeInterval {
 public:
  bool due() { return ++steps_ >= interval_; }
  // This worker's proposal for the number of steps until the next exchange.
  std::int64_t proposal() const {
    constexpr double kSeconds = 0.2;
    const double passed = std::chrono::duration<double>(Clock::now() - since_).count();
    const double wanted = kSeconds * static_cast<double>(steps_) / std::max(passed, 1e-6);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, 2 * interval_);
  }
  void restart(std::int64_t interval) {
    interval_ = interval;
    steps_ = 0;
    since_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t interval_ = 1, steps_ = 0;
  Clock::time_point since_ = Clock::now();
};

class StopOnSignalImpl final : public CallbackBase {
 public:
  explicit StopOnSignalImpl(StopOnSignalOptions options) : options_(std::move(options)) {
    if (options_.signals.empty()) options_.signals = {SIGINT, SIGTERM};
  }

  void on_train_begin(Model&) override {
    stopped_ = false;
    exchange_interval_ = {};
    handlers_.reset();
    handlers_.emplace(options_.signals);
  }
  void on_train_batch_end(Model& model, std::int64_t, const Logs&) override {
    const std::shared_ptr<WorkerCollectives> workers =
        impl_of(model, "StopOnSignal").runner->workers();
    if (!workers || exchange_interval_.due()) look(model, workers.get());
  }
  void on_train_end(Model& model) override {
    look(model, impl_of(model, "StopOnSignal").runner->workers().get());
    if (!stopped_) handlers_.reset();
  }

 private:
  void look(Model& model, WorkerCollectives* workers) {
    if (stopped_) return;
    const int number = workers ? agree(*workers) : received.load();
    if (number == 0) return;
    stopped_ = true;
    model.stop_training();
    if (options_.on_stop) options_.on_stop(model, number);
  }

  // The signal that any worker received; 0 if there is none. The same on all workers.
  int agree(WorkerCollectives& workers) {
    const DeviceScope host("/cpu:0");
    const std::vector<std::int64_t> mine = {received.load(), exchange_interval_.proposal()};
    const auto all =
        workers.all_reduce(constant(mine, {.dtype = int64}), ReduceOp::kMax, "signals of workers")
            .to_vector<std::int64_t>();
    exchange_interval_.restart(all[1]);
    return static_cast<int>(all[0]);
  }

  StopOnSignalOptions options_;
  std::optional<Handlers> handlers_;
  ExchangeInterval exchange_interval_;
  bool stopped_ = false;
};

}  // namespace

StopOnSignal::StopOnSignal(const StopOnSignalOptions& options)
    : Callback(std::make_shared<StopOnSignalImpl>(options)) {}

}  // namespace tandem::callbacks
