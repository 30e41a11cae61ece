// Runs single batches through a model, on every replica.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "tandem/data.h"
#include "train/batch_loss.h"
#include "train/model_impl.h"
#include "train/statistics.h"

namespace tandem {

// Trains and tests a compiled model batch by batch, under the strategy that it was compiled
// under. Not thread-safe.
class BatchTrainer {
 public:
  // `what` goes in messages ("fit"). `object`: has the steps, if its class is a user's; must be
  // kept. REQUIRES: the model is built and compiled.
  BatchTrainer(Model::Impl& model, std::string what, const Model& object);

  // The batches of one epoch for train() and test(). next() throws InvalidArgumentError for a batch
  // that is not (inputs, targets) or (inputs, targets, sample weights), before the model changes.
  std::unique_ptr<BatchSource> batches(const data::Dataset& data,
                                       const data::IterateOptions& options = {}) const;
  // The same for predict(), which ignores all components after the inputs.
  std::unique_ptr<BatchSource> batches_to_predict(const data::Dataset& data) const;
  // Forward pass, backward pass and optimizer step on each global batch of inputs, targets and
  // perhaps sample weights, in one execution if they have the same sizes.
  void train(std::span<const GlobalBatch> batches);
  // The training step of one replica on its part of the batch; returns the statistics. In the
  // replica-invariant mode it returns those of each part; every replica has equally many parts.
  std::vector<Tensor> train_on_replica(const data::Example& examples);
  // Forward pass only; updates the statistics.
  void test(std::span<const GlobalBatch> batches);
  // Passes the outputs for each batch, in its order and on the host, to `take`.
  void predict(std::span<const GlobalBatch> batches,
               const std::function<void(std::vector<Tensor>)>& take);
  // Waits until the functions above have done what they were called for, which they start only if
  // steps run in other processes. Throws the first error. Call it before using statistics() and
  // the results of predict().
  void finish() { wait_for_all_but(0); }

  Statistics& statistics() { return statistics_; }

 private:
  struct BatchComponents {
    std::vector<Tensor> inputs, targets;
    std::vector<Tensor> weights;  // of each output; undefined without
  };
  BatchComponents components_of(const data::Example& batch) const;
  std::vector<Tensor> train_on(const data::Example& examples);
  std::vector<Tensor> test_on(const data::Example& examples);
  std::vector<Tensor> by_parts(const data::Example& share, const StepRunner::Step& step) const;
  int num_replicas() const;  // of all processes
  // Adds the statistics that the step of a local replica returned.
  void add_statistics(std::size_t replica, const distribute::BatchSplit& split,
                      const std::vector<Tensor>& statistics, bool training);
  // The outputs of predict() in the order of the examples, over all processes.
  std::vector<Tensor> in_order(const GlobalBatch& parts, const StepProgram::Results& results) const;
  // Adds the end of a step that was started. Waits if there are more than should be under way.
  void when_done(std::function<void()> end);
  void wait_for_all_but(std::size_t ahead);
  // Runs `step` through the program for training or for tests, and adds the statistics that it
  // returns.
  void run(bool training, std::span<const GlobalBatch> batches, const StepRunner::Step& step);
  // The sum of the losses, then each metric's statistics, in float64.
  std::vector<Tensor> statistics_of(const BatchComponents& parts,
                                    const std::vector<Tensor>& outputs, const BatchLoss& loss);
  void minimize(const Tensor& loss);
  // The step of a class derived from Model: 0, then the statistics of its results.
  std::vector<Tensor> run_own_step(const data::Example& examples, bool training);
  StepReport& report_of(bool training) {
    return !own_ ? model_.reported : training ? model_.trained : model_.tested;
  }

  Model::Impl& model_;
  Model* own_;  // the object with the steps; null: they are Tandem's
  std::string what_;
  std::vector<Variable> variables_;
  std::shared_ptr<StepRunner> runner_;
  int parts_ = 1;  // per replica, see runtime/replica_invariance.h
  Statistics statistics_;
  std::string key_;  // identifies the trainable variables and the frozen layers
  std::deque<std::function<void()>> started_;  // steps that run in other processes, in order
};

// The next batches, at most `count`.
std::vector<GlobalBatch> take_batches(BatchSource& batches, std::int64_t count);

// Builds a model without variables for the elements of `data`, under the strategy that it was
// compiled under.
void build_for(Model::Impl& model, const data::Dataset& data, const char* what);
// As check_batch() below, of a batch of inputs, targets and perhaps sample weights, of which a
// model with several outputs takes one tensor for all of them or one for each.
void check_training_batch(const Model::Impl& model, const data::Example& batch,
                          const std::string& what);
// Throws InvalidArgumentError if a batch has fewer than `least` or more than `most` components, if
// a component is a scalar, if an input lacks the batch axis, or if components differ in the first
// axis or have no examples.
void check_batch(const Model::Impl& model, const data::Example& batch, std::size_t least,
                 std::size_t most, const std::string& what);

}  // namespace tandem
