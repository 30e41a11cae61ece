#include "tandem/control_flow.h"

#include "autodiff/control_flow.h"
#include "core/status.h"
#include "op/record.h"

namespace tandem {

const OpDef kIf = {.name = "If",
                   .gradient = if_gradient,
                   .traits = kStateful,
                   .saved_inputs = kAllTensors,
                   .saved_outputs = 1u};
const OpDef kWhile = {.name = "While",
                      .gradient = while_gradient,
                      .traits = kStateful,
                      .saved_inputs = kAllTensors,
                      .saved_outputs = 1u};
const OpDef kForEach = {.name = "ForEach", .traits = kStateful};

namespace {

const OpDef& op_of(ControlFlow::Kind kind) {
  switch (kind) {
    case ControlFlow::Kind::kCond: return kIf;
    case ControlFlow::Kind::kWhile: return kWhile;
    case ControlFlow::Kind::kForEach: return kForEach;
    case ControlFlow::Kind::kCondGradient: return kIfGradient;
    case ControlFlow::Kind::kWhileGradient: break;
  }
  return kWhileGradient;
}

[[maybe_unused]] const bool control_flow_registered = control_flow_op.set(op_of);

std::vector<TensorType> specs_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorType> specs;
  specs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) specs.push_back(impl_of(tensor));
  return specs;
}

// The specs of results that both branches return. Sizes that differ are unknown.
std::vector<TensorType> common_specs(const std::vector<Tensor>& then_results,
                                     const std::vector<Tensor>& else_results) {
  const auto refuse = [](const std::string& then_output, const std::string& else_output) {
    fail<InvalidArgumentError>(
        "[cond] true_fn and false_fn arguments to tf.cond must have the same number, type, and "
        "overall structure of return values.\n\ntrue_fn output:  {}\nfalse_fn output: {}",
        then_output, else_output);
  };
  if (then_results.size() != else_results.size())
    refuse(fmt::format("{} tensors", then_results.size()),
           fmt::format("{} tensors", else_results.size()));
  std::vector<TensorType> specs = specs_of(then_results);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorType& other = impl_of(else_results[i]);
    if (specs[i].dtype != other.dtype || !may_agree(specs[i].shape, other.shape)) {
      const auto text = [&](const TensorType& spec) {
        return fmt::format("tensor {} of shape {} and dtype {}", i, spec.shape.to_string(),
                           name_of(spec.dtype));
      };
      refuse(text(specs[i]), text(other));
    }
    for (int axis = 0; axis < specs[i].shape.rank(); ++axis)
      if (specs[i].shape.word(axis) != other.shape.word(axis)) specs[i].shape.set(axis, -1);
    specs[i].shape = with_symbols(*context.graph->sizes(), specs[i].shape, "cond");
  }
  return specs;
}

void check_carried(const std::vector<Tensor>& entered, const std::vector<Tensor>& returned) {
  if (entered.size() != returned.size())
    fail<InvalidArgumentError>(
        "[while_loop] The two structures don't have the same nested structure: the loop has {} "
        "loop variables, its body returns {}",
        entered.size(), returned.size());
  for (std::size_t i = 0; i < entered.size(); ++i) {
    const TensorType &before = impl_of(entered[i]), &after = impl_of(returned[i]);
    if (before.dtype != after.dtype)
      fail<InvalidArgumentError>(
          "[while_loop] Input tensor {} enters the loop with dtype {}, but has dtype {} after one "
          "iteration.",
          i, name_of(before.dtype), name_of(after.dtype));
    if (!may_agree(before.shape, after.shape))
      fail<InvalidArgumentError>(
          "[while_loop] Input tensor {} enters the loop with shape {}, but has shape {} after one "
          "iteration. Loop variables keep their shapes.",
          i, before.shape.to_string(), after.shape.to_string());
  }
}

}  // namespace

namespace detail {

void check_predicate(const Tensor& predicate, const char* what) {
  if (predicate.dtype() == DType::kBool && predicate.rank() == 0) return;
  fail<InvalidArgumentError>("[{}] expected a scalar of bool to decide, got shape {} and dtype {}",
                             what, predicate.shape().to_string(), name_of(predicate.dtype()));
}

std::vector<Tensor> trace_cond(const Tensor& predicate,
                               const std::function<std::vector<Tensor>()>& then_fn,
                               const std::function<std::vector<Tensor>()>& else_fn) {
  std::vector<TracedBody> branches;
  for (const auto* branch : {&then_fn, &else_fn})
    branches.push_back(trace_body({}, [&](const std::vector<Tensor>&) { return (*branch)(); }));
  std::vector<TensorType> specs = common_specs(branches[0].results, branches[1].results);
  return add_control_flow(kIf, {.kind = ControlFlow::Kind::kCond}, {&predicate, 1},
                          std::move(branches), std::move(specs));
}

void check_loop_vars(const char* what, std::size_t expected, std::size_t got) {
  if (expected != got)
    fail<InvalidArgumentError>(
        "[while_loop] the {} has {} tensors, but there are {} loop variables", what, expected, got);
}

}  // namespace detail

std::vector<Tensor> while_loop(
    const std::function<Tensor(const std::vector<Tensor>& loop_vars)>& condition,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& loop_vars)>& body,
    std::vector<Tensor> loop_vars, const WhileOptions& options) {
  if (loop_vars.empty()) throw InvalidArgumentError("[while_loop] No loop variables provided.");
  if (options.maximum_iterations && *options.maximum_iterations < 0)
    fail<InvalidArgumentError>("[while_loop] expected maximum_iterations of at least 0, got {}",
                               *options.maximum_iterations);
  const auto holds = [&](const std::vector<Tensor>& variables) {
    Tensor result = condition(variables);
    detail::check_predicate(result, "while_loop");
    return result;
  };
  if (context.graph) {
    std::vector<TensorType> specs = specs_of(loop_vars);
    std::vector<TracedBody> bodies;
    bodies.push_back(trace_body(specs, [&](const std::vector<Tensor>& variables) {
      return std::vector<Tensor>{holds(variables)};
    }));
    bodies.push_back(trace_body(specs, body));
    check_carried(loop_vars, bodies[1].results);
    return add_control_flow(kWhile,
                            {.kind = ControlFlow::Kind::kWhile,
                             .carried = loop_vars.size(),
                             .maximum_iterations = options.maximum_iterations.value_or(-1)},
                            loop_vars, std::move(bodies), std::move(specs));
  }
  for (std::int64_t i = 0; !options.maximum_iterations || i < *options.maximum_iterations; ++i) {
    if (!holds(loop_vars).item<bool>()) break;
    std::vector<Tensor> next = body(loop_vars);
    check_carried(loop_vars, next);
    loop_vars = std::move(next);
  }
  return loop_vars;
}

void trace_for_each(ElementSource source, std::span<const TensorType> element, const BodyFn& body) {
  std::vector<TensorType> specs(element.begin(), element.end());
  for (TensorType& spec : specs)
    spec.shape = with_symbols(*context.graph->sizes(), spec.shape, "element");
  std::vector<TracedBody> bodies;
  bodies.push_back(trace_body(specs, body));
  add_control_flow(
      kForEach,
      {.kind = ControlFlow::Kind::kForEach, .elements = specs.size(), .source = std::move(source)},
      {}, std::move(bodies), {});
}

}  // namespace tandem
