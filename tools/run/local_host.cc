#include "run/local_host.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <tuple>

#include "comm/shm/segment.h"

extern char** environ;

namespace tandem::tools {
namespace {

[[noreturn]] void throw_system(const std::string& what) {
  throw ResourceExhaustedError("[run] " + what + ": " + std::strerror(errno));
}

rlimit descriptor_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

int topology(int core, const char* name) {
  std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", core, name));
  int value = 0;
  in >> value;
  return value;
}

// This process's environment as NAME=VALUE, with `changes` applied.
std::vector<std::string> environment_with(const Environment& changes) {
  std::map<std::string, std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      all[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : changes) all[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : all) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// The arguments of a new process. Prepared before the fork, after which nothing may be allocated.
struct ProcessArguments {
  std::vector<std::string> program, environment;
  std::vector<char*> argv, envp;
  cpu_set_t cores;
  rlimit descriptors;
  bool bind = false;
  int out = -1, err = -1, failure = -1;
  pid_t parent = -1;
};

[[noreturn]] void become(const ProcessArguments& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);  // the parent died before prctl()
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setrlimit(RLIMIT_NOFILE, &launch.descriptors);
  if (launch.bind) sched_setaffinity(0, sizeof(launch.cores), &launch.cores);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(launch.out, STDOUT_FILENO);
  dup2(launch.err, STDERR_FILENO);
  execvpe(launch.argv.front(), launch.argv.data(), launch.envp.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t report = write(launch.failure, &error, sizeof(error));
  _exit(127);
}

// Orders ranks that ended at the same time: killed, failed, succeeded. A rank that was
// killed is more likely the cause of another's failure than its consequence.
int order_of(int status) { return WIFSIGNALED(status) ? 0 : WEXITSTATUS(status) != 0 ? 1 : 2; }

}  // namespace

std::vector<int> cores_of(int local_rank, int local_size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<std::tuple<int, int, int>> cores;  // package, core, its number
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed))
      cores.emplace_back(topology(core, "physical_package_id"), topology(core, "core_id"), core);
  std::sort(cores.begin(), cores.end());
  const auto count = static_cast<std::int64_t>(cores.size());
  const std::int64_t first = count * local_rank / local_size;
  const std::int64_t end = std::max(first + 1, count * (local_rank + 1) / local_size);
  std::vector<int> result;
  for (std::int64_t i = first; i < end && i < count; ++i)
    result.push_back(std::get<2>(cores[static_cast<std::size_t>(i)]));
  return result;
}

LocalHost::LocalHost() : descriptors_(descriptor_limit()) {}

LocalHost::~LocalHost() {
  for (RunningRank& running : ranks_)
    if (!running.status) end(running);
  sweep_segments();  // of ranks that were killed
}

std::vector<int> LocalHost::reserve_ports(std::size_t count) {
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) throw_system("cannot open a socket");
    // Bound but not listening: no other launcher gets the port, while a server that sets the same
    // option may still listen on it.
    const int on = 1;
    setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket.number(), generic, size) != 0 ||
        getsockname(socket.number(), generic, &size) != 0)
      throw_system("cannot find a free port");
    ports.push_back(ntohs(address.sin_port));
    reserved_.push_back(std::move(socket));
  }
  return ports;
}

std::string LocalHost::keep_snapshots() {
  return snapshots_ && snapshots_->keep() ? snapshots_->path() : "";
}

void LocalHost::start(const std::vector<RankSpec>& ranks) {
  for (const RankSpec& spec : ranks) start_one(spec);
}

void LocalHost::start_one(RankSpec spec) {
  std::erase_if(ranks_, [&](const RunningRank& each) { return each.rank == spec.rank; });
  if (spec.snapshots) {
    if (!snapshots_) snapshots_.emplace(*spec.snapshots);
    spec.environment.emplace_back("TANDEM_PS_SNAPSHOTS", snapshots_->path());
  }
  Pipe out = make_pipe(), err = make_pipe(), failure = make_pipe();
  ProcessArguments launch{.program = spec.program,
                          .environment = environment_with(spec.environment)};
  launch.argv = pointers(launch.program);
  launch.envp = pointers(launch.environment);
  launch.descriptors = descriptors_;
  launch.parent = getpid();
  launch.out = out.write.number();
  launch.err = err.write.number();
  launch.failure = failure.write.number();
  CPU_ZERO(&launch.cores);
  for (const int core : cores_of(spec.local_rank, spec.local_size)) CPU_SET(core, &launch.cores);
  launch.bind = spec.bind && CPU_COUNT(&launch.cores) > 0;

  const pid_t process = fork();
  if (process < 0) throw_system("cannot fork");
  if (process == 0) become(launch);
  setpgid(process, process);  // parent and child both call it, since either may run first
  guardian_.watch(process);
  ranks_.push_back({.rank = spec.rank,
                    .process = process,
                    .out = LineReader(std::move(out.read)),
                    .err = LineReader(std::move(err.read))});
  failure.write.close();
  int error = 0;
  if (read(failure.read.number(), &error, sizeof(error)) == sizeof(error))
    throw NotFoundError(
        fmt::format("[run] cannot start '{}': {}", spec.program.front(), std::strerror(error)));
}

void LocalHost::send_signal(int number) {
  for (const RunningRank& running : ranks_)
    if (!running.status) kill(-running.process, number);
}

void LocalHost::add_polled(std::vector<pollfd>& polled) const {
  for (const RunningRank& running : ranks_)
    for (const LineReader* reader : {&running.out, &running.err})
      if (reader->is_open()) polled.push_back({reader->number(), POLLIN, 0});
}

void LocalHost::progress(RankEvents& events) {
  // Ended ranks are collected first, so that their pipes already hold all of their output.
  collect_ended(events);
  for (RunningRank& running : ranks_) {
    if (running.closed) continue;
    const auto out = [&](std::string_view bytes) {
      events.wrote(running.rank, StandardStream::kStdout, bytes);
    };
    const auto err = [&](std::string_view bytes) {
      events.wrote(running.rank, StandardStream::kStderr, bytes);
    };
    running.out.read(out);
    running.err.read(err);
    if (!running.status) continue;
    if (running.out.is_open() || running.err.is_open()) {
      // The rank's group is gone; a process that left the group may hold the pipe open forever.
      if (std::chrono::steady_clock::now() < running.drained_by) continue;
      running.out.finish(out);
      running.err.finish(err);
    }
    running.closed = true;
    events.closed(running.rank);
  }
}

void LocalHost::collect_ended(RankEvents& events) {
  std::vector<RunningRank*> ended;
  for (RunningRank& running : ranks_) {
    if (running.status) continue;
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(running.process), &info, WEXITED | WNOHANG | WNOWAIT) !=
            0 ||
        info.si_pid == 0)
      continue;
    end(running);
    ended.push_back(&running);
  }
  std::stable_sort(ended.begin(), ended.end(), [](const RunningRank* a, const RunningRank* b) {
    return order_of(*a->status) < order_of(*b->status);
  });
  for (const RunningRank* each : ended) events.ended(each->rank, each->process, *each->status);
}

// A group's number cannot be reused before its leader has been waited for.
void LocalHost::end(RunningRank& running) {
  kill(-running.process, SIGKILL);
  int status = 0;
  while (waitpid(running.process, &status, 0) < 0 && errno == EINTR) {
  }
  guardian_.forget(running.process);
  running.status = status;
  running.drained_by = std::chrono::steady_clock::now() + std::chrono::seconds(1);
}

}  // namespace tandem::tools
