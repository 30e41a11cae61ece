// The signals that a launcher is sent, as something to poll for.
#pragma once

#include <csignal>

#include "run/descriptor.h"

namespace tandem::tools {

// While it lives, signals wait to be read, and writing to what nobody reads is an error and no
// signal.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int number() const { return descriptor_.number(); }
  // The next one that has come; 0: none.
  int next() const;

 private:
  sigset_t signals_ = {}, before_ = {};
  sighandler_t pipe_before_ = SIG_DFL;
  Descriptor descriptor_;
};

}  // namespace tandem::tools
