#include <algorithm>
#include <iostream>
#include <unordered_set>

#include "core/status.h"
#include "train/functional.h"
#include "train/model_impl.h"

namespace tandem {
namespace {

std::int64_t count(const std::vector<Variable>& variables) {
  std::int64_t elements = 0;
  for (const Variable& variable : variables) elements += variable.shape().num_elements();
  return elements;
}

std::int64_t bytes(const std::vector<Variable>& variables) {
  std::int64_t total = 0;
  for (const Variable& variable : variables)
    total += variable.shape().num_elements() * static_cast<std::int64_t>(size_of(variable.dtype()));
  return total;
}

std::string human_bytes(std::int64_t size) {
  if (size < 1024) return fmt::format("{} B", size);
  if (size < 1024 * 1024) return fmt::format("{:.2f} KiB", static_cast<double>(size) / 1024);
  return fmt::format("{:.2f} MiB", static_cast<double>(size) / (1024 * 1024));
}

// As Keras prints shapes: "(None, 28, 28, 1)".
std::string shape_text(const Shape& shape) {
  if (!shape.known()) return "?";
  std::string text;
  for (std::int64_t size : shape.words())
    text += (text.empty() ? "" : ", ") + (size < 0 ? std::string("None") : std::to_string(size));
  return fmt::format("({})", text);
}

std::string totals(const char* what, const std::vector<Variable>& variables) {
  return fmt::format("{}: {} ({})\n", what, count(variables), human_bytes(bytes(variables)));
}

}  // namespace

std::vector<Shape> Model::Impl::layer_output_shapes() const {
  std::vector<Shape> shapes(layers.size());
  if (input_shapes.empty()) return shapes;
  if (sequential) {
    Shape shape = input_shapes.front();
    for (std::size_t i = 0; i < layers.size(); ++i)
      shapes[i] = shape = layers[i].base().output_shape({&shape, 1});
  } else if (const auto* graph = dynamic_cast<const FunctionalLayer*>(&layer.base())) {
    shapes = graph->layer_output_shapes();
  }
  return shapes;
}

void Model::summary(std::ostream& out) const {
  const Impl& impl = built_impl_of(*this, "summary");
  const std::vector<Shape> shapes = impl.layer_output_shapes();
  struct Row {
    std::string layer, shape, parameters;
  };
  std::vector<Row> rows = {{"Layer (type)", "Output Shape", "Param #"}};
  for (std::size_t i = 0; i < impl.layers.size(); ++i) {
    const Layer& layer = impl.layers[i];
    rows.push_back({fmt::format("{} ({})", layer.base().label(), layer.base().kind()),
                    shape_text(shapes[i]), std::to_string(count(layer.variables()))});
  }
  std::size_t name_width = 0, shape_width = 0, number_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.layer.size());
    shape_width = std::max(shape_width, row.shape.size());
    number_width = std::max(number_width, row.parameters.size());
  }
  const std::size_t width = name_width + shape_width + number_width + 6;
  out << fmt::format("Model: \"{}\"\n{}\n", impl.layer.base().label(), std::string(width, '_'));
  for (std::size_t i = 0; i < rows.size(); ++i)
    out << fmt::format(" {:<{}}  {:<{}}  {:>{}}\n", rows[i].layer, name_width, rows[i].shape,
                       shape_width, rows[i].parameters, number_width)
        << (i == 0 ? std::string(width, '=') + "\n" : "");
  out << std::string(width, '=') << '\n'
      << totals("Total params", variables()) << totals("Trainable params", trainable_variables())
      << totals("Non-trainable params", non_trainable_variables()) << std::string(width, '_')
      << '\n';
}

void Model::summary() const { summary(std::cout); }

}  // namespace tandem
