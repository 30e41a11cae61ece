#include "run/guardian.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <vector>

namespace tandem::tools {
namespace {

constexpr int kMaxGroups = 4096;

// Runs in a forked process, so it must not allocate.
[[noreturn]] void guard(int pipe) {
  static std::array<pid_t, kMaxGroups> groups;
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Closes all other descriptors, since readers of pipes wait until they are closed.
  if (pipe > 0) close_range(0, static_cast<unsigned>(pipe) - 1, 0);
  close_range(static_cast<unsigned>(pipe) + 1, ~0U, 0);
  pid_t message = 0;
  while (true) {
    const ssize_t count = read(pipe, &message, sizeof(message));
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof(message)) break;
    const pid_t group = message > 0 ? 0 : -message;  // adds a group to a free slot, or removes one
    const auto slot = std::find(groups.begin(), groups.end(), group);
    if (slot != groups.end()) *slot = message > 0 ? message : 0;
  }
  for (const pid_t group : groups)
    if (group > 0) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guardian::Guardian() {
  Pipe pipe = make_pipe();
  process_ = fork();
  if (process_ < 0)
    throw ResourceExhaustedError(std::string("[run] cannot fork: ") + std::strerror(errno));
  if (process_ == 0) {
    pipe.write.close();
    guard(pipe.read.number());
  }
  pipe_ = std::move(pipe.write);
}

Guardian::~Guardian() {
  pipe_.close();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) { send(group); }
void Guardian::forget(pid_t group) { send(-group); }

void Guardian::send(pid_t group) const {
  while (write(pipe_.number(), &group, sizeof(group)) < 0 && errno == EINTR) {
  }
}

ChildSubreaper::ChildSubreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

ChildSubreaper::~ChildSubreaper() {
  // Children of those that die become children of this process.
  for (int i = 0; i < 100; ++i) {
    std::ifstream list("/proc/thread-self/children");
    std::vector<pid_t> children;
    for (pid_t child = 0; list >> child;) children.push_back(child);
    if (children.empty()) return;
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, nullptr, 0);
  }
}

}  // namespace tandem::tools
