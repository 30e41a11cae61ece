// Training in a thread of its own.
#include <cfenv>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/communicator.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/threads.h"
#include "group/process_group_impl.h"
#include "online/learner.h"
#include "online/window.h"

namespace tandem::online {
namespace {

constexpr auto kPatience = std::chrono::minutes(30);  // of each wait, as the groups have it

void expect_options(const TrainerOptions& options) {
  if (options.max_lag < 0)
    fail<InvalidArgumentError>("[Trainer] expected max_lag of at least 0, got {}", options.max_lag);
  if (!(options.steps_per_push > 0.0) || std::isinf(options.steps_per_push))
    fail<InvalidArgumentError>("[Trainer] expected steps_per_push above 0, got {}",
                               options.steps_per_push);
  if (options.threads < 1)
    fail<InvalidArgumentError>("[Trainer] expected at least 1 thread, got {}", options.threads);
}

// The number of steps after push `push`, the first of which is 0.
std::int64_t steps_after(std::int64_t push, double steps_per_push) {
  const auto until = [&](std::int64_t pushes) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(pushes) * steps_per_push));
  };
  return until(push + 1) - until(push);
}

}  // namespace

// The program's thread calls the public functions; `thread_` runs run().
class Trainer::Impl {
 public:
  Impl(Learner serving, Learner training, Window window, const TrainerOptions& options);
  ~Impl();

  void push(const Tensor& x, const Tensor& y);
  Report update();
  Report stop();

 private:
  struct Push {
    Tensor x, y;
    Statistics statistics;
  };
  // The weights after a push.
  struct Snapshot {
    std::int64_t pushes = 0;
    std::vector<Tensor> weights;
    Report report;
  };

  void run();
  void train_on(const Push& push, std::int64_t number);
  void expect_running(const char* what) const;
  // Waits until the thread has trained on `pushes` of them, or has failed.
  void wait_for(std::unique_lock<std::mutex>& lock, std::int64_t pushes);
  void end_thread();
  void release();
  // Gives the serving learner another state, which `report` describes.
  Report publish(Report report, const std::function<void(Learner::Impl&)>& change);

  const Learner serving_, training_;
  const Window window_;
  const TrainerOptions options_;
  Ring kinds_;  // without samples: those of the pushes are of its kind

  std::mutex mutex_;
  Condition changed_;
  // Guarded by mutex_.
  std::deque<Push> waiting_;
  std::deque<Snapshot> snapshots_;
  std::int64_t pushed_ = 0, trained_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;

  std::int64_t published_ = 0;  // steps of the weights that predict
  bool stopped_ = false;
  const OwnProcess process_;
  std::thread thread_;
};

Trainer::Impl::Impl(Learner serving, Learner training, Window window, const TrainerOptions& options)
    : serving_(std::move(serving)),
      training_(std::move(training)),
      window_(std::move(window)),
      options_(options) {
  Learner::Impl& from = *serving_.impl();
  Learner::Impl& to = *training_.impl();
  const auto all = exchange(from.group(), "Trainer", 2, [&] {
    expect_options(options_);
    from.expect_optimizer("Trainer");
    from.expect_untrained("Trainer");
    window_.impl()->expect_untrained("Trainer");
    if (serving_.impl() == training_.impl() || serving_.model().impl() == training_.model().impl())
      throw InvalidArgumentError("[Trainer] expected two models, got one");
    if (from.group().has_value() != to.group().has_value())
      throw InvalidArgumentError("[Trainer] expected two learners with groups, or none");
    if (to.group() && !to.group()->impl()->communicator().allows_any_thread())
      throw UnimplementedError(
          "[Trainer] expected a group whose functions any thread may call: MPI with "
          "MPI_THREAD_MULTIPLE, or ranks on one host");
    to.restore(from.state(), "Trainer", "the first model");
    return std::vector<double>{static_cast<double>(options_.max_lag), options_.steps_per_push};
  });
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail<InvalidArgumentError>(
          "[Trainer] expected equal options on all ranks, got others on "
          "rank {}",
          rank);
  kinds_ = window_.impl()->kind();
  published_ = from.step();
  thread_ = start_thread([this] { run(); });
  from.trained_beside = true;
  window_.impl()->trained_beside = true;
}

Trainer::Impl::~Impl() {
  if (!process_.is_this()) {
    process_.join(thread_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
  }
  end_thread();
  release();
}

void Trainer::Impl::end_thread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_->notify_all();
  if (thread_.joinable()) thread_.join();
}

void Trainer::Impl::release() {
  if (stopped_) return;
  stopped_ = true;
  serving_.impl()->trained_beside = false;
  window_.impl()->trained_beside = false;
}

