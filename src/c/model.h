// Models of the C interface.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "c/array.h"
#include "c/group.h"
#include "tandem/checkpoint.h"
#include "tandem/ddp.h"
#include "train/model_text.h"

namespace tandem::c {

// Mean and variance of each feature, over all examples that were observed.
class Moments {
 public:
  explicit Moments(std::size_t features = 0) : mean_(features), m2_(features) {}

  // The moments of packed examples.
  static Moments of(const std::vector<double>& values, std::size_t features);
  // Adds those of other examples (Chan et al. 1979).
  void add(const Moments& other);

  // Number of examples, mean, sum of squared deviations.
  std::vector<double> numbers() const;
  static Moments from_numbers(std::span<const double> numbers);
  std::size_t features() const { return mean_.size(); }

  // To values of mean 0 and variance 1, and back. Nothing before there are two examples.
  Affine normalizing() const;
  Affine restoring() const;
  // The scales alone: from gradients with respect to normalized values to the host's, and back.
  Affine gradient_to_host() const;
  Affine gradient_from_host() const;

 private:
  double deviation(std::size_t feature) const;

  double count_ = 0.0;
  std::vector<double> mean_, m2_;
};

// A model, its optimizer and the statistics of its data.
class HostModel {
 public:
  // Collective over the group, which may be null. Throws InvalidArgumentError without a definition.
  HostModel(const std::optional<std::string>& definition, std::shared_ptr<Group> group);

  void save(const std::filesystem::path& path) const;
  // A model of a file of save(). Collective.
  static std::shared_ptr<HostModel> load(const char* path, const std::shared_ptr<Group>& group);

  Group* group() const { return group_.get(); }  // may be null

  // The functions of tandem_c.h with these names. They are not thread-safe: see `mutex`.
  void spec(std::int32_t output, tandem_array& spec) const;
  double get(std::string_view name) const;
  void set(std::string_view name, double value);
  Variable weight(std::string_view name, const char* what) const;
  void observe(const tandem_array* x, const tandem_array* y);
  double train(const tandem_array* x, const tandem_array* y, const tandem_array* weight);
  double evaluate(const tandem_array* x, const tandem_array* y);
  void predict(const tandem_array* x, const tandem_array* y) const;
  void backward(const tandem_array* x, const tandem_array* dy, bool train, const tandem_array* dx);

  // Shared by predictions; exclusive for all that changes the model.
  mutable std::shared_mutex mutex;

 private:
  struct Batch;

  HostArray input(const tandem_array* x, const char* what) const;
  HostArray output(const tandem_array* y, const char* what, const char* name,
                   std::int64_t examples) const;
  Batch read(const tandem_array* x, const tandem_array* y, const tandem_array* weight,
             const char* what) const;
  double mean_loss(const char* what, bool training, const tandem_array* x, const tandem_array* y,
                   const tandem_array* weight);
  void step(const Tensor& result, const Tensor& gradient);
  void share(const std::vector<Variable>& variables) const;
  Affine normalizing(const Moments& moments) const;
  void require_optimizer(const char* what) const;
  int ranks() const { return group_ ? group_->group.size() : 1; }
  std::vector<Variable> state() const;
  void restore(const TensorFile& file, const std::string& path);

  std::string definition_;
  std::shared_ptr<Group> group_;
  ModelText text_;
  Shape result_;  // with batch axis -1
  std::unique_ptr<parallel::DistributedDataParallel> averaged_;
  Moments x_, y_;
};

Handles<tandem_model, HostModel>& models();

}  // namespace tandem::c
