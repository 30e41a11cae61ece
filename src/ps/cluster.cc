#include "ps/cluster.h"

#include <algorithm>
#include <utility>

#include "core/joined.h"
#include "core/log.h"
#include "core/random_number.h"
#include "core/status.h"
#include "core/threads.h"
#include "ps/chief_watch.h"
#include "ps/tensor_message.h"

namespace tandem::ps {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kEndLimit{5000};
constexpr milliseconds kPause{50}, kLongestPause{1000}, kAskLimit{2000}, kLongestSilence{60'000};

milliseconds until(Clock::time_point end) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(end - Clock::now()));
}

}  // namespace

struct Cluster::State {
  TaskAddress address;
  std::shared_ptr<rpc::Channel> channel;
  std::uint64_t incarnation = 0;
  bool reachable = true;

  std::unique_ptr<rpc::Call> attach(std::uint64_t run, const rpc::CallOptions& options) const {
    proto::AttachRequest request;
    request.set_type(address.type);
    request.set_index(static_cast<std::uint32_t>(address.index));
    request.set_run(run);
    return channel->start(kAttach, message_of(request), options);
  }
};

Cluster::Cluster(const distribute::ClusterResolver& resolver, const Options& options)
    : options_(options), run_(random_number()) {
  const distribute::ClusterSpec& spec = resolver.cluster_spec();
  if (spec.empty())
    fail<InvalidArgumentError>("[{}] Cluster spec must be non-empty in `ClusterResolver`.",
                               kParameterServer);
  if (resolver.task_type() == "ps" || resolver.task_type() == "worker")
    fail<InvalidArgumentError>(
        "[{}] this process is a task of type '{}', which runs a Server; expected 'chief'",
        kParameterServer, resolver.task_type());
  for (const char* type : {"ps", "worker"})
    if (tasks_of(spec, type).empty())
      fail<InvalidArgumentError>("[{}] There must be at least one {}.", kParameterServer, type);
  for (const milliseconds limit : {options.start_limit, options.heartbeat})
    if (limit <= milliseconds(0))
      fail<InvalidArgumentError>("[{}] expected a positive time limit, got {} ms", kParameterServer,
                                 limit.count());
  const TaskConnections connections(resolver, options.security);
  for (const char* type : {"ps", "worker"})
    for (const TaskAddress& address : tasks_of(spec, type)) add(address, connections);
  std::vector<std::string> names;
  for (const Task& server : servers_) names.push_back(server.name);
  lost_updates_ = std::make_shared<LostUpdates>(std::move(names));
  try {
    attach_all();
  } catch (...) {
    end_run();
    throw;
  }
  thread_ = start_thread([this] { watch(); });
}

Cluster::~Cluster() { shutdown(); }

void Cluster::add(const TaskAddress& address, const TaskConnections& connections) {
  auto state = std::make_unique<State>();
  state->address = address;
  state->channel = connections.connect(address);
  (address.type == "ps" ? servers_ : workers_).push_back({address.described(), state->channel});
  tasks_.push_back(std::move(state));
}

// Each task that is missing is asked again and again, for a short time: a connection that breaks
// leaves open whether it has answered, and the refusal of one is seen while others are missing.
void Cluster::attach_all() {
  const Clock::time_point end = Clock::now() + options_.start_limit;
  Clock::time_point report = Clock::now() + options_.report_after;
  milliseconds pause = kPause, silence = options_.report_after;
  std::vector<std::pair<State*, std::string>> missing;  // and why
  for (const auto& task : tasks_) missing.emplace_back(task.get(), "");
  const auto names = [&](bool with_reasons) {
    std::vector<std::string> described;
    for (const auto& [task, why] : missing)
      described.push_back(with_reasons ? fmt::format("{} ({})", task->address.described(), why)
                                       : task->address.described());
    return described;
  };
  for (;;) {
    std::vector<std::unique_ptr<rpc::Call>> calls;
    for (const auto& [task, why] : missing)
      calls.push_back(task->attach(run_, {.limit = std::min(until(end), kAskLimit)}));
    std::vector<std::pair<State*, std::string>> still;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      State* const task = missing[i].first;
      try {
        task->incarnation = parse<proto::AttachReply>(calls[i]->wait(), kAttach).incarnation();
      } catch (const rpc::PeerNotTrustedError& error) {
        throw FailedPreconditionError(error.what());
      } catch (const rpc::PeerUnavailableError& error) {
        still.emplace_back(task, error.what());
      } catch (const rpc::CallDeadlineError& error) {
        still.emplace_back(task, error.what());
      }
    }
    missing = std::move(still);
    if (missing.empty()) return;
    if (Clock::now() >= report) {
      logging::warn("[{}] the chief waits for {}", kParameterServer, joined(names(true), ", "));
      silence = std::min(2 * silence, kLongestSilence);
      report = Clock::now() + silence;
    }
    if (until(end) <= kPause) break;
    std::this_thread::sleep_for(std::min(pause, until(end)));
    pause = std::min(2 * pause, kLongestPause);
  }
  fail<DeadlineExceededError>("[{}] {} {} not reached within {} ms", kParameterServer,
                              joined(names(false), ", "), missing.size() == 1 ? "was" : "were",
                              options_.start_limit.count());
}

void Cluster::watch() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stopping_.wait_for(lock, options_.heartbeat, [this] { return stopped_; })) return;
    }
    std::vector<std::unique_ptr<rpc::Call>> calls;
    for (const auto& task : tasks_)
      calls.push_back(task->attach(run_, {.limit = options_.heartbeat}));
    for (std::size_t i = 0; i < calls.size(); ++i) look_at(*tasks_[i], *calls[i]);
  }
}

void Cluster::look_at(State& task, rpc::Call& call) {
  const std::string name = task.address.described();
  try {
    const auto reply = parse<proto::AttachReply>(call.wait(), kAttach);
    if (reply.incarnation() != task.incarnation) {
      const bool is_server = task.address.type == "ps";
      if (is_server && reply.life().restarts().empty())
        logging::warn("[{}] {} was restarted without snapshots, and has lost its variables",
                      kParameterServer, name);
      else
        logging::info("[{}] {} was restarted", kParameterServer, name);
      if (is_server)
        lost_updates_->heard_of(static_cast<std::size_t>(task.address.index), reply.life());
    } else if (!task.reachable) {
      logging::info("[{}] {} is reachable again", kParameterServer, name);
    }
    task.incarnation = reply.incarnation();
    task.reachable = true;
  } catch (const Error& error) {
    if (std::exchange(task.reachable, false))
      logging::warn("[{}] {} is not reachable: {}", kParameterServer, name, error.what());
  }
}

void Cluster::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  stopping_.notify_all();
  thread_.join();
  end_run();
}

void Cluster::end_run() noexcept {
  proto::EndRequest request;
  request.set_run(run_);
  std::vector<std::pair<const State*, std::unique_ptr<rpc::Call>>> calls;
  const auto attempt = [](const State& task, const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      logging::debug("[{}] {} was not reached at the end: {}", kParameterServer,
                     task.address.described(), error.what());
    }
  };
  for (const auto& task : tasks_)
    attempt(*task, [&] {
      calls.emplace_back(task.get(),
                         task->channel->start(kEnd, message_of(request), {.limit = kEndLimit}));
    });
  for (const auto& [task, call] : calls) attempt(*task, [&] { call->wait(); });
}

}  // namespace tandem::ps
