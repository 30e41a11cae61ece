// Writing to a connection that a peer has closed must not end the process.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace tandem::gloo_backend {

inline sigset_t sigpipe_alone() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

// Blocks SIGPIPE in the calling thread, and in threads that it starts, during its lifetime. Gloo
// writes without MSG_NOSIGNAL, and a library must not change the process's SIGPIPE handler.
class NoSigpipe {
 public:
  NoSigpipe() {
    const sigset_t set = sigpipe_alone();
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~NoSigpipe() {
    const sigset_t set = sigpipe_alone();
    const timespec now = {0, 0};
    if (!was_pending_) sigtimedwait(&set, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace tandem::gloo_backend
