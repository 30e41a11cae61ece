// A model that ranks train together.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "online/exchange.h"
#include "online/moments.h"
#include "parallel/ddp_state.h"
#include "tandem/online.h"

namespace tandem::online {

// This rank's examples of a step as the model gets them, for each input and each output:
// normalized, in its dtype. Without examples there are no tensors.
struct Batch {
  std::vector<Tensor> x, y;
  Tensor weight;
  std::int64_t examples = 0;
};
// The examples' gradients with respect to the results.
struct GivenGradient {
  Tensor x, dy;
};

// Not thread-safe: see `mutex`. Its functions are those of Learner with these names.
class Learner::Impl {
 public:
  // `dtype`: of floating-point inputs; default: the model's.
  Impl(Model model, const LearnerOptions& options, std::optional<DType> dtype = {});

  const Model& model() const { return model_; }
  const std::optional<comm::ProcessGroup>& group() const { return options_.group; }
  const LearnerOptions& options() const { return options_; }
  DType dtype() const { return dtype_; }
  const std::vector<Shape>& inputs() const { return inputs_; }    // with batch axis -1
  const std::vector<Shape>& results() const { return results_; }  // likewise
  // Those of a model with one input and one output.
  const Shape& input() const { return inputs_.front(); }
  const Shape& result() const { return results_.front(); }
  // Throws InvalidArgumentError unless the model has one input and one output.
  void expect_one(const char* what) const;
  int ranks() const { return options_.group ? options_.group->size() : 1; }
  bool compiled() const;
  // Throws FailedPreconditionError that begins with "[what]".
  void expect_optimizer(const char* what) const;
  void expect_untrained(const char* what) const;

  // How inputs and targets are normalized.
  const Statistics& statistics() const { return statistics_; }
  void set_statistics(Statistics statistics) { statistics_ = std::move(statistics); }
  Affine normalizing_x() const { return affine(statistics_.x, &Moments::normalizing); }
  Affine normalizing_y() const { return affine(statistics_.y, &Moments::normalizing); }
  Affine restoring_y() const { return affine(statistics_.y, &Moments::restoring); }
  Affine gradient_to_x() const { return affine(statistics_.x, &Moments::gradient_to_host); }
  Affine gradient_from_y() const { return affine(statistics_.y, &Moments::gradient_from_host); }

  // Adds the examples of all ranks. `local` checks this rank's and returns their values, those of
  // the targets empty if they are integers.
  struct Observed {
    std::vector<double> x, y;
    std::int64_t examples = 0;
  };
  void observe(const char* what, const std::function<Observed()>& local);

  // The mean loss of all ranks' examples; with `training`, a step. `local` returns this rank's.
  double mean_loss(const char* what, bool training, const std::function<Batch()>& local);
  // `local` returns this rank's window and the budget.
  using Training = std::pair<Window, Budget>;
  Report train(const char* what, const std::function<Training()>& local);
  // Throws if a sample is not one of the model's.
  void expect_samples(const char* what, const Tensor& x, const Tensor& y) const;
  Batch batch_of(const Tensor& x, const Tensor& y, const Tensor& weight) const;
  Tensor predict(const Tensor& x) const;

  // `local` returns this rank's examples, and may throw. Returns the gradient with respect to x if
  // `wanted`.
  Tensor backward(const char* what, bool training, bool wanted,
                  const std::function<GivenGradient()>& local);

  std::map<std::string, Tensor> state() const;
  // `what` and `source`: in messages.
  void restore(const std::map<std::string, Tensor>& state, const std::string& what,
               const std::string& source);
  std::int64_t step() const;
  // All variables of the model, and of the optimizer.
  std::vector<Variable> variables() const;

  // Shared by predictions; exclusive for all that changes the model.
  mutable SharedMutex mutex{"Learner"};
  // While it is set, a trainer trains a model in place of this one.
  std::atomic<bool> trained_beside{false};

 private:
  struct Step {
    double loss = 0.0;
    bool last = false;
  };
  bool sums_losses() const;  // instead of taking their mean
  // The sum of the losses of all outputs, by their weights.
  Tensor loss(std::span<const Tensor> y, const std::vector<Tensor>& results,
              const Tensor& weight) const;
  Step take_step(const char* what, bool training, const std::function<Batch()>& local,
                 const std::function<bool()>& last);
  struct Agreement {
    std::optional<Training> mine;
    bool trains = false;  // the windows have enough samples
    bool holds_out = false;
  };
  Agreement agree_on(const char* what, const std::function<Training()>& local);
  void apply_gradients(const Tensor& result, const Tensor& gradient, int root);
  void apply_zeros(int root);
  void update(std::vector<Tensor> gradients, int root);

  // In the replica-invariant mode (learner_parts.cc).
  // The parts that each rank has of a batch; 1 without the mode.
  int parts_of_rank() const;
  struct Parts {
    std::vector<double> numbers;    // of the parts of all ranks, in order
    std::vector<Tensor> gradients;  // of trainable variables: the mean over these parts
  };
  Parts over_parts(const char* what, bool training, const std::vector<Tensor>& examples,
                   const std::function<double(const data::Example& part)>& step);
  // Throws unless the ranks have `examples[rank][0]` examples each, of whole parts.
  void expect_parts(const char* what, const std::vector<std::vector<double>>& examples) const;
  double mean_loss_by_parts(const char* what, bool training, const std::function<Batch()>& local);
  Tensor backward_by_parts(const char* what, bool wanted,
                           const std::function<GivenGradient()>& local);

  void share(const std::vector<Variable>& variables, int root) const;
  std::size_t features_of(const Shape& batched) const;
  Affine affine(const Moments& moments, Affine (Moments::*of)() const) const {
    return options_.normalize ? (moments.*of)() : Affine();
  }

  Model model_;
  LearnerOptions options_;
  DType dtype_ = float32;
  std::vector<Shape> inputs_, results_;
  std::unique_ptr<parallel::DistributedDataParallel::State> averaged_;
  Statistics statistics_;
};

}  // namespace tandem::online