void Trainer::Impl::run() {
  std::fenv_t host;
  std::feholdexcept(&host);  // the thread has got the program's traps
  const ThreadBudget budget(options_.threads);
  for (std::int64_t number = 0;; ++number) {
    Push next;
    {
      std::unique_lock lock(mutex_);
      changed_->wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      train_on(next, number);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      waiting_.clear();
    }
    changed_->notify_all();
    const std::lock_guard lock(mutex_);
    if (error_) return;
  }
}

void Trainer::Impl::train_on(const Push& push, std::int64_t number) {
  Learner::Impl& learner = *training_.impl();
  learner.set_statistics(push.statistics);
  window_.impl()->push(push.x, push.y);
  Snapshot snapshot{.pushes = number + 1, .weights = {}, .report = {}};
  if (const std::int64_t steps = steps_after(number, options_.steps_per_push); steps > 0)
    snapshot.report =
        learner.train("Trainer", [&] { return std::pair(window_, Budget{.max_steps = steps}); });
  for (const Variable& variable : learner.model().variables())
    snapshot.weights.push_back(variable.value());
  snapshot.report.step = learner.step();
  const std::lock_guard lock(mutex_);
  trained_ = number + 1;
  snapshots_.push_back(std::move(snapshot));
  // An older one than max_lag allows is not asked for any more.
  while (snapshots_.front().pushes < pushed_ - options_.max_lag) snapshots_.pop_front();
}

void Trainer::Impl::expect_running(const char* what) const {
  process_.expect_this("Trainer");
  if (stopped_) fail<FailedPreconditionError>("[{}] the trainer was stopped", what);
}

void Trainer::Impl::wait_for(std::unique_lock<std::mutex>& lock, std::int64_t pushes) {
  if (!changed_->wait_for(lock, kPatience, [&] { return error_ || trained_ >= pushes; }))
    fail<DeadlineExceededError>("[Trainer] the thread has trained on {} of {} pushes in 30 minutes",
                                trained_, pushes);
  if (error_) std::rethrow_exception(error_);
}

void Trainer::Impl::push(const Tensor& x, const Tensor& y) {
  expect_running("push");
  serving_.impl()->expect_samples("push", x, y);
  kinds_.expect(x, y);
  kinds_.become(x, y);
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  // The program may change its memory after the call.
  waiting_.push_back({x.clone(), y.clone(), serving_.impl()->statistics()});
  ++pushed_;
  changed_->notify_all();
  wait_for(lock, pushed_ - options_.max_lag);
}

Report Trainer::Impl::publish(Report report, const std::function<void(Learner::Impl&)>& change) {
  const std::unique_lock lock(serving_.impl()->mutex);
  change(*serving_.impl());
  report.steps = report.step - published_;
  published_ = report.step;
  return report;
}

Report Trainer::Impl::update() {
  expect_running("update");
  Snapshot newest;
  {
    std::unique_lock lock(mutex_);
    const std::int64_t wanted = pushed_ - options_.max_lag;
    wait_for(lock, wanted);
    while (!snapshots_.empty() && snapshots_.front().pushes <= wanted) {
      newest = std::move(snapshots_.front());
      snapshots_.pop_front();
    }
  }
  if (newest.pushes == 0) return {.step = published_};
  return publish(newest.report, [&](Learner::Impl& serving) {
    const std::vector<Variable> variables = serving.model().variables();
    for (std::size_t i = 0; i < variables.size(); ++i)
      Variable(variables[i]).assign(newest.weights[i]);
  });
}

Report Trainer::Impl::stop() {
  expect_running("stop");
  Report report;
  try {
    std::unique_lock lock(mutex_);
    wait_for(lock, pushed_);
    if (!snapshots_.empty()) report = snapshots_.back().report;
  } catch (...) {
    end_thread();
    release();
    throw;
  }
  end_thread();
  report.step = training_.impl()->step();
  report = publish(report, [&](Learner::Impl& serving) {
    const Statistics newest = serving.statistics();
    serving.restore(training_.impl()->state(), "stop", "the trainer's model");
    serving.set_statistics(newest);
  });
  release();
  return report;
}

Trainer::Trainer(const Learner& serving, const Learner& training, const Window& window,
                 const TrainerOptions& options)
    : impl_(std::make_shared<Impl>(serving, training, window, options)) {}

void Trainer::push(const Tensor& x, const Tensor& y) const { impl_->push(x, y); }
Report Trainer::update() const { return impl_->update(); }
Report Trainer::stop() const { return impl_->stop(); }

}  // namespace tandem::online
