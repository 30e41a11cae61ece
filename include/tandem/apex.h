/// @file
/// What NVIDIA's Apex has besides mixed precision: its optimizers, its options of
/// DistributedDataParallel, synchronized batch normalization, and LARC. The types of the rest of
/// Tandem do the work, so that all of it works eagerly and in traced functions, on CPUs and GPUs.
/// @code
/// td::comm::init_process_group();
/// td::Model net = td::apex::parallel::convert_syncbn_model(td::Sequential({...}));
/// td::apex::parallel::DistributedDataParallel model(net, {.delay_allreduce = true});
/// auto optimizer = td::apex::optimizers::FusedLAMB({.learning_rate = 2e-3}, model.parameters());
/// @endcode
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm.h"
#include "tandem/ddp.h"
#include "tandem/layers.h"
#include "tandem/model.h"
#include "tandem/optimizers.h"
#include "tandem/tensor.h"

/// The API of NVIDIA's Apex.
namespace tandem::apex {

// --- optimizers ---

/// Optimizers with the rules and defaults of apex.optimizers. All optimizers of Tandem are fused: a
/// step takes one pass over each variable, and a traced step updates all variables in one
/// operation.
namespace optimizers {

/// Options of FusedAdam().
struct FusedAdamOptions {
  tandem::optimizers::LearningRate learning_rate = 1e-3;  ///< learning rate
  bool bias_correction = true;                            ///< divides the moments by 1 - beta^step
  double beta_1 = 0.9;                                    ///< decay rate of the mean of gradients
  double beta_2 = 0.999;  ///< decay rate of the mean of squared gradients
  double epsilon = 1e-8;  ///< added to the square root of the corrected second moment
  /// Decouples weight decay from the gradient (AdamW). If false, weight_decay times the variable is
  /// added to the gradient.
  bool adam_w_mode = true;
  double weight_decay = 0.0;  ///< weight decay
};
/// Adam. As apex.optimizers.FusedAdam and torch.optim.AdamW. Unlike tandem::optimizers::Adam, whose
/// rule is Keras's, adds epsilon to the corrected second moment. Throws InvalidArgumentError for a
/// beta outside [0, 1).
tandem::optimizers::Optimizer FusedAdam(const FusedAdamOptions& options = {},
                                        std::vector<Variable> parameters = {});

/// Options of FusedLAMB().
struct FusedLAMBOptions {
  tandem::optimizers::LearningRate learning_rate = 1e-3;  ///< learning rate
  bool bias_correction = true;                            ///< divides the moments by 1 - beta^step
  double beta_1 = 0.9;                                    ///< decay rate of the mean of gradients
  double beta_2 = 0.999;       ///< decay rate of the mean of squared gradients
  double epsilon = 1e-6;       ///< added to the square root of the corrected second moment
  double weight_decay = 0.01;  ///< weight decay
  /// Makes weight decay a part of the direction that is scaled. If false, weight_decay times the
  /// variable is added to the gradient.
  bool adam_w_mode = true;
  bool grad_averaging = true;  ///< the first moment takes 1 - beta_1 times the gradient, else all
  double max_grad_norm = 1.0;  ///< limit of the norm of all gradients together; 0: none
  bool use_nvlamb = false;     ///< scales steps to the variable's norm also without weight decay
};
/// LAMB. As apex.optimizers.FusedLAMB. Throws InvalidArgumentError for a beta outside [0, 1) and a
/// negative max_grad_norm.
tandem::optimizers::Optimizer FusedLAMB(const FusedLAMBOptions& options = {},
                                        std::vector<Variable> parameters = {});

/// Options of FusedSGD().
struct FusedSGDOptions {
  tandem::optimizers::LearningRate learning_rate = 1e-3;  ///< learning rate; Apex has no default
  double momentum = 0.0;                                  ///< momentum
  double dampening = 0.0;          ///< fraction of the gradient that momentum leaves out
  double weight_decay = 0.0;       ///< times the variable is added to the gradient
  bool nesterov = false;           ///< whether to use Nesterov momentum
  bool wd_after_momentum = false;  ///< adds weight decay to the step instead of the gradient
};
/// Stochastic gradient descent. As apex.optimizers.FusedSGD and torch.optim.SGD: unlike Keras's,
/// the momentum buffer does not contain the learning rate. The first step sets the buffer to the
/// gradient, without dampening. Throws InvalidArgumentError "Nesterov momentum requires a momentum
/// and zero dampening" and for a negative momentum or weight decay.
tandem::optimizers::Optimizer FusedSGD(const FusedSGDOptions& options = {},
                                       std::vector<Variable> parameters = {});

}  // namespace optimizers

/// As apex.parallel.
namespace parallel {

// --- distributed data parallel ---

/// Options of DistributedDataParallel. As the arguments of apex.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// Number of elements at which a bucket of gradients is launched.
  std::int64_t message_size = 10'000'000;
  /// Reduces all gradients of a dtype at once after the backward pass, instead of during it.
  bool delay_allreduce = false;
  /// Sums float16 and bfloat16 gradients as float32. (Sums accumulate in float32 in any case; this
  /// also sends float32.)
  bool allreduce_always_fp32 = false;
  bool gradient_average = true;  ///< divides the sum by the number of ranks
  /// Gradients are divided by this before they are summed, and multiplied by it afterwards if
  /// gradient_average. Keeps sums of float16 in range.
  double gradient_predivide_factor = 1.0;
  comm::ProcessGroup process_group{};  ///< default: all ranks
};
/// Apex's DistributedDataParallel: the one of tandem/ddp.h with Apex's options. Every rank has the
/// same weight, however many examples it has, and buffers are not broadcast before forward passes.
/// register_comm_hook() throws FailedPreconditionError where one of the last three options is not
/// the default.
class DistributedDataParallel : public tandem::parallel::DistributedDataParallel {
 public:
  /// As the constructor of the base class. Throws InvalidArgumentError for a message_size below 1
  /// and a gradient_predivide_factor that is not positive.
  explicit DistributedDataParallel(Model module,
                                   const DistributedDataParallelOptions& options = {});
};

// --- synchronized batch normalization ---

/// Options of SyncBatchNorm(). As the arguments of apex.parallel.SyncBatchNorm.
struct SyncBatchNormOptions {
  double eps = 1e-5;      ///< added to the variance
  double momentum = 0.1;  ///< factor of the NEW value in the moving averages, as in PyTorch
  bool affine = true;     ///< whether to multiply by gamma and add beta
  /// Ranks whose batches are normalized together. Default: the replicas of the strategy that runs
  /// the layer; outside strategies all ranks; in a process without a group this process alone.
  comm::ProcessGroup process_group{};
  bool fuse_relu = false;  ///< applies ReLU to the result
  Shape input_shape{};     ///< shape of one example; for a model's first layer
  std::string name{};      ///< name in the model; default: by the type
};
/// Batch normalization whose moments in training are those of the batches of all ranks. Axes as in
/// layers::BatchNormalization: channels are last. As in PyTorch, the moving variance follows n / (n
/// - 1) times the variance of n elements. layers::BatchNormalization({.synchronized = true}) is the
/// same with the conventions of Keras.
///
/// Batches may have different sizes, also 0; every rank calls the layer equally often, with
/// recording on or off alike. Throws InvalidArgumentError "Expected more than 1 value per channel
/// when training, got input size ..." if there is one rank. Throws UnimplementedError in the
/// replica-invariant mode and in graphs for sessions.
Layer SyncBatchNorm(const SyncBatchNormOptions& options = {});

/// Result of sync_batch_norm().
struct SyncBatchNormResult {
  Tensor y{};         ///< normalized x, like x
  Tensor mean{};      ///< mean over all axes but the last and over all ranks, [c]
  Tensor variance{};  ///< population variance, [c]
  Tensor count{};     ///< number of elements per channel on all ranks: float64, [1]
};
/// The operation of SyncBatchNorm() in training: normalizes x over all axes but the last and over
/// the ranks, weighting each rank by its number of elements. gamma and beta: [c]. The moments are
/// float32, for float64 data float64; all three are differentiable, as often as needed.
///
/// The backward pass communicates once. The gradient is that of the SUM of the ranks' losses, as in
/// PyTorch. In the forward pass of a tandem::parallel::DistributedDataParallel with
/// average_by_examples it is that of their mean, weighted by examples. The gradients of gamma and
/// beta are those of this rank's y.
SyncBatchNormResult sync_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                    double epsilon = 1e-5,
                                    const comm::ProcessGroup& process_group = {});

