// Kills the processes of a job whose launcher was killed.
#pragma once

#include <sys/types.h>

#include "run/descriptor.h"

namespace tandem::tools {

// A process that watches the launcher and kills the process groups of its ranks when it dies.
// Ranks themselves die with the launcher (PR_SET_PDEATHSIG), but the processes that they started
// do not.
class Guardian {
 public:
  Guardian();
  ~Guardian();  // kills the groups that are still watched
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);

 private:
  void send(pid_t group) const;
  FileDescriptor pipe_;
  pid_t process_ = -1;
};

// Makes this process the parent of orphaned descendants while it lives (PR_SET_CHILD_SUBREAPER).
// Its destructor kills all remaining children.
class ChildSubreaper {
 public:
  ChildSubreaper();
  ~ChildSubreaper();
  ChildSubreaper(const ChildSubreaper&) = delete;
  ChildSubreaper& operator=(const ChildSubreaper&) = delete;
};

}  // namespace tandem::tools
