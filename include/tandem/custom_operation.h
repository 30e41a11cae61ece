/// @file
/// Operations of the program's own, with kernels, a shape rule and a gradient. As
/// torch.library.custom_op and TensorFlow's REGISTER_OP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/autograd.h"
#include "tandem/dtype.h"
#include "tandem/function.h"
#include "tandem/shape.h"
#include "tandem/tensor.h"

namespace tandem {

class GradContext;    // op/record.h
class InferContext;   // op/op.h
class KernelContext;  // op/op.h
struct OwnOp;         // op/own_op.h

/// The attributes of a call by name: numbers, bools, strings and lists of integers.
using OperationAttributes = std::map<std::string, autograd::SavedValue>;

namespace detail {
[[noreturn]] void refuse_element_type(DType has, DType asked);
}  // namespace detail

/// A call, as the functions of a custom operation see it. Valid while the function runs.
class OperationCall {
 public:
  const std::string& name() const;                    ///< of the operation
  bool has_attribute(const std::string& name) const;  ///< whether the call has this attribute
  /// The attribute of this name. Throws InvalidArgumentError if the call has none.
  const autograd::SavedValue& attribute(const std::string& name) const;

  /// For Tandem's own code.
  OperationCall(const OwnOp& op, const void* attributes);

 protected:
  const OwnOp& op_;  ///< the operation

 private:
  std::shared_ptr<const OperationAttributes> values_;  // null if there are none
};

/// The argument of shape rules.
class InferCall : public OperationCall {
 public:
  int num_inputs() const;  ///< number of inputs
  /// The shape and dtype of an input. Throws InvalidArgumentError if there is no such input.
  InputSpec input(int i) const;

  /// For Tandem's own code.
  explicit InferCall(const InferContext& context);

 private:
  const InferContext& context_;
};

/// A tensor in a kernel: elements without gaps, the last axis first.
struct KernelTensor {
  void* data = nullptr;   ///< memory of the kernel's device; null if there are no elements
  DType dtype = float32;  ///< dtype
  Shape shape{};          ///< shape, of known sizes

  std::int64_t size() const { return shape.num_elements(); }  ///< number of elements
  /// The elements: `as<float>()`. Throws DTypeError if they are of another type.
  template <class T>
  T* as() const {
    if (dtype != dtype_of<T>) detail::refuse_element_type(dtype, dtype_of<T>);
    return static_cast<T*>(data);
  }
};

/// The argument of kernels.
class KernelCall : public OperationCall {
 public:
  int num_inputs() const;   ///< number of inputs
  int num_outputs() const;  ///< number of outputs
  /// @{
  /// A tensor. Inputs must not be written. Throws InvalidArgumentError if there is no such one.
  KernelTensor input(int i) const;
  KernelTensor output(int i) const;
  /// @}
  /// The cudaStream_t on which a CUDA kernel is to be launched; null in CPU kernels.
  void* stream() const;
  /// Memory of the kernel's device until the kernel returns, aligned to 256 bytes; null for 0
  /// bytes. Each call returns other memory. Throws ResourceExhaustedError.
  void* scratch(std::size_t bytes) const;
  /// Calls body(begin, end) for ranges that cover [0, count), on the threads that CPU kernels have,
  /// if each gets at least `grain` of them. An exception of the body is thrown by this call.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t begin, std::int64_t end)>& body) const;

  /// For Tandem's own code.
  explicit KernelCall(KernelContext& context);

 private:
  KernelContext& context_;
};

/// The argument of gradients.
class GradientCall : public OperationCall {
 public:
  int num_inputs() const;   ///< number of inputs
  int num_outputs() const;  ///< number of outputs
  /// @{
  /// A tensor of the call. Throws InvalidArgumentError if there is none, or if it is not among
  /// CustomOperationOptions::saved_inputs or saved_outputs.
  Tensor input(int i) const;
  Tensor output(int i) const;
  /// @}
  /// The gradient of an output; zeros if nothing depends on it.
  Tensor gradient(int output = 0) const;
  /// Whether the gradient of an input is used. Its entry may be undefined if not.
  bool needs_gradient(int input) const;

  /// For Tandem's own code.
  GradientCall(const GradContext& context, const void* attributes);

