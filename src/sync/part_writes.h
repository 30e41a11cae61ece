// Assignments to variables inside the parts of a replica's step (sync/parts.h).
#pragma once

#include <vector>

#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "sync/tree_sum.h"

namespace tandem {

// A part writes to the replica's copy of a variable and reads its own value back. When the part
// ends, the copy gets its value from before the step again. After the last part, every copy gets
// the sum or the mean of the parts' values, or the first part's value. Not thread-safe.
class PartWrites {
 public:
  // Called before the current part writes to the replica's copy. Throws InvalidArgumentError for a
  // variable without an aggregation, and UnimplementedError for kSum over kOnRead copies.
  void begin(VariableImpl& variable);
  void end_part();
  // Reduces the values of the parts of all replicas and writes the results. Every replica has
  // written to the same variables. `replica` is null if there is no strategy.
  void finish(ReplicaContext* replica);

 private:
  struct Write {
    RefPtr<VariableImpl> variable;
    std::size_t copy = 0;
    Tensor before;
    bool in_part = false;  // the current part has written to it
    TreeSum sum;
    Tensor first;  // the first part's value, for kOnlyFirstReplica
  };

  bool only_first(const Write& write) const;

  std::vector<Write> writes_;
  int parts_ = 0;  // number of parts that have ended
};

}  // namespace tandem
