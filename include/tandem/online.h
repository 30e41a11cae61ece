/// @file
/// Training inside a program that makes its own data, such as a simulation: a window of samples,
/// steps within a budget, ranks with different numbers of samples, statistics of the data, a
/// trainer beside the program, and restart in the program's own cycle. docs/simulation.md is the
/// guide; tandem_c.h has the same in C.
/// @code
/// td::online::Learner learner(model, {.group = td::comm::from_mpi(solver), .normalize = {{}}});
/// td::online::Window window({.capacity = 40'000, .batch_size = 64});
/// for (...) {                                   // the program's time steps
///   td::Tensor tau = learner.predict(x);
///   learner.observe(x, y);
///   window.push(x, y);
///   learner.train(window, {.max_steps = 8});
/// }
/// @endcode
///
/// Collective functions are called by all ranks of the learner's group, in the same order. If the
/// arguments of a rank are wrong, every rank throws an error of that type, which names the rank,
/// nothing has changed, and the group goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm.h"
#include "tandem/model.h"
#include "tandem/tensor.h"

/// Training inside a program that makes its own data.
namespace tandem::online {

/// Which sample of a full window a new one replaces.
enum class Replace : std::uint8_t {
  kOldest,  ///< the oldest: the window has the newest samples
  kRandom,  ///< as reservoir sampling does: all samples ever pushed are equally likely to be there
};
/// Options of Window.
struct WindowOptions {
  std::int64_t capacity = 65536;       ///< most samples; the window takes memory for no more
  std::int64_t batch_size = 32;        ///< samples of this rank in a step
  std::int64_t min_samples = 0;        ///< of all ranks, before training starts; 0: batch_size
  Replace replace = Replace::kOldest;  ///< what a new sample replaces
  /// The fraction of the samples, chosen at random, that is never sampled: Report::holdout_loss is
  /// their loss. They take that fraction of the capacity. 0 to 0.5.
  double holdout = 0.0;
  std::uint64_t seed = 0;  ///< of the random choices; independent of random::set_seed()
};

/// Samples in memory, of which batches are sampled at random. A shared handle; not thread-safe.
/// While a Trainer has it, its functions throw FailedPreconditionError.
class Window {
 public:
  /// Throws InvalidArgumentError for options out of range, and a capacity below the batch size.
  explicit Window(const WindowOptions& options = {});

  /// Copies samples, [n, ...] each, n >= 0. Throws InvalidArgumentError if n or what a sample
  /// consists of (sizes, dtypes) differ, between the two or from earlier samples.
  void push(const Tensor& x, const Tensor& y) const;
  std::int64_t size() const;             ///< number of samples that may be sampled
  std::int64_t holdout_size() const;     ///< number of those that are never sampled
  std::int64_t pushed() const;           ///< number of samples ever pushed
  const WindowOptions& options() const;  ///< its options

  /// The next batch: min(batch_size, size()) different samples, each set of them equally likely.
  /// Undefined tensors if the window has none.
  std::pair<Tensor, Tensor> sample() const;
  /// The samples that are never sampled; undefined tensors if there are none.
  std::pair<Tensor, Tensor> holdout() const;

  /// Its samples and random numbers, from which restore() goes on with the same samples.
  std::map<std::string, Tensor> state() const;
  /// Throws DataLossError for tensors that are not of state(), and InvalidArgumentError for those
  /// of a window with other options. Changes nothing if it throws.
  void restore(const std::map<std::string, Tensor>& state) const;

  /// For Tandem's own code.
  class Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<Impl> impl_;
};

/// When Learner::train() ends: at the first of these limits.
struct Budget {
  std::int64_t max_steps = 1;  ///< 0: no limit
  /// By the clock of rank 0, with which all ranks end; exceeded by at most one step. 0: no limit.
  double max_seconds = 0.0;
};
/// What Learner::train() has done.
struct Report {
  std::int64_t steps = 0;  ///< steps of the call; 0: the windows have too few samples
  std::int64_t step = 0;   ///< steps of the optimizer so far
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< mean over the steps; NaN: none
  /// The loss of the holdout after the steps; NaN: none.
  double holdout_loss = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0.0;  ///< that the call has taken
};

/// The elements that share a mean and a variance.
enum class Per : std::uint8_t {
  kFeature,  ///< each position in a sample
  kChannel,  ///< each index along the last axis
  kAll,      ///< all elements have one
};
/// Shifting and scaling of inputs and targets to mean 0 and variance 1, by the statistics of the
/// samples that observe() has seen on all ranks.
struct Normalize {
  Per per = Per::kFeature;        ///< what has statistics
  std::int64_t freeze_after = 0;  ///< samples, of all ranks, after which they stay; 0: never
};
/// Options of Learner.
struct LearnerOptions {
  /// The ranks that train together. Default: this process alone.
  std::optional<comm::ProcessGroup> group{};
  std::optional<Normalize> normalize{};  ///< default: data is as the model gets it
};

/// A model that ranks train together, on samples of which each may have any number, also none: a
/// step has the gradients of all samples of all ranks. A shared handle.
///
/// Thread safety: any number of threads may call predict(), also while another thread calls other
/// functions, and each prediction has the weights of one state.
class Learner {
 public:
  /// A model that was built, with one input; compiled, if it is to train. All ranks start with the
  /// weights of rank 0. Collective. Throws InvalidArgumentError for a model under a strategy or
  /// with several inputs, and FailedPreconditionError for one that was not built.
  explicit Learner(Model model, const LearnerOptions& options = {});

