// Operations of the program's own.
#include "tandem/custom_operation.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/dim.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/status.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"
#include "op/own_op.h"
#include "op/record.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

// The attributes of the last calls, by their text.
struct KnownAttributes {
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<const OperationAttributes>> by_text;
};

// Never destroyed: graphs refer to it.
struct CustomOp : OwnOp {
  CustomOperationOptions options;
  mutable KnownAttributes known;
};

const CustomOp& custom(const OpDef& op) { return static_cast<const CustomOp&>(op); }

Json json_of(const autograd::SavedValue& value, const CustomOp& op, const std::string& name) {
  switch (value.kind()) {
    case 'i': return value.toInt();
    case 'd': return Json{{"bits", std::bit_cast<std::uint64_t>(value.toDouble())}};
    case 's': return value.toStringRef();
    case 'l': return value.toIntVector();
    default: fail<InvalidArgumentError>("[{}] the attribute '{}' has no value", op.name, name);
  }
}

autograd::SavedValue value_of(const Json& json) {
  if (json.is_string()) return json.text();
  if (json.is_object()) return std::bit_cast<double>(json.at("bits").count());
  if (!json.is_array()) return json.integer();
  std::vector<std::int64_t> list;
  for (const Json& entry : json.array()) list.push_back(entry.integer());
  return list;
}

std::string text_of(const CustomOp& op, const OperationAttributes& attributes) {
  Json all;
  for (const auto& [name, value] : attributes) all[name] = json_of(value, op, name);
  try {
    return attributes.empty() ? std::string() : all.dump({.strict = true});
  } catch (const JsonError& error) {
    fail<InvalidArgumentError>("[{}] expected attributes in UTF-8: {}", op.name, error.what());
  }
}

OperationAttributes read_own_attributes(const CustomOp& op, const std::string& text) {
  OperationAttributes values;
  try {
    const Json parsed = Json::parse(text, "it", 3);
    for (const auto& [name, value] : parsed.object()) values.emplace(name, value_of(value));
  } catch (const JsonError& error) {
    fail<InvalidArgumentError>("[{}] the stored attributes are damaged: {}", op.name, error.what());
  }
  return values;
}

std::shared_ptr<const OperationAttributes> attributes_of(const CustomOp& op,
                                                         const std::string& text) {
  constexpr std::size_t kMostKnown = 1'000;
  if (text.empty()) return nullptr;
  {
    const std::shared_lock lock(op.known.mutex);
    if (const auto found = op.known.by_text.find(text); found != op.known.by_text.end())
      return found->second;
  }
  auto values = std::make_shared<const OperationAttributes>(read_own_attributes(op, text));
  const std::lock_guard lock(op.known.mutex);
  if (op.known.by_text.size() == kMostKnown) op.known.by_text.clear();
  op.known.by_text.emplace(text, values);
  return values;
}

// Calls a function of the program.
template <class F>
auto call_custom(const CustomOp& op, const char* what, const F& f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<RuntimeError>("[{}] {} threw: {}", op.name, what, error.what());
  }
}

void infer_custom(InferContext& c) {
  const CustomOp& op = custom(c.op());
  const std::vector<InputSpec> outputs =
      call_custom(op, "infer", [&] { return op.options.infer(InferCall(c)); });
  if (outputs.empty())
    fail<InvalidArgumentError>("[{}] expected infer to return one or more outputs, got none",
                               op.name);
  for (const InputSpec& output : outputs) {
    if (!output.shape.known() || !dim::are_sizes(output.shape))
      fail<ShapeError>(
          "[{}] expected infer to return shapes of sizes that follow from the inputs', got {}",
          op.name, output.shape.to_string());
    c.add_output(output.dtype, output.shape);
  }
}

void custom_cpu_kernel(KernelContext& c) {
  const CustomOp& op = custom(*c.op);
  call_custom(op, "cpu_kernel", [&] { op.options.cpu_kernel(KernelCall(c)); });
}

void custom_cuda_kernel(KernelContext& c) {
  const CustomOp& op = custom(*c.op);
  call_custom(op, "cuda_kernel", [&] { op.options.cuda_kernel(KernelCall(c)); });
}

