/// @file
/// Distributed data-parallel training: one process per replica, each with its own copy of the model
/// and its own batches. Gradients are averaged over the ranks while the backward pass runs. As
/// torch.nn.parallel.DistributedDataParallel.
/// @code
/// td::comm::init_process_group();
/// td::parallel::DistributedDataParallel model(td::Sequential({...}));
/// auto optimizer = td::optimizers::SGD({.learning_rate = 0.1}, model.parameters());
/// for (const auto& batch : loader) {            // with a DistributedSampler
///   td::Tensor loss = loss_fn(batch[1], model(batch[0], {.training = true}));
///   optimizer.zero_grad();
///   loss.backward();                            // grad() then holds the average
///   optimizer.step();
/// }
/// @endcode
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm.h"
#include "tandem/model.h"
#include "tandem/parts.h"

namespace tandem::parallel {

/// Options of DistributedDataParallel. In the order of
/// torch.nn.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// In each recorded forward pass, rank 0's buffers (non-trainable variables such as moving
  /// averages) replace those of the other ranks.
  bool broadcast_buffers = true;
  comm::ProcessGroup process_group{};  ///< default: all ranks
  /// Size of a gradient bucket in MiB. The first one is 1 MiB so that communication starts early.
  std::int64_t bucket_cap_mb = 25;
  /// After each recorded forward pass, searches for parameters on which the result does not depend,
  /// so that buckets do not wait for them. Parameters without a gradient contribute zeros in any
  /// case.
  bool find_unused_parameters = false;
  /// If a parameter receives no gradient on some rank, backward() throws a RuntimeError on every
  /// rank that names it.
  bool strict = false;
  /// Weights each rank's gradients by its number of examples, the first axis of the model's input.
  /// With a mean loss, uneven batches then get the right weight. If false, every rank has the same
  /// weight, as in PyTorch.
  bool average_by_examples = true;
  /// Each time after so many steps, the ranks compare checksums of their parameters. If the values
  /// differ, because one rank has loaded other weights or changed its learning rate, backward()
  /// throws an InvalidArgumentError on every rank that names the ranks and a parameter. 0: never,
  /// for a hook that gives the ranks different gradients.
  std::int64_t parameter_check_steps = 100;
};

// --- communication hooks ---

/// Gradients that one collective reduces. As torch.distributed.GradBucket. The elements are
/// weighted already: their SUM over the ranks is the average.
struct GradBucket {
  std::size_t index = 0;             ///< number of the bucket in the step
  bool is_last = false;              ///< whether this is the step's last bucket
  Tensor buffer;                     ///< all gradients, flat, with zeros as padding
  std::vector<Tensor> gradients;     ///< the gradients as views of the buffer
  std::vector<Variable> parameters;  ///< parameters of the gradients
  comm::ProcessGroup group;          ///< for the hook's collectives; used by it only

  /// Splits a tensor with the buffer's layout (of any dtype) into gradients.
  std::vector<Tensor> split(const Tensor& flat) const;
};

/// A communication hook. It is called with each bucket as soon as the bucket is ready, in the same
/// order on all ranks. It launches the reduction and returns a function that waits for it and
/// returns the reduced gradients, in the bucket's order. These functions are called in the same
/// order after all buckets were launched.
///
/// In a traced step a hook is called once, with symbolic tensors: state that it keeps between steps
/// must be in Variables.
using CommHook = std::function<std::function<std::vector<Tensor>()>(const GradBucket& bucket)>;

/// Communication hooks. As torch.distributed.algorithms.ddp_comm_hooks.
namespace hooks {

/// @{
/// Sends and sums gradients as float16 or bfloat16. As fp16_compress_hook and bf16_compress_hook.
CommHook fp16_compress();
CommHook bf16_compress();
/// @}

/// Options of power_sgd().
struct PowerSGDOptions {
  std::int64_t matrix_approximation_rank = 1;  ///< rank of the approximation
  /// Number of first steps that use a plain sum, because gradients change fast then.
  std::int64_t start_step = 1000;
  /// Approximates a matrix only if that makes it smaller by this factor.
  double min_compression_rate = 2.0;
  bool use_error_feedback = true;  ///< add the approximation error of a step in the next step
  /// Starts from the right factor of the previous step. If false, starts from random numbers, which
  /// a traced step does not support (UnimplementedError).
  bool warm_start = true;
  std::uint64_t seed = 0;  ///< random seed
};
/// PowerSGD (Vogels, Karimireddy and Jaggi 2019): sends matrices as products of two low-rank ones.
/// The last axis of a gradient becomes the columns; vectors are sent as they are. The hook has
/// state: make one for each model. As torch's powerSGD_hook.
CommHook power_sgd(const PowerSGDOptions& options = {});

}  // namespace hooks

// --- the wrapper ---

