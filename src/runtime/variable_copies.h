// Copies of variables for code that computes with them on another device than theirs
// (parallel/device_group.h).
#pragma once

#include <unordered_map>

#include "runtime/variable_impl.h"

namespace tandem {

// While they are those of the thread's context, reads of the variables give the copies, and
// assignments change the copies alone.
class VariableCopies {
 public:
  // `copy`: the elements on the device of the code, with the gradient edge that its reads have.
  void add(const VariableImpl& variable, Tensor copy) { copies_[&variable] = std::move(copy); }
  // Null for a variable that was not added. Throws UnimplementedError if the thread traces a
  // function that was called with these copies: its program would keep their elements.
  Tensor* find(const VariableImpl& variable);
  // The copy that an assignment changes. Throws FailedPreconditionError for a variable that was not
  // added, which several threads may assign to.
  Tensor& at(const VariableImpl& variable);

 private:
  std::unordered_map<const VariableImpl*, Tensor> copies_;
};

}  // namespace tandem