/// Makes every batch normalization of the model, also inside other layers, synchronized. Layers
/// keep their variables, names, momentum and epsilon. Returns the model. As
/// apex.parallel.convert_syncbn_model.
///
/// Functions that were traced before keep the old layers: throws FailedPreconditionError if the
/// model is compiled.
Model convert_syncbn_model(const Model& model, const comm::ProcessGroup& process_group = {});

/// Divides all ranks into groups of `group_size` neighbours, and returns the group of this rank. 0:
/// all ranks. Every rank calls it. Throws InvalidArgumentError if the number of ranks is not a
/// multiple of group_size. As apex.parallel.create_syncbn_process_group.
comm::ProcessGroup create_syncbn_process_group(int group_size);

// --- LARC ---

/// Options of LARC(). As the arguments of apex.parallel.LARC.
struct LARCOptions {
  double trust_coefficient = 0.02;  ///< fraction of a variable's norm that a step may change
  /// The learning rate is the limit of each variable's rate (LARC). If false, it is a factor of it
  /// (LARS).
  bool clip = true;
  double eps = 1e-8;  ///< added to the norm of the gradient
};
/// Gives each variable a learning rate of its own: |variable| / (|gradient| + weight decay *
/// |variable| + eps) * trust_coefficient. The gradient is multiplied by this rate, with `clip` by
/// at most 1 after division by the learning rate. The weight decay of `optimizer` becomes part of
/// the gradient that is multiplied. A variable whose norm or gradient is 0 gets its gradient
/// unchanged, and no weight decay. As apex.parallel.LARC.
///
/// Returns an optimizer with the rule, parameters and learning rate of `optimizer`, which share a
/// later set_learning_rate(). Throws FailedPreconditionError if `optimizer` has slots or is a LARC.
/// Steps in graphs for sessions throw UnimplementedError.
tandem::optimizers::Optimizer LARC(const tandem::optimizers::Optimizer& optimizer,
                                   const LARCOptions& options = {});

}  // namespace parallel
}  // namespace tandem::apex