  const Model& model() const;  ///< the model, which the learner trains
  /// Adds samples of all ranks to the statistics; integer targets are not counted. Collective.
  /// Throws InvalidArgumentError for NaN or infinity, with the index; FailedPreconditionError
  /// without LearnerOptions::normalize.
  void observe(const Tensor& x, const Tensor& y) const;
  /// One step on the samples of all ranks. `weight`: [n], one number per sample. Returns the mean
  /// loss over all samples, in units of normalized targets. Collective. Throws InvalidArgumentError
  /// if no rank has samples.
  double train(const Tensor& x, const Tensor& y, const Tensor& weight = {}) const;
  /// Steps on batches that each rank samples from its window, until the budget ends: the same
  /// number on all ranks. Collective. Throws InvalidArgumentError for a budget without a limit, and
  /// budgets that differ between ranks.
  Report train(const Window& window, const Budget& budget = {}) const;
  /// The loss as of train(), without training. Collective.
  double evaluate(const Tensor& x, const Tensor& y) const;
  /// The results for x, in the units of the targets. Not collective.
  Tensor predict(const Tensor& x) const;
  /// For a loss that the program computes: `dy` is its gradient with respect to predict(x). Returns
  /// the gradient with respect to x. With `training`, takes a step with the gradients summed over
  /// the ranks (collective); otherwise not collective.
  Tensor backward(const Tensor& x, const Tensor& dy, bool training = true) const;
  std::int64_t step() const;  ///< steps of the optimizer so far

  /// Weights, optimizer, learning rate and statistics.
  std::map<std::string, Tensor> state() const;
  /// Goes on from a state(). Not collective: all ranks restore the same. Throws DataLossError that
  /// names a tensor that is missing, and InvalidArgumentError for one that differs. Changes nothing
  /// if it throws.
  void restore(const std::map<std::string, Tensor>& state) const;

  /// For Tandem's own code.
  class Impl;
  /// For Tandem's own code.
  explicit Learner(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<Impl> impl_;
};

/// Options of Trainer.
struct TrainerOptions {
  std::int64_t max_lag = 8;     ///< pushes that the trainer may have left to do
  double steps_per_push = 1.0;  ///< a fraction: a step every few pushes
  int threads = 1;              ///< of its computations
};
/// Trains in a thread of its own while the program goes on. It takes the pushes in order, and a
/// fixed number of steps after each, so that results do not depend on timing. A shared handle; one
/// thread calls it.
class Trainer {
 public:
  /// `serving` predicts, and starts `training`, which has a model made by the same code and, if it
  /// has a group, one of its own that nothing else uses. Collective; meanwhile `serving` may
  /// predict alone. Until stop(), functions that
  /// change `serving` throw FailedPreconditionError, and only push() changes `window`.
  ///
  /// Throws InvalidArgumentError for options out of range and models that differ;
  /// UnimplementedError if the thread may not communicate: by MPI below MPI_THREAD_MULTIPLE.
  Trainer(const Learner& serving, const Learner& training, const Window& window,
          const TrainerOptions& options = {});

  /// As Window::push(); all ranks push equally often. Waits while the trainer is more than max_lag
  /// pushes late. Throws the thread's error.
  void push(const Tensor& x, const Tensor& y) const;
  /// Gives `serving` the weights from after the push that is max_lag before the last one, all at
  /// once. Waits for nothing. Throws the thread's error.
  Report update() const;
  /// Trains on what was pushed, ends the thread, and gives `serving` the trainer's state. Throws
  /// the thread's error; the thread has ended then, too.
  Report stop() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// Options of write_checkpoint().
struct CycleOptions {
  int keep = 3;  ///< the newest checkpoints that are not removed
};
/// Writes the states of learners of one group (or none), of this rank's windows, and of the
/// random numbers to a folder for this cycle of the program in `directory`, completely or not at
/// all. Collective. `cycle`: at least 0.
void write_checkpoint(const std::filesystem::path& directory, std::int64_t cycle,
                      const std::vector<Learner>& learners, const std::vector<Window>& windows,
                      const CycleOptions& options = {});
/// Goes on from the checkpoint of a cycle, or the newest whole one for -1, and returns its cycle.
/// Ranks of another number deal the windows' samples anew. Collective. Throws NotFoundError if
/// there is none, DataLossError if it is damaged, and InvalidArgumentError if models or windows
/// differ; then nothing has changed.
std::int64_t read_checkpoint(const std::filesystem::path& directory, std::int64_t cycle,
                             const std::vector<Learner>& learners,
                             const std::vector<Window>& windows);

/// The state of a learner, a window (either may be null) and the random numbers as bytes, for the
/// program's own restart file. Not collective.
std::string state_bytes(const Learner* learner, const Window* window);
/// Goes on from bytes of state_bytes() for the same arguments. Throws as read_checkpoint() does.
void restore_bytes(const Learner* learner, const Window* window, const std::string& bytes);

}  // namespace tandem::online
