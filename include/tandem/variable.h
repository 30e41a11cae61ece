/// @file
/// Variables: tensors that training updates.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/creation.h"
#include "tandem/ref_counted.h"
#include "tandem/tensor.h"

namespace tandem {

/// When the copies of a variable on the replicas of a strategy are synchronized. As
/// tf.VariableSynchronization.
enum class VariableSynchronization {
  kAuto,     ///< as kOnWrite
  kNone,     ///< as kOnWrite
  kOnWrite,  ///< at each assignment: the copies stay equal
  kOnRead,   ///< when the variable is read outside of replicas; each replica updates its own copy
};
/// How the copies, or the values that replicas assign, are reduced. As tf.VariableAggregation.
enum class VariableAggregation {
  kNone,              ///< none: assigning in a replica throws; reads return the first copy
  kSum,               ///< their sum
  kMean,              ///< their mean
  kOnlyFirstReplica,  ///< the first replica's
};

/// Options of Variable. As the arguments of tf.Variable.
struct VariableOptions {
  bool trainable = true;         ///< whether tapes watch it and optimizers update it
  std::string name{};            ///< name, for checkpoints and messages
  std::optional<DType> dtype{};  ///< default: that of the initial value
  /// When copies are synchronized.
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;  ///< how copies are reduced
};

class VariableImpl;

namespace detail {

template <class T>
concept NumberAndTensor = !Arithmetic<T> && std::convertible_to<const T&, double> &&
                          std::convertible_to<const T&, Tensor>;

}  // namespace detail

/// A tensor whose value can be assigned. As tf.Variable. A handle: copies refer to the same
/// variable. Converts to a Tensor of the current value; inside a strategy's replica, of the
/// replica's own copy.
///
/// A Tensor read from a variable keeps its value: an assignment writes in place only if no reader
/// holds the memory.
///
/// Thread safety: one writer or several readers, as for standard containers. Replicas of a strategy
/// access different copies.
class Variable {
 public:
  Variable() = default;
  /// Creates a variable. In a strategy's scope it gets a copy on each replica.
  explicit Variable(const Tensor& initial_value, VariableOptions options = {});
  /// The same with a name.
  template <std::convertible_to<std::string> Name>
  Variable(const Tensor& initial_value, const Name& name)
      : Variable(initial_value, VariableOptions{.name = name}) {}
  /// @{
  /// The same of a number or a list of numbers, as constant(); an integer type of 64 bits gives
  /// int64.
  explicit Variable(const Literal& initial_value, VariableOptions options = {});
  template <detail::Integer T>
  requires(sizeof(T) == sizeof(std::int64_t)) explicit Variable(T initial_value,
                                                                VariableOptions options = {})
      : Variable(constant(initial_value, {.dtype = options.dtype.value_or(int64)}), options) {}
  /// @}

  /// False for a default-constructed variable.
  bool defined() const { return static_cast<bool>(impl_); }
  const std::string& name() const;  ///< name
  const Shape& shape() const;       ///< shape
  DType dtype() const;              ///< dtype
  /// Device that was requested for a variable of a graph; empty: any.
  const std::string& device() const;
  bool trainable() const;                           ///< whether training updates it
  VariableSynchronization synchronization() const;  ///< when copies are synchronized
  VariableAggregation aggregation() const;          ///< how copies are reduced

  /// @{
  /// The current value.
  Tensor value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable is usable where a tensor is
  /// @}

  /// @{
  /// Sets the value, or adds to it or subtracts from it. Throws InvalidArgumentError if shape or
  /// dtype differ. Under a strategy, updates every copy outside of replicas; inside, as
  /// synchronization() and aggregation() determine.
  void assign(const Tensor& value);
  void assign_add(const Tensor& delta);
  void assign_sub(const Tensor& delta);
  /// @}
  /// @{
  /// The same with a number, which takes the variable's dtype and must be representable in it.
  /// Throws InvalidArgumentError if the variable is no scalar.
  void assign(double value);
  void assign_add(double delta);
  void assign_sub(double delta);
  /// @}
  /// @{
  /// The same with a list of numbers, `v.assign_add({1, 1, 1})`, which takes the variable's dtype.
  void assign(std::initializer_list<Literal> values);
  void assign_add(std::initializer_list<Literal> deltas);
  void assign_sub(std::initializer_list<Literal> deltas);
  /// @}
  /// @{
  /// The same with what is a number and a tensor, such as the result() of a metric: the number.
  template <detail::NumberAndTensor Value>
  void assign(const Value& value) {
    assign(static_cast<double>(value));
  }
  template <detail::NumberAndTensor Value>
  void assign_add(const Value& delta) {
    assign_add(static_cast<double>(delta));
  }
  template <detail::NumberAndTensor Value>
  void assign_sub(const Value& delta) {
    assign_sub(static_cast<double>(delta));
  }
  /// @}
  /// @{
  /// As those of Tensor, of the current value.
  int rank() const { return shape().rank(); }
  std::int64_t dim() const { return rank(); }
  Dim dim(std::int64_t axis) const { return shape().dim(axis); }
  Dim size() const { return shape().elements(); }
  Dim size(std::int64_t axis) const { return dim(axis); }
  const Shape& sizes() const { return shape(); }
  Tensor detach() const { return value().detach(); }
  template <class T>
  std::vector<T> to_vector() const {
    return value().template to_vector<T>();
  }
  template <class T>
  T item() const {
    return value().template item<T>();
  }
  double item() const { return value().item(); }
  /// @}
  Tensor numpy() const { return value(); }  ///< as value()
  /// As item<T>().
  template <class T>
  T numpy() const {
    return item<T>();
  }
  Tensor read_value() const { return value(); }  ///< as value()
  /// Freezes or unfreezes this variable alone, as Layer::set_trainable() does those of a layer: a
  /// frozen one has no gradients. Throws InvalidArgumentError to unfreeze one that was made with
  /// trainable = false. Not while replicas use it. As torch.Tensor.requires_grad_.
  const Variable& requires_grad_(bool required = true) const;
  bool requires_grad() const { return trainable(); }  ///< as trainable()
  Dim numel() const { return size(); }                ///< as size()

  /// The gradient that backward() has accumulated (in a replica: the replica's); undefined if there
  /// is none.
  Tensor grad() const;
  void set_grad(const Tensor& gradient);  ///< sets grad()
  void zero_grad();                       ///< clears grad()

  /// Whether both are handles to the same variable.
  friend bool operator==(const Variable& a, const Variable& b) { return a.impl_ == b.impl_; }

  /// For Tandem's own code.
  explicit Variable(RefPtr<VariableImpl> impl);
  VariableImpl& impl() const;  ///< for Tandem's own code

 private:
  RefPtr<RefCounted> impl_;
};

/// Prints the name, shape, dtype and value.
std::ostream& operator<<(std::ostream& out, const Variable& variable);

}  // namespace tandem