 private:
  const GradContext& context_;
};

/// Options of custom_operation().
struct CustomOperationOptions {
  /// The name in messages, graphs and their files: letters, digits, '_' and '.', a letter first.
  std::string name{};
  /// The shape rule: the shapes and dtypes of the outputs. Sizes may be unknown while a function is
  /// traced: compute with them as Dims. The rule runs again when they are known. It throws for
  /// inputs that the operation does not take.
  std::function<std::vector<InputSpec>(const InferCall& call)> infer{};
  /// Writes every element of the outputs, on the calling thread or by KernelCall::parallel_for().
  /// Several threads may call it at once.
  std::function<void(const KernelCall& call)> cpu_kernel{};
  /// The same on a CUDA GPU: launches kernels on call.stream() and does not wait, because the
  /// launch may be recorded in a CUDA graph, which then runs without this call. Default: on GPUs
  /// the operation's inputs are copied to the host and cpu_kernel runs, as for an operation without
  /// a kernel for GPUs. Emulated GPUs run cpu_kernel.
  std::function<void(const KernelCall& call)> cuda_kernel{};
  /// The gradients of the inputs, of their shapes and dtypes; undefined where there is none. Those
  /// of higher order are those of its operations. Default: a backward pass through a result throws
  /// UnimplementedError.
  std::function<std::vector<Tensor>(const GradientCall& call)> gradient{};
  /// @{
  /// The inputs and outputs that the gradient reads, by their numbers, which are below 32. Others
  /// are freed before the backward pass. Default: all.
  std::optional<std::vector<int>> saved_inputs{};
  std::optional<std::vector<int>> saved_outputs{};
  /// @}
  /// Whether two calls with equal inputs may differ. If not, traced functions run equal calls once.
  /// They drop a call whose results are not used, whatever it does besides.
  bool stateful = false;
};

/// An operation that custom_operation() has registered. A small value; copies are the same one.
class CustomOperation {
 public:
  /// Calls it, and returns its outputs. Throws what the operation's functions throw, and
  /// InvalidArgumentError for results that do not fit.
  std::vector<Tensor> call(TensorList inputs, const OperationAttributes& attributes = {}) const;
  /// The same for an operation with one output. Throws InvalidArgumentError for more.
  [[nodiscard]] Tensor operator()(TensorList inputs,
                                  const OperationAttributes& attributes = {}) const;
  const std::string& name() const;  ///< the operation's name

 private:
  friend CustomOperation custom_operation(CustomOperationOptions options);
  explicit CustomOperation(const OwnOp& op) : op_(&op) {}

  const OwnOp* op_;
};

/// Registers an operation of the program's own, until the process ends. It works as Tandem's: eager
/// and in traced functions, with gradients, unknown sizes, on every device, under every strategy,
/// and in graphs that are saved. A process that loads such a graph registers the operation first.
/// @code
/// const td::CustomOperation cube = td::custom_operation({
///     .name = "my.Cube",
///     .infer = [](const td::InferCall& call) { return std::vector{call.input(0)}; },
///     .cpu_kernel =
///         [](const td::KernelCall& call) {
///           const td::KernelTensor x = call.input(0), y = call.output(0);
///           for (std::int64_t i = 0; i < x.size(); ++i)
///             y.as<float>()[i] = x.as<float>()[i] * x.as<float>()[i] * x.as<float>()[i];
///         },
///     .gradient =
///         [](const td::GradientCall& call) {
///           return std::vector{3 * td::square(call.input(0)) * call.gradient()};
///         },
/// });
/// td::Tensor y = cube({x});
/// @endcode
/// Errors of Tandem that these functions throw reach the caller as they are; of other exceptions it
/// gets a RuntimeError with their message. There is no lowering to StableHLO: a program that is
/// compiled for a PJRT plug-in throws UnimplementedError, which names the operation.
///
/// Throws AlreadyExistsError for the name of an operation of Tandem or of an earlier call, and
/// InvalidArgumentError for another name that cannot be one and without `infer` or `cpu_kernel`.
/// Thread-safe. As torch.library.custom_op.
CustomOperation custom_operation(CustomOperationOptions options);

}  // namespace tandem
