// Functions with a gradient of their own.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/status.h"
#include "op/fields.h"
#include "op/record.h"
#include "tandem/autograd.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

// How backward() gets the tensors that forward() kept. They are recorded as inputs without edges,
// after the arguments, or as results, so that traces and freed records treat them as all others.
struct CustomAttrs {
  std::shared_ptr<const detail::CustomBackward> backward;
  int arguments = 0;
  std::vector<int> saved;  // input, or -1 - output
  std::map<std::string, autograd::SavedValue> saved_data;
  TANDEM_FIELDS()
};

void custom_gradient(GradContext& c) {
  const auto& attrs = c.attrs<CustomAttrs>();
  autograd::Context context;
  for (const int from : attrs.saved)
    context.saved().push_back(from < 0 ? c.output(-1 - from) : c.input(from));
  for (int i = 0; i < attrs.arguments; ++i) context.needed().push_back(c.needs_grad(i));
  context.saved_data = attrs.saved_data;
  std::vector<Tensor> gradients;
  for (int i = 0; i < c.num_outputs(); ++i) {
    const TensorType& spec = c.output_spec(i);
    gradients.push_back(c.grad(i).defined() ? c.grad(i) : zeros(spec.shape, spec.dtype));
  }
  const std::vector<Tensor> given = (*attrs.backward)(context, gradients);
  for (int i = 0; i < attrs.arguments; ++i) {
    const Tensor& gradient = given[static_cast<std::size_t>(i)];
    if (!c.needs_grad(i) || !gradient.defined()) continue;
    const TensorType& spec = c.input_spec(i);
    if (gradient.dtype() != spec.dtype || !may_agree(gradient.shape(), spec.shape))
      fail<InvalidArgumentError>(
          "[Function] expected a gradient of shape {} and dtype {} for tensor {} of the arguments, "
          "got {} and {}",
          spec.shape.to_string(), name_of(spec.dtype), i, gradient.shape().to_string(),
          name_of(gradient.dtype()));
    c.set_grad(i, gradient);
  }
}

const OpDef kCustom = {.name = "CustomGradient",
                       .attrs = &attrs_type<CustomAttrs>,
                       .gradient = custom_gradient,
                       .saved_inputs = kAllTensors,
                       .saved_outputs = kAllTensors};

}  // namespace

void detail::fail_gradients(std::size_t expected, std::size_t given) {
  fail<InvalidArgumentError>(
      "[Function] expected backward() to return a gradient for each of {} arguments, got {}",
      expected, given);
}

bool detail::start_custom(autograd::Context& call, const std::vector<Tensor>& inputs) {
  bool tracked = false;
  for (const Tensor& input : inputs) {
    call.needed().push_back(context.records && input.defined() && is_tracked(input));
    tracked = tracked || call.needed().back();
  }
  return tracked;
}

std::vector<Tensor> detail::record_custom(autograd::Context& context, std::vector<Tensor> inputs,
                                          std::vector<Tensor> outputs, CustomBackward backward) {
  if (outputs.empty())
    throw InvalidArgumentError("[Function] expected forward() to return tensors, got none");
  CustomAttrs attrs{.backward = std::make_shared<const CustomBackward>(std::move(backward)),
                    .arguments = static_cast<int>(inputs.size()),
                    .saved = {},
                    .saved_data = std::move(context.saved_data)};
  std::vector<Tensor> recorded = std::move(inputs);
  for (const Tensor& kept : context.saved_tensors()) {
    const auto same = [&](const Tensor& other) { return other.same_as(kept); };
    const auto output = std::find_if(outputs.begin(), outputs.end(), same);
    const auto input = std::find_if(recorded.begin(), recorded.end(), same);
    if (output != outputs.end()) {
      attrs.saved.push_back(-1 - static_cast<int>(output - outputs.begin()));
    } else {
      attrs.saved.push_back(static_cast<int>(input - recorded.begin()));
      if (input == recorded.end()) recorded.push_back(kept.detach());
    }
  }
  // A result may be an argument, whose edge stays as it is.
  for (Tensor& output : outputs) output = output.detach();
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : recorded) pointers.push_back(&tensor);
  const TensorImpl& first = impl_of(outputs.front());
  record(kCustom, attrs, pointers, outputs, first.symbol ? nullptr : &first.device());
  return outputs;
}

namespace {

// Whether gradients flow from `value` to something else than through the inputs.
bool leads_elsewhere(const Tensor& value, const std::vector<Tensor>& inputs) {
  std::set<std::pair<const GradNodeBase*, std::int32_t>> seen;
  for (const Tensor& input : inputs)
    if (const GradEdge& edge = impl_of(input).grad) seen.emplace(edge.node.get(), edge.index);
  std::vector<const GradEdge*> open = {&impl_of(value).grad};
  while (!open.empty()) {
    const GradEdge& edge = *open.back();
    open.pop_back();
    if (!leads_to_leaf(edge) || !seen.emplace(edge.node.get(), edge.index).second) continue;
    const auto* node = static_cast<const GradNode*>(edge.node.get());
    if (!node->op) return true;
    for (const OpNode::Input& input : static_cast<const OpNode*>(node)->inputs)
      open.push_back(&input.edge);
  }
  return false;
}

template <class T>
const T& held(const std::optional<T>& value, const char* what) {
  if (!value) fail<InvalidArgumentError>("[saved_data] the value is not {}", what);
  return *value;
}

}  // namespace

Tensor detail::record_own_gradient(const std::vector<Tensor>& inputs, const Tensor& value,
                                   CustomBackward backward) {
  if (leads_elsewhere(value, inputs))
    throw UnimplementedError(
        "[custom_gradient] the function uses a trainable variable, or another tensor with a "
        "gradient, that is not an argument: pass it as one");
  autograd::Context call;
  const std::size_t expected = inputs.size();
  if (!start_custom(call, inputs)) return value.detach();
  return record_custom(call, inputs, {value},
                       [backward = std::move(backward), expected](
                           autograd::Context& kept, const std::vector<Tensor>& gradients) {
                         std::vector<Tensor> given = backward(kept, gradients);
                         if (given.size() != expected) fail_gradients(expected, given.size());
                         return given;
                       })
      .front();
}

double autograd::SavedValue::toDouble() const { return held(number_, "a floating-point number"); }
std::int64_t autograd::SavedValue::toInt() const { return held(integer_, "an integer"); }
const std::string& autograd::SavedValue::toStringRef() const { return held(text_, "a text"); }
const std::vector<std::int64_t>& autograd::SavedValue::toIntVector() const {
  return held(list_, "a list of integers");
}

}  // namespace tandem
