// Distributed data parallel training: a process a replica, each with its own copy of a model and
// its own batches, whose gradients are averaged over the ranks while the backward pass still runs.
// After PyTorch's DistributedDataParallel.
//
//   td::comm::init_process_group();
//   td::parallel::DistributedDataParallel model(td::Sequential({...}));
//   auto optimizer = td::optimizers::SGD({.learning_rate = 0.1}, model.parameters());
//   for (const auto& batch : loader) {            // with a DistributedSampler
//     td::Tensor loss = loss_fn(batch[1], model(batch[0], {.training = true}));
//     optimizer.zero_grad();
//     loss.backward();                            // grad() then holds the average
//     optimizer.step();
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm.h"
#include "tandem/model.h"
#include "tandem/parts.h"

namespace tandem::parallel {

struct DistributedDataParallelOptions {
  // Gradients travel in buckets of this size; the first one is of 1 MiB, so that it starts early.
  std::int64_t bucket_cap_mib = 25;
  // Looks behind every recorded forward for parameters that the result does not depend on, so that
  // buckets do not wait for them. Parameters without a gradient are sent as zeros in any case.
  bool find_unused_parameters = false;
  // A parameter that receives no gradient on some rank is a RuntimeError of the same backward(), on
  // every rank, which names it.
  bool strict = false;
  // Rank 0's variables that are not trained (moving moments) replace the others' at every recorded
  // forward.
  bool broadcast_buffers = true;
  // Each rank's gradients count as much as its examples, the first axis of what the model was
  // called with: with a loss that is a mean, uneven batches weigh rightly. Else every rank counts
  // the same, as in PyTorch.
  bool average_by_examples = true;
  comm::ProcessGroup process_group{};  // not given: all ranks
};

// --- communication hooks ---

// Gradients that travel together. The elements are weighted already: their SUM over the ranks is
// the average.
struct GradBucket {
  std::size_t index = 0;
  bool is_last = false;              // of the step
  Tensor buffer;                     // all of them, flat, with gaps of zeros
  std::vector<Tensor> gradients;     // one by one; parts of the buffer
  std::vector<Variable> parameters;  // that they belong to
  comm::ProcessGroup group;          // for the hook's collectives, which it alone uses meanwhile

  // The part of each gradient in a tensor like the buffer, of any dtype.
  std::vector<Tensor> split(const Tensor& flat) const;
};

// Called with each bucket as soon as it is full, on every rank in the same order: starts what
// combines it over the ranks, and returns what waits for that and gives the combined gradients, in
// the order of the bucket's. These are called in the same order, once all buckets are under way.
// In a traced step it is called once, with symbolic tensors: what it keeps from step to step are
// Variables.
using CommHook = std::function<std::function<std::vector<Tensor>()>(const GradBucket& bucket)>;

namespace hooks {

// Gradients travel, and are summed, as float16 or bfloat16.
CommHook fp16_compress();
CommHook bf16_compress();

struct PowerSGDOptions {
  std::int64_t matrix_approximation_rank = 1;
  // Steps with a plain sum at the beginning, where gradients change fast.
  std::int64_t start_step = 1000;
  // A matrix is approximated where that makes it smaller by this factor.
  double min_compression_rate = 2.0;
  bool use_error_feedback = true;  // what a step loses is added in the next one
  // Begins with the last step's right factor; else draws one, which a traced step cannot
  // (UnimplementedError).
  bool warm_start = true;
  std::uint64_t seed = 0;
};
// PowerSGD (Vogels, Karimireddy and Jaggi 2019): matrices travel as products of two thin ones. The
// last axis of a gradient is its columns; vectors travel as they are. The hook keeps state: one for
// each model.
CommHook power_sgd(const PowerSGDOptions& options = {});

}  // namespace hooks

// --- the wrapper ---

struct JoinOptions {
  // Without average_by_examples: whether gradients are divided by the number of all ranks, also
  // when some have no inputs any more.
  bool divide_by_initial_world_size = true;
  // A rank without inputs is a RuntimeError on every rank.
  bool throw_on_early_termination = false;
  // Called on a rank without inputs whenever the others have taken a step, with the averaged
  // gradients in place: `[&] { optimizer.step(); }` keeps the optimizer's state equal everywhere.
  std::function<void()> shadow_step{};
};

// A shared handle. Every rank makes it with the same model, calls it, and runs backward() equally
// often. Parameters must not be added or removed later. One thread at a time.
//
// What communicates: the constructor; a forward that is recorded, where there are buffers; and
// backward(). Under NoGradScope nothing does, so that one rank may evaluate alone. Gradients that a
// tape or Optimizer::minimize asks for are this rank's own. A rank that dies, or is not in step, is
// an error of the others as tandem/comm.h tells; the object is of no use afterwards.
//
// Inside td::function the same holds for what is traced; weights are those of the traced sizes, and
// gradients gather within one call. Under no_sync() a function is traced anew, without reductions.
// Hooks are traced with the step. Steps inside join() are UnimplementedErrors.
class DistributedDataParallel {
 public:
  // Rank 0's variables replace the others'. Throws InvalidArgumentError "... in this process with
  // sizes ... appears not to match sizes of the same param in process 0" on every rank when names,
  // shapes or dtypes differ, and when no parameter is trainable; FailedPreconditionError for a
  // model that is not built.
  explicit DistributedDataParallel(Model module,
                                   const DistributedDataParallelOptions& options = {});

