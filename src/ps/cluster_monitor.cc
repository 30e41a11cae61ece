#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "core/status.h"
#include "ps/task_connections.h"
#include "ps/task_meter.h"
#include "ps/tensor_message.h"
#include "tandem/cluster_status.h"

namespace tandem::distribute {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The chief shows every five seconds that it is alive.
constexpr milliseconds kChiefSilence{15'000};
// A closure is late after this many times the median, but not before kLeastLate. The first one also
// prepares its function: it is late after kFirstLate.
constexpr std::uint64_t kLateFactor = 10;
constexpr milliseconds kLeastLate{5'000}, kFirstLate{60'000};

void set_numbers(TaskStatus& status, const ps::proto::StatusReply& reply) {
  status.answered = true;
  status.time = Clock::now();
  status.incarnation = reply.incarnation();
  status.bytes_in = reply.bytes_in();
  status.bytes_out = reply.bytes_out();
  status.closures = reply.closures();
  status.pulls = reply.pulls();
  status.pushes = reply.pushes();
  status.updates = reply.updates();
  status.staleness_sum = reply.staleness_sum();
  status.staleness_max = reply.staleness_max();
  status.variables = reply.variables();
  status.variable_bytes = reply.variable_bytes();
}

void set_state(TaskStatus& status, const ps::proto::StatusReply& reply) {
  const bool first = reply.closures() == 0;
  const milliseconds late =
      first ? kFirstLate : std::max(kLeastLate, milliseconds(kLateFactor * reply.median_ms()));
  status.state = reply.running() > 0 ? TaskState::kBusy : TaskState::kReady;
  if (reply.running() == 0 || milliseconds(reply.longest_ms()) <= late) return;
  status.state = TaskState::kLate;
  status.reason = fmt::format("{} has run for {} ms", first ? "the first closure" : "a closure",
                              reply.longest_ms());
  if (!first) status.reason += fmt::format(", the median is {} ms", reply.median_ms());
}

}  // namespace

const char* name_of(TaskState state) {
  switch (state) {
    case TaskState::kReady: return "ready";
    case TaskState::kBusy: return "busy";
    case TaskState::kLate: return "late";
    case TaskState::kGone: return "gone";
  }
  return "unknown";
}

class ClusterMonitor::Impl {
 public:
  Impl(const ClusterSpec& cluster, const ClusterMonitorOptions& options)
      : options_(options), chief_(ps::tasks_of(cluster, "chief")) {
    for (const auto& [name, limit] :
         {std::pair{"limit", options.limit}, std::pair{"gone_after", options.gone_after}})
      if (limit <= milliseconds(0))
        fail<InvalidArgumentError>("[ClusterMonitor] expected a positive {}, got {} ms", name,
                                   limit.count());
    // This process is no task of the cluster, and an evaluator need not be one.
    const ps::TaskConnections connections(SimpleClusterResolver(cluster, "evaluator", 0),
                                          options.security);
    for (const char* type : {"worker", "ps"})
      for (ps::TaskAddress& address : ps::tasks_of(cluster, type)) {
        auto channel = connections.connect(address);
        tasks_.push_back({std::move(address), std::move(channel)});
      }
    if (tasks_.empty())
      fail<InvalidArgumentError>("[ClusterMonitor] expected a cluster with workers or servers");
  }

  std::vector<TaskStatus> poll() {
    std::vector<std::unique_ptr<rpc::Call>> calls;
    for (const Task& task : tasks_)
      calls.push_back(task.channel->start(ps::kStatus, {}, {.limit = options_.limit}));
    std::optional<milliseconds> silence;
    std::vector<TaskStatus> all;
    for (std::size_t i = 0; i < calls.size(); ++i)
      all.push_back(status_of(tasks_[i], *calls[i], silence));
    if (!chief_.empty()) all.insert(all.begin(), chief(silence));
    return all;
  }

 private:
  struct Task {
    ps::TaskAddress address;
    std::shared_ptr<rpc::Channel> channel;
    Clock::time_point heard = Clock::now();  // of its last answer, or when the monitor began
  };

  static TaskStatus named(const ps::TaskAddress& address) {
    return {.type = address.type, .index = address.index, .address = address.address()};
  }

  // Lowers `silence` to the time since this task has heard of the chief.
  TaskStatus status_of(Task& task, rpc::Call& call, std::optional<milliseconds>& silence) const {
    TaskStatus status = named(task.address);
    try {
      const auto reply = ps::parse<ps::proto::StatusReply>(call.wait(), ps::kStatus);
      if (reply.task() != task.address.name())
        fail<FailedPreconditionError>("[ClusterMonitor] expected {} at {}, and it is {}",
                                      task.address.name(), status.address, reply.task());
      set_numbers(status, reply);
      set_state(status, reply);
      task.heard = status.time;
      if (reply.attached()) {
        const milliseconds own(reply.chief_silence_ms());
        silence = silence ? std::min(*silence, own) : own;
      }
    } catch (const rpc::PeerNotTrustedError& error) {
      throw FailedPreconditionError(error.what());
    } catch (const rpc::PeerUnavailableError& error) {
      status.reason = error.what();
    } catch (const rpc::CallDeadlineError&) {
      set_silent(status, std::chrono::ceil<milliseconds>(Clock::now() - task.heard),
                 fmt::format("no answer within {} ms", options_.limit.count()));
    } catch (const ResourceExhaustedError& error) {  // too many calls wait for it
      status.state = TaskState::kLate;
      status.reason = error.what();
    }
    return status;
  }

  // `late`: the reason if the task is not gone.
  void set_silent(TaskStatus& status, milliseconds silence, const std::string& late) const {
    const bool gone = silence > options_.gone_after;
    status.state = gone ? TaskState::kGone : TaskState::kLate;
    status.reason = gone ? fmt::format("nothing was heard of it for {} ms", silence.count()) : late;
  }

  // The chief listens nowhere.
  TaskStatus chief(const std::optional<milliseconds>& silence) const {
    TaskStatus status = named(chief_.front());
    if (!silence)
      status.reason = "no task that answers serves it";
    else if (*silence <= kChiefSilence)
      status.state = TaskState::kReady;
    else
      set_silent(status, *silence,
                 fmt::format("nothing was heard of it for {} ms", silence->count()));
    return status;
  }

  const ClusterMonitorOptions options_;
  const std::vector<ps::TaskAddress> chief_;
  std::vector<Task> tasks_;
};

ClusterMonitor::ClusterMonitor(const ClusterSpec& cluster, const ClusterMonitorOptions& options)
    : impl_(std::make_unique<Impl>(cluster, options)) {}
ClusterMonitor::~ClusterMonitor() = default;
ClusterMonitor::ClusterMonitor(ClusterMonitor&&) noexcept = default;
ClusterMonitor& ClusterMonitor::operator=(ClusterMonitor&&) noexcept = default;

std::vector<TaskStatus> ClusterMonitor::poll() { return impl_->poll(); }

}  // namespace tandem::distribute
