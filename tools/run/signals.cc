#include "run/signals.h"

#include <sys/signalfd.h>

namespace tandem::tools {

Signals::Signals() {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&signals_, number);
  sigprocmask(SIG_BLOCK, &signals_, &before_);
  pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
  descriptor_ = Descriptor(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.is_open())
    throw ResourceExhaustedError(std::string("[run] signalfd: ") + std::strerror(errno));
}

Signals::~Signals() {
  while (next() != 0) {  // those that were passed on are not for this process
  }
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  std::signal(SIGPIPE, pipe_before_);
}

int Signals::next() const {
  signalfd_siginfo info = {};
  return read(descriptor_.number(), &info, sizeof(info)) == sizeof(info)
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

}  // namespace tandem::tools