  Tensor operator()(const Tensor& input, const CallOptions& options = {}) const;
  Tensor operator()(TensorList inputs, const CallOptions& options = {}) const;

  const Model& module() const;
  operator const Model&() const { return module(); }  // NOLINT: as in save_weights(model, path)
  std::vector<Variable> variables() const { return module().variables(); }
  std::vector<Variable> parameters() const { return module().trainable_variables(); }

  // While one lives, backward() accumulates this rank's own gradients; the first one outside
  // averages what has gathered.
  class NoSync;
  [[nodiscard]] NoSync no_sync() const;

  // Runs `inputs`, in which the ranks may take different numbers of steps. A rank that is through
  // takes part in the others' steps with nothing to add, until all are. Every rank calls this.
  // Afterwards all ranks have the variables of those that took the last step.
  void join(const std::function<void()>& inputs, const JoinOptions& options = {}) const;

  // A step in the replica-invariant mode (config::set_replica_invariant_parts): calls `step`, which
  // runs forward and backward() with a loss that is a mean, on each part of this rank's examples.
  // Afterwards grad() is the average over the parts of all ranks, which have as many examples each.
  // `step` returns nothing, or a Tensor, whose sum over this rank's parts is the result: reduce it
  // with ReduceOp::kTreeSum. Where the mode is off, `step` is called once with all examples.
  //
  // Throws InvalidArgumentError where the number of examples is no multiple of this rank's parts,
  // FailedPreconditionError where a parameter has a gradient already, and UnimplementedError inside
  // join() and no_sync(), with a hook and with the option strict.
  template <class Step>
  auto for_each_part(const data::Example& examples, const Step& step) const {
    return detail::over_parts(
        [&](const detail::PartStep& part) { return run_parts(examples, part); }, step);
  }

  // Before the first backward(), with the same hook on every rank. Throws FailedPreconditionError
  // "register_comm_hook can only be called once" the second time.
  void register_comm_hook(CommHook hook) const;

  class State;

 private:
  std::vector<Tensor> run_parts(const data::Example& examples, const detail::PartStep& step) const;

  std::shared_ptr<State> state_;
};

class DistributedDataParallel::NoSync {
 public:
  explicit NoSync(std::shared_ptr<State> state);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<State> state_;
  bool previous_;
};

}  // namespace tandem::parallel
