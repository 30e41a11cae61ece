// Operations of the program's own (tandem/custom_operation.h).
#pragma once

#include <string>
#include <string_view>

#include "op/fields.h"
#include "op/op.h"

namespace tandem {

// The attributes of all of them.
struct OwnAttrs {
  std::string values;  // as autodiff/custom_operation.cc writes them
  TANDEM_FIELDS(values)
};

struct OwnOp : OpDef {
  KernelFn cuda_kernel = nullptr;
};

// Null for an operation of Tandem's.
inline const OwnOp* own_op(const OpDef& op) {
  return op.attrs == &attrs_type<OwnAttrs> ? static_cast<const OwnOp*>(&op) : nullptr;
}

// Adds an operation that is never destroyed. Throws AlreadyExistsError if there is one of this
// name. Thread-safe.
void add_own_op(const OwnOp& op);
// Returns null for an unknown name.
const OwnOp* find_own_op(std::string_view name);

}  // namespace tandem