void custom_op_gradient(GradContext& c) {
  const CustomOp& op = custom(c.op());
  if (!op.options.gradient)
    fail<UnimplementedError>(
        "[{}] has no gradient: register it with one, or take detach() of its results", op.name);
  const GradientCall call(c, &c.attrs<OwnAttrs>());
  std::vector<Tensor> gradients =
      call_custom(op, "gradient", [&] { return op.options.gradient(call); });
  if (static_cast<int>(gradients.size()) != c.num_inputs())
    fail<InvalidArgumentError>(
        "[{}] expected the gradient to return a tensor for each of {} inputs, got {}", op.name,
        c.num_inputs(), gradients.size());
  for (int i = 0; i < c.num_inputs(); ++i) {
    Tensor& gradient = gradients[static_cast<std::size_t>(i)];
    if (!c.needs_grad(i) || !gradient.defined()) continue;
    const TensorType& spec = c.input_spec(i);
    if (gradient.dtype() != spec.dtype || !may_agree(gradient.shape(), spec.shape))
      fail<InvalidArgumentError>(
          "[{}] expected a gradient of shape {} and dtype {} for input {}, got {} and {}", op.name,
          spec.shape.to_string(), name_of(spec.dtype), i, gradient.shape().to_string(),
          name_of(gradient.dtype()));
    c.set_grad(i, std::move(gradient));
  }
}

void check_index(const OwnOp& op, const char* what, int i, int count) {
  if (i < 0 || i >= count)
    fail<InvalidArgumentError>("[{}] asked for {} {} of {}", op.name, what, i, count);
}

bool is_saved(std::uint32_t mask, int i) {
  return mask == kAllTensors || (i < 32 && (mask >> i & 1u) != 0);
}

std::uint32_t mask_of(const std::string& name, const std::optional<std::vector<int>>& saved) {
  if (!saved) return kAllTensors;
  std::uint32_t mask = 0;
  for (const int i : *saved) {
    if (i < 0 || i >= 32)
      fail<InvalidArgumentError>(
          "[custom_operation] expected numbers from 0 to 31 of tensors that '{}' saves, got {}",
          name, i);
    mask |= 1u << i;
  }
  return mask;
}