/// Options of DistributedDataParallel::join(). As the arguments of torch's join().
struct JoinOptions {
  /// Without average_by_examples: divide gradients by the number of all ranks, also after some have
  /// run out of inputs.
  bool divide_by_initial_world_size = true;
  /// When a rank runs out of inputs, every rank throws a RuntimeError.
  bool throw_on_early_termination = false;
  /// Called on a rank that has run out of inputs after each step of the others, with the averaged
  /// gradients in place. `[&] { optimizer.step(); }` keeps the optimizer's state equal on all
  /// ranks.
  std::function<void()> shadow_step{};
};

/// Wraps a model for data-parallel training. A shared handle; not thread-safe. Every rank
/// constructs it with the same model and calls it and backward() equally often. Parameters must not
/// be added or removed later.
///
/// The constructor, backward() and, if the model has buffers, recorded forward passes communicate.
/// Under NoGradScope nothing does, so that one rank may evaluate alone. Gradients of a tape or of
/// Optimizer::minimize() are not reduced. If a rank dies or calls something else, the others throw
/// as described in tandem/comm.h, and the object cannot be used any more.
///
/// Inside td::function the same holds for the traced step. Weights by examples are those of the
/// traced sizes, and gradients accumulate within one call only. Under no_sync() a function is
/// traced again, without reductions. Hooks are traced with the step. Steps inside join() throw
/// UnimplementedError.
class DistributedDataParallel {
 public:
  /// Copies rank 0's variables to the other ranks. Throws InvalidArgumentError "... in this process
  /// with sizes ... appears not to match sizes of the same param in process 0" on every rank if
  /// names, shapes or dtypes differ, and if no parameter is trainable. Throws
  /// FailedPreconditionError if the model is not built.
  explicit DistributedDataParallel(Model module,
                                   const DistributedDataParallelOptions& options = {});
  /// The same with a handle to a module, such as an nn::Sequential.
  template <std::convertible_to<Layer> M>
  requires(!std::convertible_to<const M&, Model>) explicit DistributedDataParallel(
      const M& module, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(Model(static_cast<Layer>(module)), options) {}

  /// @{
  /// Runs the model's forward pass.
  Tensor operator()(const Tensor& input, const CallOptions& options = {}) const;
  Tensor operator()(TensorList inputs, const CallOptions& options = {}) const;
  /// @}

  /// As a call, in PyTorch.
  Tensor forward(const Tensor& input) const { return (*this)(input); }

  const Model& module() const;  ///< the wrapped model
  /// The wrapped model, as in save_weights(model, path).
  operator const Model&() const { return module(); }  // NOLINT: as in save_weights(model, path)
  /// All variables of the model.
  std::vector<Variable> variables() const { return module().variables(); }
  /// Trainable variables of the model.
  std::vector<Variable> parameters() const { return module().trainable_variables(); }

  /// Disables the reduction of gradients while it exists: backward() accumulates this rank's
  /// gradients. The first backward() after it reduces all that has accumulated. As torch's
  /// no_sync().
  class NoSync;
  [[nodiscard]] NoSync no_sync() const;  ///< makes a NoSync

  /// Runs `inputs`, a loop in which the ranks may take different numbers of steps. Every rank calls
  /// this. A rank that has finished contributes zeros to the others' steps until all have finished.
  /// Afterwards all ranks have the variables of the ranks that took the last step. As torch's
  /// join().
  void join(const std::function<void()>& inputs, const JoinOptions& options = {}) const;

  /// A step in replica-invariant mode (config::set_replica_invariant_parts). Calls `step`, which
  /// runs forward and backward() with a mean loss, for each part of this rank's examples.
  /// Afterwards grad() is the average over the parts of all ranks, which must have equally many
  /// examples. If the mode is off, `step` is called once with all examples.
  ///
  /// `step` returns nothing or a Tensor. The result is the sum of the tensors over this rank's
  /// parts; reduce it with ReduceOp::kTreeSum.
  ///
  /// Throws InvalidArgumentError if the number of examples is not a multiple of this rank's parts,
  /// FailedPreconditionError if a parameter has a gradient already, and UnimplementedError inside
  /// join() and no_sync(), with a hook and with `strict`.
  template <class Step>
  auto for_each_part(const data::Example& examples, const Step& step) const {
    return tandem::detail::over_parts(
        [&](const tandem::detail::PartStep& part) { return run_parts(examples, part); }, step);
  }

  /// Sets the communication hook. Must be called before the first backward(), with the same hook on
  /// every rank. Throws FailedPreconditionError "register_comm_hook can only be called once" the
  /// second time.
  void register_comm_hook(CommHook hook) const;

  /// For Tandem's own code.
  class State;

 protected:
  /// For Tandem's own code.
  explicit DistributedDataParallel(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::vector<Tensor> run_parts(const data::Example& examples,
                                const tandem::detail::PartStep& step) const;

  std::shared_ptr<State> state_;
};

/// Disables the reduction of gradients while it exists; made by no_sync().
class DistributedDataParallel::NoSync {
 public:
  /// Disables the reduction.
  explicit NoSync(std::shared_ptr<State> state);
  /// Restores the previous setting.
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<State> state_;
  bool previous_;
};

}  // namespace tandem::parallel
