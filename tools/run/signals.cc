#include "run/signals.h"

#include <sys/signalfd.h>

namespace tandem::tools {

Signals::Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  descriptor_ = FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.is_open())
    throw ResourceExhaustedError(std::string("[run] signalfd: ") + std::strerror(errno));
}

int Signals::next() const {
  signalfd_siginfo info = {};
  return read(descriptor_.number(), &info, sizeof(info)) == sizeof(info)
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

}  // namespace tandem::tools
