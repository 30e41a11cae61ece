/// @file
/// Options, arguments and results of models that may have several inputs and outputs.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

/// A value for each output of a model: a value; several in braces, in the order of the outputs; or
/// values with names of outputs, `{{"score", "mse"}, {"label", "mae"}}`, also as a std::map. As the
/// lists and dicts of tf.keras.Model.compile.
template <class Value>
class PerOutput {
 public:
  /// A value, or several of one output.
  struct Item {
    /// A value of the output at this place of the list.
    template <class V>
    requires std::convertible_to<const V&, Value> Item(const V& value)  // NOLINT: implicit
        : values{Value(value)} {}
    /// @{
    /// A value, or several, of the output of this name.
    template <class V>
    requires std::convertible_to<const V&, Value> Item(std::string name, const V& value)
        : output(std::move(name)), values{Value(value)} {}
    Item(std::string name, std::vector<Value> several)
        : output(std::move(name)), values(std::move(several)) {}
    /// @}
    std::string output{};         ///< name of the output; empty: by its place
    std::vector<Value> values{};  ///< its values
  };

  PerOutput() = default;
  PerOutput(std::initializer_list<Item> items) : items_(items) {}  ///< these
  /// A value of each output.
  template <class V>
  requires(!std::same_as<V, PerOutput> && std::convertible_to<const V&, Value>)
      PerOutput(const V& value)  // NOLINT: implicit
      : items_{Item(value)}, of_each_(true) {}
  /// Values in the order of the outputs.
  PerOutput(const std::vector<Value>& values)  // NOLINT: implicit
      : items_(values.begin(), values.end()) {}
  /// Values by the names of outputs.
  template <class V>
  PerOutput(const std::map<std::string, V>& values) {  // NOLINT: implicit
    for (const auto& [name, value] : values) items_.emplace_back(name, value);
  }

  bool empty() const { return items_.empty(); }  ///< whether there are no values
  bool of_each() const { return of_each_; }      ///< whether it is a value of each output
  const std::vector<Item>& items() const { return items_; }  ///< in their order

 private:
  std::vector<Item> items_;
  bool of_each_ = false;
};

/// The inputs or the targets of a model, as a parameter type: a tensor, several in braces in the
/// model's order, or several by the names of inputs or outputs, `{{"title", x}, {"body", y}}` or a
/// std::map, as the dictionaries of tf.keras.Model.fit.
class ModelTensors : public TensorList {
 public:
  using TensorList::TensorList;
  /// @{
  /// Tensors by name.
  ModelTensors(std::initializer_list<std::pair<std::string, Tensor>> tensors);  // NOLINT: implicit
  ModelTensors(const std::map<std::string, Tensor>& tensors);                   // NOLINT: implicit
  ModelTensors(const std::vector<std::pair<std::string, Tensor>>& tensors);     // NOLINT: implicit
  /// @}
  /// One.
  ModelTensors(const Tensor& tensor) : TensorList(std::span(&tensor, 1)) {}  // NOLINT: implicit

  /// For Tandem's own code: the tensors in the order of these names. `what`: "input" or "output".
  /// Throws InvalidArgumentError for other names.
  std::vector<Tensor> in_order(const std::vector<std::string>& names, const char* what) const;

 private:
  std::vector<std::string> names_;                // empty: in the model's order
  std::shared_ptr<std::vector<Tensor>> tensors_;  // with names
};

/// The result of Model::predict(): the output, as a tensor. If a model has several outputs, the
/// tensor is undefined, and `predictions[0]`, `predictions[1]` and so on are the outputs; it
/// converts to a vector of them. As tf.keras.Model.predict, which gives an array or a list.
class Predictions : public Tensor {
 public:
  /// For Tandem's own code.
  explicit Predictions(std::vector<Tensor> outputs);
  using Tensor::operator[];
  /// The output at this place, or a row of the only output. Throws OutOfRangeError.
  Tensor operator[](std::int64_t index) const;
  /// All outputs.
  operator std::vector<Tensor>() const { return outputs_; }  // NOLINT: it is such a list

 private:
  std::vector<Tensor> outputs_;
};

}  // namespace tandem
