// The launcher's signals as a descriptor that can be polled.
#pragma once

#include <csignal>

#include "run/descriptor.h"

namespace tandem::tools {

// Blocks signals, so that they are read from the descriptor, and ignores SIGPIPE. This is not
// undone, because a late signal must not change the launcher's exit code.
class Signals {
 public:
  Signals();

  int number() const { return descriptor_.number(); }
  // The next pending signal; 0 if there is none.
  int next() const;

 private:
  FileDescriptor descriptor_;
};

// Whether the launcher terminates its job on this signal. Other signals are only forwarded.
inline bool ends_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace tandem::tools
