#include "run/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include "core/file_error.h"
#include "run/job_directory.h"
#include "run/job_server.h"
#include "run/local_host.h"
#include "run/output_sink.h"
#include "run/signals.h"
#include "run/ssh_host.h"

namespace tandem::tools {
namespace {

using Clock = std::chrono::steady_clock;

std::string own_path() {
  std::array<char, 4096> path = {};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "tandem";
}

// Launches one job and supervises it until it has ended.
class JobLauncher {
 public:
  explicit JobLauncher(const RunOptions& options)
      : options_(options),
        user_environment_(user_environment(options)),
        plan_(make_job_plan(options)),
        sink_(plan_, options.output),
        progress_(plan_.ranks.size()) {}

  int run() {
    try {
      start();
    } catch (const StartInterrupted& interrupted) {
      return 128 + interrupted.signal;
    }
    std::vector<pollfd> polled;
    while (!all_closed()) {
      polled = {{signals_.number(), POLLIN, 0}};
      for (const auto& host : hosts_) host->add_polled(polled);
      poll(polled.data(), polled.size(), 200);
      for (int number = signals_.next(); number != 0; number = signals_.next()) pass_on(number);
      for (std::size_t i = 0; i < hosts_.size(); ++i) {
        Events events(*this, i);
        hosts_[i]->progress(events);
      }
      if (servers_alone()) begin_ending(SIGTERM);
      restart_due();
      if (kill_at_ && Clock::now() >= *kill_at_) {
        send_signal(SIGKILL);
        if (!lost_at_) lost_at_ = Clock::now() + kAfterKill;
      }
      if (lost_at_ && Clock::now() >= *lost_at_) abort_job();
    }
    if (failure_ || output_failure_) keep_snapshots();
    hosts_.clear();
    server_.reset();
    return conclude();
  }

 private:
  static constexpr auto kAfterKill =
      std::chrono::seconds(10);  // for remote hosts to report the end of ranks
  static constexpr int kMaxRestarts = 10;
  // Not TMPDIR, which may be too long for the path of a Unix socket.
  static constexpr const char* kSocketsParent = "/tmp";
  // A task that fails so soon after its start is started again after the pause.
  static constexpr auto kSoon = std::chrono::seconds(5), kPause = std::chrono::seconds(1);
  // A task that ends so often in the same way so soon after its start would do so for ever.
  static constexpr int kQuickFailures = 3;

  struct RankProgress {
    bool ended = false, closed = false;
    int status = 0;
    int restarts = 0;
    int quick_failures = 0;  // in a row, all with `quick_code`
    int quick_code = 0;
    Clock::time_point started;
    std::optional<Clock::time_point> restart_at;
  };
  struct RankFailure {
    int rank = 0;
    int code = 1;
    std::string what;
    Clock::time_point when;
  };

  class Events final : public RankEvents {
   public:
    Events(JobLauncher& launcher, std::size_t host) : launcher_(launcher), host_(host) {}
    void wrote(int rank, StandardStream output, std::string_view bytes) override {
      if (!launcher_.knows(rank, host_) || bytes.empty()) return;
      const OutputSink::Failure failure = launcher_.sink_.write(rank, output, bytes);
      if (failure.error != 0) launcher_.output_lost(failure);
    }
    void ended(int rank, pid_t process, int status) override {
      if (launcher_.knows(rank, host_)) launcher_.rank_ended(rank, process, status);
    }
    void closed(int rank) override {
      if (launcher_.knows(rank, host_))
        launcher_.progress_[static_cast<std::size_t>(rank)].closed = true;
    }
    void lost(const std::string& reason) override { launcher_.host_lost(host_, reason); }

   private:
    JobLauncher& launcher_;
    std::size_t host_;
  };

  void start() {
    const auto start_timeout = std::chrono::milliseconds(
        static_cast<std::int64_t>(std::ceil(options_.start_timeout * 1e3)));
    for (const HostSlots& host : plan_.hosts) {
      if (is_this_host(host.name)) {
        hosts_.push_back(std::make_unique<LocalHost>());
      } else {
        hosts_.push_back(std::make_unique<SshHost>(
            host.name, options_.ssh,
            options_.remote_command.empty() ? own_path() : options_.remote_command, signals_,
            start_timeout));
      }
    }
    // After the hosts, whose constructors fork; before ports are reserved, since it raises the
    // limit.
    server_.emplace(options_, plan_);
    const bool here = plan_.one_host() && is_this_host(plan_.hosts.front().name);
    if (here && plan_.servers) sockets_.emplace(kSocketsParent);
    addresses_.tasks.resize(plan_.ranks.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      addresses_.hosts.push_back(here ? "127.0.0.1" : plan_.hosts[i].name);
      reserve_addresses(i);
      addresses_.rendezvous.push_back(server_->address_for(plan_.hosts[i].name));
    }
    started_ = Clock::now();
    for (RankProgress& progress : progress_) progress.started = started_;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      std::vector<RankSpec> specs;
      for (const PlannedRank& rank : plan_.ranks)
        if (rank.host == i) specs.push_back(spec_of(rank));
      hosts_[i]->start(specs);
    }
  }