bool is_name(const std::string& name) {
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
         std::ranges::all_of(
             name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

bool is_built_in(const std::string& name) {
  const auto has_name = [&](const OpDef* op) { return op->name == name; };
  using Kind = ControlFlow::Kind;
  return std::ranges::any_of(all_ops(), has_name) ||
         std::ranges::any_of(structural_ops(), has_name) ||
         std::ranges::any_of(std::initializer_list<Kind>{Kind::kCond, Kind::kWhile, Kind::kForEach,
                                                         Kind::kCondGradient, Kind::kWhileGradient},
                             [&](Kind kind) { return has_name(&control_flow_op(kind)); });
}

void check_options(const CustomOperationOptions& options) {
  const std::string& name = options.name;
  if (!is_name(name))
    fail<InvalidArgumentError>(
        "[custom_operation] expected a name of letters, digits, '_' and '.' that begins with a "
        "letter, got '{}'",
        name);
  if (is_built_in(name))
    fail<AlreadyExistsError>("[custom_operation] '{}' is an operation of Tandem: name it otherwise",
                             name);
  if (!options.infer || !options.cpu_kernel)
    fail<InvalidArgumentError>("[custom_operation] expected '{}' to have infer and cpu_kernel",
                               name);
}

KernelTensor kernel_tensor(const OwnOp& op, const char* what, const InlineList<TensorView>& from,
                           int i) {
  check_index(op, what, i, from.size());
  return {from[i].data, from[i].dtype, from[i].shape};
}

}  // namespace

void detail::refuse_element_type(DType has, DType asked) {
  fail<DTypeError>("[as] expected {}, the dtype of the tensor, got {}", name_of(has),
                   name_of(asked));
}

OperationCall::OperationCall(const OwnOp& op, const void* attributes)
    : op_(op),
      values_(attributes_of(custom(op), static_cast<const OwnAttrs*>(attributes)->values)) {}

const std::string& OperationCall::name() const { return custom(op_).options.name; }
bool OperationCall::has_attribute(const std::string& name) const {
  return values_ && values_->count(name) > 0;
}
const autograd::SavedValue& OperationCall::attribute(const std::string& name) const {
  if (!has_attribute(name))
    fail<InvalidArgumentError>("[{}] expected the attribute '{}', which the call does not have",
                               op_.name, name);
  return values_->at(name);
}

InferCall::InferCall(const InferContext& context)
    : OperationCall(*own_op(context.op()), &context.attrs<OwnAttrs>()), context_(context) {}
int InferCall::num_inputs() const { return context_.num_inputs(); }
InputSpec InferCall::input(int i) const {
  check_index(op_, "input", i, num_inputs());
  return {context_.shape(i), context_.dtype(i)};
}

KernelCall::KernelCall(KernelContext& context)
    : OperationCall(*own_op(*context.op), context.attrs_data), context_(context) {}
int KernelCall::num_inputs() const { return context_.inputs.size(); }
int KernelCall::num_outputs() const { return context_.outputs.size(); }
KernelTensor KernelCall::input(int i) const {
  return kernel_tensor(op_, "input", context_.inputs, i);
}
KernelTensor KernelCall::output(int i) const {
  return kernel_tensor(op_, "output", context_.outputs, i);
}
void* KernelCall::stream() const { return context_.native_stream; }
void* KernelCall::scratch(std::size_t bytes) const { return context_.scratch(bytes); }
void KernelCall::parallel_for(
    std::int64_t count, std::int64_t grain,
    const std::function<void(std::int64_t begin, std::int64_t end)>& body) const {
  tandem::parallel_for(count, grain, body);
}

GradientCall::GradientCall(const GradContext& context, const void* attributes)
    : OperationCall(*own_op(context.op()), attributes), context_(context) {}
int GradientCall::num_inputs() const { return context_.num_inputs(); }
int GradientCall::num_outputs() const { return context_.num_outputs(); }
Tensor GradientCall::input(int i) const {
  check_index(op_, "input", i, num_inputs());
  if (!is_saved(op_.saved_inputs, i))
    fail<InvalidArgumentError>("[{}] the gradient reads input {}, which is not in saved_inputs",
                               op_.name, i);
  return context_.input(i);
}
Tensor GradientCall::output(int i) const {
  check_index(op_, "output", i, num_outputs());
  if (!is_saved(op_.saved_outputs, i))
    fail<InvalidArgumentError>("[{}] the gradient reads output {}, which is not in saved_outputs",
                               op_.name, i);
  return context_.output(i);
}
Tensor GradientCall::gradient(int output) const {
  check_index(op_, "output", output, num_outputs());
  const TensorType& spec = context_.output_spec(output);
  const Tensor& gradient = context_.grad(output);
  return gradient.defined() ? gradient : zeros(spec.shape, spec.dtype);
}
bool GradientCall::needs_gradient(int input) const {
  check_index(op_, "input", input, num_inputs());
  return context_.needs_grad(input);
}

std::vector<Tensor> CustomOperation::call(TensorList inputs,
                                          const OperationAttributes& attributes) const {
  const OwnAttrs attrs{text_of(custom(*op_), attributes)};
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  return run_op(*op_, pointers, attrs);
}

Tensor CustomOperation::operator()(TensorList inputs, const OperationAttributes& attributes) const {
  std::vector<Tensor> outputs = call(inputs, attributes);
  if (outputs.size() != 1)
    fail<InvalidArgumentError>("[{}] expected one output, got {}: use call()", op_->name,
                               outputs.size());
  return std::move(outputs.front());
}

const std::string& CustomOperation::name() const { return custom(*op_).options.name; }

CustomOperation custom_operation(CustomOperationOptions options) {
  check_options(options);
  auto op = std::make_unique<CustomOp>();
  op->options = std::move(options);
  const CustomOperationOptions& kept = op->options;
  op->name = kept.name;
  op->attrs = &attrs_type<OwnAttrs>;
  op->infer = infer_custom;
  op->gradient = custom_op_gradient;
  op->cpu_kernel = custom_cpu_kernel;
  op->cuda_kernel = kept.cuda_kernel ? custom_cuda_kernel : nullptr;
  op->gpu = static_cast<bool>(kept.cuda_kernel);
  op->traits = kStorage | (kept.stateful ? kStateful : kNoTraits);
  if (kept.gradient) {
    op->saved_inputs = mask_of(kept.name, kept.saved_inputs);
    op->saved_outputs = mask_of(kept.name, kept.saved_outputs);
  }
  add_own_op(*op);
  return CustomOperation(*op.release());
}

}  // namespace tandem
