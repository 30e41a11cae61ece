// What the parts of a replica's step (sync/parts.h) write to variables.
#pragma once

#include <vector>

#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "sync/tree_sum.h"

namespace tandem {

// A part writes to the replica's copy and reads what it wrote. When it ends, the copy becomes what
// it was before the step; when all have ended, every copy becomes their sum, their mean, or the
// first part's value. Belongs to one thread.
class PartWrites {
 public:
  // The part under way is about to write to the replica's copy. Throws InvalidArgumentError for a
  // variable without an aggregation, UnimplementedError for a sum over copies that are kept apart.
  void begin(VariableImpl& variable);
  void end_part();
  // Brings the parts of all replicas together; every replica has written to the same variables.
  // `replica`: null where there is one alone.
  void finish(ReplicaContext* replica);

 private:
  struct Write {
    RefPtr<VariableImpl> variable;
    std::size_t copy = 0;
    Tensor before;
    bool in_part = false;  // the part under way has written
    TreeSum sum;
    Tensor first;  // the first part's, where that is all that counts
  };

  bool only_first(const Write& write) const;

  std::vector<Write> writes_;
  int parts_ = 0;  // that have ended
};

}  // namespace tandem
