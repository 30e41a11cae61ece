// Variables: tensors that training changes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/ref_counted.h"
#include "tandem/tensor.h"

namespace tandem {

// When the copies of a variable that a strategy keeps, one a replica, are brought together.
enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
// How they are brought together.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

struct VariableOptions {
  std::string name{};
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

class VariableImpl;

// A handle: copies refer to the same variable. Converts to a Tensor of the present value wherever
// one is taken; inside a strategy's replica that is the replica's own copy.
//
// A Tensor read from a variable keeps the value it had: assigning replaces the memory when a reader
// still holds it and writes in place when none does.
//
// Thread safety: one writer or several readers, as for a standard container. Replicas of a strategy
// touch distinct copies.
class Variable {
 public:
  Variable() = default;
  // Created through the strategy whose scope is open, if any: then with a copy on each replica.
  explicit Variable(const Tensor& initial_value, VariableOptions options = {});

  bool defined() const { return static_cast<bool>(impl_); }
  const std::string& name() const;
  const Shape& shape() const;
  DType dtype() const;
  // A variable of a graph: where it was asked to be; empty: anywhere.
  const std::string& device() const;
  bool trainable() const;
  VariableSynchronization synchronization() const;
  VariableAggregation aggregation() const;

  Tensor value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable is usable where a tensor is

  // Shape and dtype must agree (InvalidArgumentError). Under a strategy: outside replicas, every
  // copy; inside, as synchronization and aggregation say.
  void assign(const Tensor& value);
  void assign_add(const Tensor& delta);
  void assign_sub(const Tensor& delta);

  // What backward() has accumulated (the present replica's); undefined before.
  Tensor grad() const;
  void set_grad(const Tensor& gradient);
  void zero_grad();

  // Identity: two handles of one variable.
  friend bool operator==(const Variable& a, const Variable& b) { return a.impl_ == b.impl_; }

  explicit Variable(RefPtr<VariableImpl> impl);
  VariableImpl& impl() const;

 private:
  RefPtr<RefCounted> impl_;
};

std::ostream& operator<<(std::ostream& out, const Variable& variable);

}  // namespace tandem
