#include "graph/structural_ops.h"

#include <cstring>
#include <vector>

#include "core/status.h"
#include "graph/check_numerics.h"
#include "graph/collective.h"

namespace tandem {
namespace {

void infer_spec(InferContext& c) {
  c.add_output(c.attrs<SpecAttrs>().dtype, c.attrs<SpecAttrs>().shape);
}

void infer_same(InferContext& c) { c.add_output(c.dtype(0), c.shape(0)); }

void infer_assign(InferContext& c) {
  if (c.dtype(0) != c.dtype(1) || !dim::may_equal(c.shape(0), c.shape(1)))
    fail<InvalidArgumentError>("[{}] expected shape {} and dtype {}, got {} and {}", c.op().name,
                               c.shape(0).to_string(), name_of(c.dtype(0)), c.shape(1).to_string(),
                               name_of(c.dtype(1)));
}

void assign_kernel(KernelContext& context) {
  const TensorView& to = context.inputs[0];
  const std::size_t bytes = static_cast<std::size_t>(to.size()) * size_of(to.dtype);
  if (bytes > 0) std::memmove(to.data, context.inputs[1].data, bytes);
}

}  // namespace

const OpDef kPlaceholder = {.name = "Placeholder",
                            .attrs = &attrs_type<SpecAttrs>,
                            .infer = infer_spec,
                            .traits = kStateful | kStorage};
const OpDef kConst = {
    .name = "Const", .attrs = &attrs_type<SpecAttrs>, .infer = infer_spec, .traits = kStorage};
const OpDef kVarHandle = {.name = "VarHandleOp",
                          .attrs = &attrs_type<SpecAttrs>,
                          .infer = infer_spec,
                          .traits = kStateful | kStorage};
const OpDef kReadVariable = {
    .name = "ReadVariableOp", .infer = infer_same, .traits = kView | kStateful};
const OpDef kAssignVariable = {.name = "AssignVariableOp",
                               .infer = infer_assign,
                               .cpu_kernel = assign_kernel,
                               .traits = kStateful | kStorage,
                               .mutated_inputs = 1u};
const OpDef kNoOp = {.name = "NoOp", .infer = [](InferContext&) {}, .traits = kStateful};

std::span<const OpDef* const> structural_ops() {
  static const auto& ops = *new const std::vector<const OpDef*>([] {
    std::vector<const OpDef*> all = {&kPlaceholder,    &kConst, &kVarHandle,    &kReadVariable,
                                     &kAssignVariable, &kNoOp,  &kCheckNumerics};
    const auto collectives = collective_ops();
    all.insert(all.end(), collectives.begin(), collectives.end());
    return all;
  }());
  return ops;
}

bool is_source(const OpDef& op) {
  return &op == &kPlaceholder || &op == &kConst || &op == &kVarHandle || &op == &kNoOp;
}

}  // namespace tandem
