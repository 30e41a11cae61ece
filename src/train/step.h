// One batch through a model, on every replica.
#pragma once

#include <vector>

#include "tandem/data.h"
#include "train/model_impl.h"
#include "train/statistics.h"

namespace tandem {

// Trains and tests a compiled model batch by batch, under the strategy that it was compiled under.
// One thread at a time.
class Stepper {
 public:
  // `what` goes in messages ("fit"). REQUIRES: the model is built and compiled.
  Stepper(Model::Impl& model, std::string what);

  // The batches of an epoch, for train() and test(); their next() throws InvalidArgumentError for a
  // batch of anything but inputs, targets and perhaps sample weights, before the model changes.
  std::unique_ptr<BatchSource> batches(const data::Dataset& data,
                                       const data::IterateOptions& options = {}) const;
  // The same for predict(), which takes the inputs and leaves the rest.
  std::unique_ptr<BatchSource> batches_to_predict(const data::Dataset& data) const;
  // Forward, backward and the optimizer's step on a global batch of inputs, targets and perhaps
  // sample weights.
  void train(const GlobalBatch& batch);
  // What train() does on one replica, with its share of the batch; returns the statistics. In the
  // replica-invariant mode: those of each part, of as many parts on every replica.
  std::vector<Tensor> train_share(const data::Example& examples);
  // Forward alone.
  void test(const GlobalBatch& batch);
  // The outputs for the batch's inputs, in order, on the host.
  Tensor predict(const GlobalBatch& batch);

  Statistics& statistics() { return statistics_; }

 private:
  struct Parts {
    std::vector<Tensor> inputs;
    Tensor targets, weights;
  };
  Parts parts_of(const data::Example& batch) const;
  std::vector<Tensor> train_on(const data::Example& examples);
  std::vector<Tensor> test_on(const data::Example& examples);
  std::vector<Tensor> by_parts(const data::Example& share, const ReplicaRunner::Step& step) const;
  int num_replicas() const;  // of all processes
  // Keeps what the step of one replica of this process returned.
  void keep(std::size_t replica, const distribute::BatchSplit& split,
            const std::vector<Tensor>& statistics);
  // Runs `step` through `program` and keeps the statistics that it returns.
  void run(StepProgram& program, const GlobalBatch& batch, const ReplicaRunner::Step& step);
  // One value per example, times its weight. Over positions: their mean, or for a loss that is a
  // sum their sum.
  Tensor example_losses(const Parts& parts, const Tensor& outputs) const;
  // The sum of the losses, then each metric's statistics, in float64.
  std::vector<Tensor> statistics_of(const Parts& parts, const Tensor& outputs,
                                    const Tensor& losses);
  // How many examples the global batch has, of which `here` are this replica's.
  static std::int64_t global_examples(std::int64_t here);

  Model::Impl& model_;
  std::string what_;
  std::vector<Variable> variables_;
  std::shared_ptr<ReplicaRunner> runner_;
  int parts_ = 1;  // of a replica's share
  Statistics statistics_;
  std::string key_;  // which variables the step trains, and which layers are frozen
};

// Builds a model that has no variables yet for the elements of `data`, under the strategy that it
// was compiled under.
void build_for(Model::Impl& model, const data::Dataset& data, const char* what);
// Throws InvalidArgumentError when a batch has fewer than `least` or more than `most` components,
// when one is a scalar or an input lacks the batch axis, when they differ in the first axis, or
// when that is empty.
void check_batch(const Model::Impl& model, const data::Example& batch, std::size_t least,
                 std::size_t most, const std::string& what);

}  // namespace tandem