  // Tasks of one host that serve listen at Unix sockets, others at ports.
  void reserve_addresses(std::size_t host) {
    std::vector<const PlannedRank*> with_ports;
    for (const PlannedRank& rank : plan_.ranks)
      if (sockets_)
        address_of(rank) =
            fmt::format("unix:{}/{}-{}", sockets_->path(), rank.task.type, rank.task.index);
      else if (rank.host == host)
        with_ports.push_back(&rank);
    const std::vector<int> ports = hosts_[host]->reserve_ports(with_ports.size() + 1);
    for (std::size_t i = 0; i < with_ports.size(); ++i)
      address_of(*with_ports[i]) = fmt::format("{}:{}", addresses_.hosts[host], ports[i]);
    if (host == 0) addresses_.master_port = ports.back();
  }
  std::string& address_of(const PlannedRank& rank) {
    return addresses_.tasks[static_cast<std::size_t>(rank.rank)];
  }

  RankSpec spec_of(const PlannedRank& rank) const {
    RankSpec spec = {.rank = rank.rank,
                     .local_rank = rank.local_rank,
                     .local_size = rank.local_size,
                     .bind = options_.bind == "core",
                     .program = options_.program,
                     .environment = user_environment_};
    for (auto& each : environment_of(plan_, rank, addresses_, server_->token()))
      spec.environment.push_back(std::move(each));
    if (options_.no_tls) spec.environment.emplace_back("TANDEM_TLS", "0");
    if (rank.task.type == "ps") spec.snapshots = options_.snapshots.value_or("");
    return spec;
  }

  bool knows(int rank, std::size_t host) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < plan_.ranks.size() &&
           plan_.ranks[static_cast<std::size_t>(rank)].host == host;
  }

  void rank_ended(int rank, pid_t process, int status) {
    RankProgress& progress = progress_[static_cast<std::size_t>(rank)];
    progress.ended = true;
    progress.status = status;
    const PlannedRank& planned = plan_.ranks[static_cast<std::size_t>(rank)];
    const std::string who = fmt::format("{} (process {} on {})", describe(planned), process,
                                        plan_.hosts[planned.host].name);
    if (WIFSIGNALED(status)) {
      failed(planned, 128 + WTERMSIG(status),
             fmt::format("{} was killed by signal {} ({})", who, WTERMSIG(status),
                         strsignal(WTERMSIG(status))));
    } else if (WEXITSTATUS(status) != 0) {
      failed(planned, WEXITSTATUS(status),
             fmt::format("{} exited with code {}", who, WEXITSTATUS(status)));
    }
    if (server_ && !progress.restart_at) server_->rank_ended(rank);
  }

  // A task that serves is restarted, up to a limit. The failure of another ends the job.
  void failed(const PlannedRank& rank, int code, const std::string& what) {
    RankProgress& progress = progress_[static_cast<std::size_t>(rank.rank)];
    if (!rank.serves || ending_) return fail(rank.rank, code, what);
    const int limit = options_.max_restarts.value_or(kMaxRestarts);
    if (progress.restarts == limit)
      return fail(rank.rank, code, fmt::format("{} and was restarted {} times", what, limit));
    const Clock::time_point now = Clock::now();
    const bool quick = now - progress.started < kSoon;
    const bool from_outside = code == 128 + SIGKILL || code == 128 + SIGTERM;
    if (!quick || from_outside || code != progress.quick_code) progress.quick_failures = 0;
    progress.quick_code = code;
    if (quick && !from_outside && ++progress.quick_failures == kQuickFailures)
      return fail(rank.rank, code,
                  fmt::format("{}, as in each of {} starts in a row, within {} s: it cannot start",
                              what, kQuickFailures,
                              std::chrono::duration_cast<std::chrono::seconds>(kSoon).count()));
    progress.restart_at = quick ? now + kPause : now;
    ++progress.restarts;
    std::cerr << fmt::format("tandem: {}; restart {} of {}\n", what, progress.restarts, limit);
  }

  void restart_due() {
    for (const PlannedRank& rank : plan_.ranks) {
      RankProgress& progress = progress_[static_cast<std::size_t>(rank.rank)];
      if (!progress.restart_at || !progress.closed || Clock::now() < *progress.restart_at) continue;
      progress = {.restarts = progress.restarts,
                  .quick_failures = progress.quick_failures,
                  .quick_code = progress.quick_code,
                  .started = Clock::now(),
                  .restart_at = {}};
      try {
        hosts_[rank.host]->restart(spec_of(rank));
      } catch (const Error& error) {
        progress.ended = progress.closed = true;
        fail(rank.rank, 127,
             fmt::format("{} cannot be restarted: {}", describe(rank), error.what()));
      }
    }
  }

