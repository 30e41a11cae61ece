// Kills what a launcher leaves behind that was itself killed.
#pragma once

#include <sys/types.h>

#include "run/descriptor.h"

namespace tandem::tools {

// A process that knows the process groups of a launcher's ranks and outlives the launcher by the
// moment that it takes to kill them. Ranks themselves die with the launcher (PR_SET_PDEATHSIG);
// what they have started does not.
class Guardian {
 public:
  Guardian();
  ~Guardian();  // the groups that are still watched are killed
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);

 private:
  void tell(pid_t group) const;
  Descriptor pipe_;
  pid_t process_ = -1;
};

// While it lives, this process is the next parent of descendants that lose theirs. At its end they
// are killed, with every other child that is left.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;
};

}  // namespace tandem::tools
