/// @file
/// Automatic differentiation, with two APIs over one record: GradientTape (as in TensorFlow) and
/// backward() / grad() (as in PyTorch, on Tensor and Variable).
///
/// An operation is recorded if one of its inputs is tracked. Tracked are trainable variables,
/// tensors that a live tape watches or that set_requires_grad() marked, and results of recorded
/// operations. Recording is per thread. The first backward pass frees the record, except with
/// BackwardOptions::retain_graph or a persistent tape.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Options of GradientTape. As the arguments of tf.GradientTape.
struct GradientTapeOptions {
  bool persistent = false;               ///< allows several gradient() calls
  bool watch_accessed_variables = true;  ///< if false, only what watch() names is tracked
};

/// Result of GradientTape::gradient() for a source that the target does not depend on.
enum class UnconnectedGradients {
  kNone,  ///< an undefined tensor
  kZero,  ///< zeros
};

/// Options of GradientTape::gradient().
struct GradientOptions {
  /// Gradient of the final value with respect to the target; default: ones.
  Tensor output_gradient{};
  /// Result for sources that the target does not depend on.
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::kNone;
};

/// The gradients with respect to a list of kCount sources.
template <std::size_t kCount>
class Gradients : public std::vector<Tensor> {
 public:
  /// These gradients.
  Gradients(std::vector<Tensor> gradients)  // NOLINT: implicit
      : std::vector<Tensor>(std::move(gradients)) {}
};
/// Gradient I, for `auto [dw, db] = tape.gradient(loss, {w, b})`.
template <std::size_t I, std::size_t kCount>
Tensor get(const Gradients<kCount>& gradients) {
  return gradients[I];
}

/// Records operations for gradients while it exists. Tapes nest: an outer tape records the gradient
/// computation of an inner one, also of one in a step that a strategy runs on its replicas, which
/// gives higher-order derivatives. As tf.GradientTape.
///
/// A persistent tape also records the computation of its gradients, at a cost: in a NoGradScope it
/// does not, as tf.GradientTape outside of its context.
///
/// Results of a tape that has ended are constants under later tapes. backward() may still follow
/// them to variables and to tensors with set_requires_grad(), but throws RuntimeError where a later
/// tape has recorded something of them: nothing would be added for the earlier part.
///
/// Not thread-safe: a tape belongs to the thread that created it.
class GradientTape {
 public:
  /// Starts recording on this thread.
  explicit GradientTape(GradientTapeOptions options = {});
  /// A persistent tape, or one for a single gradient. As tf.GradientTape's first argument.
  template <std::same_as<bool> Persistent>
  explicit GradientTape(Persistent persistent)
      : GradientTape(GradientTapeOptions{.persistent = persistent}) {}
  /// Stops recording, and frees the part of the record that leads only to what the tape watches.
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  /// @{
  /// Tracks a tensor or a variable. Throws InvalidArgumentError for a dtype that is not
  /// floating-point.
  void watch(const Tensor& tensor);
  void watch(const Variable& variable);
  /// @}
  /// @{
  /// Returns the gradient of `target`, summed over its elements, with respect to each source, in
  /// the source's shape. Throws RuntimeError on the second call unless the tape is persistent.
  Tensor gradient(const Tensor& target, const Tensor& source, const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& target, TensorList sources,
                               const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources,
                               const GradientOptions& options = {});
  /// The gradients for a list in braces, which can be taken apart:
  /// `auto [dw, db] = tape.gradient(loss, {w, b})`.
  template <std::size_t kCount>
  Gradients<kCount> gradient(const Tensor& target, const Variable (&sources)[kCount],
                             const GradientOptions& options = {}) {
    return gradient(target, std::vector<Variable>(sources, sources + kCount), options);
  }
  template <std::size_t kCount>
  Gradients<kCount> gradient(const Tensor& target, const Tensor (&sources)[kCount],
                             const GradientOptions& options = {}) {
    return gradient(target, TensorList(std::span<const Tensor>(sources, kCount)), options);
  }
  Tensor gradient(const Tensor& target, const Variable& source,
                  const GradientOptions& options = {});
  /// @}
  /// @{
  /// The derivatives of each element of `target` with respect to each element of the source, of
  /// shape target.shape + source.shape: a backward pass per element of the target, whose shape must
  /// be known. Undefined if the target does not depend on the source. Counts as a call of
  /// gradient(). As tf.GradientTape.jacobian.
  Tensor jacobian(const Tensor& target, const Tensor& source);
  Tensor jacobian(const Tensor& target, const Variable& source);
  /// @}
  /// Stops watching all tensors and variables. A tape that was used can then be used again.
  void reset();

 private:
  struct Impl;
  void use();

  std::unique_ptr<Impl> impl_;
};

/// Disables recording on this thread while it exists. As torch.no_grad.
class NoGradScope {
 public:
  /// Disables recording.
  NoGradScope();
  /// Restores the previous setting.
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool previous_;
};

/// Whether operations of this thread are recorded (false inside a NoGradScope).
bool grad_enabled();

}  // namespace tandem

/// @cond
template <std::size_t kCount>
struct std::tuple_size<tandem::Gradients<kCount>> : std::integral_constant<std::size_t, kCount> {};
template <std::size_t I, std::size_t kCount>
struct std::tuple_element<I, tandem::Gradients<kCount>> {
  using type = tandem::Tensor;
};
/// @endcond