  std::string describe(const PlannedRank& rank) const {
    const bool by_task = rank.label != std::to_string(rank.rank);
    return by_task ? fmt::format("rank {}, {},", rank.rank, rank.label)
                   : fmt::format("rank {}", rank.rank);
  }

  // Records the first failure. Ranks that end after that are its consequences.
  void fail(int rank, int code, const std::string& what) {
    if (failure_ || ending_) return;
    failure_ = RankFailure{rank, code, what, Clock::now()};
    begin_ending(SIGTERM);
  }

  void host_lost(std::size_t host, const std::string& reason) {
    for (const PlannedRank& rank : plan_.ranks) {
      RankProgress& progress = progress_[static_cast<std::size_t>(rank.rank)];
      if (rank.host != host || progress.closed) continue;
      progress.closed = true;
      if (!progress.ended)
        fail(rank.rank, 255, fmt::format("{} is lost: {}", describe(rank), reason));
      progress.ended = true;
      if (server_) server_->rank_ended(rank.rank);
    }
  }

  void output_lost(const OutputSink::Failure& failure) {
    if (ending_) return;
    if (failure.error == EPIPE) {
      signal_ = SIGPIPE;
    } else {
      output_failure_ = failure;
    }
    begin_ending(SIGTERM);
  }

  // Whether only tasks that serve are left, which run until they are terminated.
  bool servers_alone() const {
    bool servers = false;
    for (const PlannedRank& rank : plan_.ranks) {
      const RankProgress& progress = progress_[static_cast<std::size_t>(rank.rank)];
      const bool ended = progress.ended && !progress.restart_at;
      if (!rank.serves && !ended) return false;
      servers = servers || (rank.serves && !ended);
    }
    return servers && !ending_;
  }

  void pass_on(int number) {
    if (number == SIGCHLD) return;
    if (!ends_job(number)) return send_signal(number);
    if (signal_ != 0) number = SIGKILL;  // the second signal kills the job
    if (signal_ == 0) signal_ = number;
    begin_ending(number);
  }

  void begin_ending(int number) {
    send_signal(number);
    if (!ending_)
      kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(options_.grace));
    ending_ = true;
    for (RankProgress& progress : progress_) progress.restart_at.reset();
  }

  void send_signal(int number) {
    for (const auto& host : hosts_) host->send_signal(number);
  }

  // Stops waiting for hosts that no longer answer. Their agents end when the connection closes.
  void abort_job() {
    for (RankProgress& progress : progress_) progress.closed = true;
  }

  bool all_closed() const {
    return std::all_of(progress_.begin(), progress_.end(),
                       [](const RankProgress& each) { return each.closed && !each.restart_at; });
  }

  void keep_snapshots() {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string directory = hosts_[i]->keep_snapshots();
      if (!directory.empty())
        std::cerr << fmt::format(
            "tandem: the snapshots of the parameter servers on {} are kept in '{}'\n",
            plan_.hosts[i].name, directory);
    }
  }

  int conclude() const {
    if (output_failure_)
      throw_file_error(
          fmt::format("[run] the job was terminated: cannot write the ranks' output to '{}'",
                      output_failure_->where),
          output_failure_->error);
    if (failure_) {
      const auto& lines = sink_.last_errors(failure_->rank);
      if (!lines.empty() && (plan_.ranks.size() > 1 || !options_.output.empty())) {
        std::cerr << fmt::format("tandem: last lines of rank {} on stderr:\n", failure_->rank);
        for (const std::string& line : lines) std::cerr << "    " << line << '\n';
      }
      const double seconds = std::chrono::duration<double>(failure_->when - started_).count();
      std::cerr << fmt::format("tandem: AbortedError: [run] {} after {:.1f} s{}\n", failure_->what,
                               seconds,
                               plan_.ranks.size() > 1 ? "; the other ranks were terminated" : "");
      return failure_->code;
    }
    const bool well = std::all_of(plan_.ranks.begin(), plan_.ranks.end(), [this](const auto& rank) {
      return rank.serves || progress_[static_cast<std::size_t>(rank.rank)].status == 0;
    });
    return well && signal_ != SIGPIPE ? 0 : 128 + signal_;
  }

  const RunOptions& options_;
  const Environment user_environment_;
  const JobPlan plan_;
  OutputSink sink_;
  const Signals signals_;
  std::vector<RankProgress> progress_;  // by rank
  const ChildSubreaper subreaper_;
  std::optional<JobServer> server_;      // outlives the ranks
  std::optional<JobDirectory> sockets_;  // of the tasks of one host, if there are servers
  std::vector<std::unique_ptr<Host>> hosts_;
  Addresses addresses_;
  Clock::time_point started_;
  bool ending_ = false;
  std::optional<Clock::time_point> kill_at_, lost_at_;
  std::optional<RankFailure> failure_;
  std::optional<OutputSink::Failure> output_failure_;
  int signal_ = 0;  // that terminated the job; 0 if none
};

}  // namespace

int launch(const RunOptions& options) { return JobLauncher(options).run(); }

}  // namespace tandem::tools
