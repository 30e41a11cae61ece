// The signals that a launcher is sent, as something to poll for.
#pragma once

#include <csignal>

#include "run/descriptor.h"

namespace tandem::tools {

// Once made, signals wait to be read, and writing to what nobody reads is an error and no signal.
// That stays so: one that comes when the ranks are over must not change how the launcher ends.
class Signals {
 public:
  Signals();

  int number() const { return descriptor_.number(); }
  // The next one that has come; 0: none.
  int next() const;

 private:
  Descriptor descriptor_;
};

// Whether a launcher that is sent it ends its job, rather than pass it on alone.
inline bool ends_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace tandem::tools
