#include "nn/layer_error.h"

#include <algorithm>
#include <string>
#include <typeinfo>

#include "core/status.h"
#include "nn/layer_base.h"

namespace tandem {
namespace {

// An error that names a layer already. Outer layers do not change it.
template <class E>
class InLayer final : public E {
  using E::E;
};

// The two parts of "[MatMul] expected ...". Without a subject, `rest` is the whole message.
struct ParsedMessage {
  std::string_view subject, rest;
};

ParsedMessage parse(std::string_view text) {
  const std::size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return {{}, text};
  return {text.substr(1, end - 1), text.substr(end + 2)};
}

std::string described(std::span<const Tensor> inputs) {
  std::string list;
  for (const Tensor& input : inputs) {
    if (!list.empty()) list += ", ";
    list += input.defined() ? fmt::format("shape {} and dtype {}", input.shape().to_string(),
                                          name_of(input.dtype()))
                            : "undefined";
  }
  return fmt::format("{} of {}", inputs.size() == 1 ? "an input" : "inputs", list);
}

// Advice for an input whose dtype is not that of the layer's variables.
std::string cast_advice(const LayerBase& layer, std::span<const Tensor> inputs) {
  for (const Variable& variable : layer.own_variables()) {
    const DType dtype = variable.dtype();
    const bool differs = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) {
      return input.defined() && input.dtype() != dtype;
    });
    if (is_floating(dtype) && differs)
      return fmt::format("; the layer's variables are {0}: cast the input, td::cast(x, td::{0})",
                         name_of(dtype));
  }
  return {};
}

std::string message_of(const LayerBase& layer, std::span<const Tensor> inputs,
                       const std::string& text) {
  const std::string path = layer.path().empty() ? layer.label() : layer.path();
  const auto [subject, rest] = parse(text);
  // The layer's own checks describe the input already.
  if (subject == layer.label() || subject == layer.kind())
    return fmt::format("[{}] {}", path, rest);
  const auto* built_in = dynamic_cast<const KindLayer*>(&layer);
  const bool internal = built_in && !built_in->runs_user_code();
  std::string message = fmt::format("[{}] {}; the layer was called with {}", path,
                                    internal ? rest : std::string_view(text), described(inputs));
  if (rest.find("dtype") != std::string_view::npos) message += cast_advice(layer, inputs);
  return message;
}

template <class E>
void rethrow_as(const LayerBase& layer, std::span<const Tensor> inputs, const Error& error) {
  if (typeid(error) == typeid(E)) throw InLayer<E>(message_of(layer, inputs, error.what()));
}

}  // namespace

void rethrow_from(const LayerBase& layer, std::span<const Tensor> inputs, const Error& error) {
  rethrow_as<InvalidArgumentError>(layer, inputs, error);
  rethrow_as<ResourceExhaustedError>(layer, inputs, error);
  rethrow_as<OutOfRangeError>(layer, inputs, error);
  rethrow_as<UnimplementedError>(layer, inputs, error);
  throw;
}

}  // namespace tandem
