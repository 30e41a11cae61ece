// Models of the C interface.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c/array.h"
#include "c/group.h"
#include "online/learner.h"
#include "train/model_text.h"

namespace tandem::c {

// The arrays of a model's inputs or outputs, in the order of its definition.
struct Arrays {
  const tandem_array* first;  // null: none, or one array that is null
  std::int64_t count = 1;
};

// A learner of JSON text, on arrays of the host.
class HostModel {
 public:
  // Collective over the group, which may be null. Throws InvalidArgumentError without a definition.
  HostModel(const std::optional<std::string>& definition, std::shared_ptr<Group> group);

  void save(const std::filesystem::path& path) const;
  // A model of a file of save(). Collective.
  static std::shared_ptr<HostModel> load(const char* path, const std::shared_ptr<Group>& group);

  const std::shared_ptr<Group>& group() const { return group_; }  // may be null
  const std::string& definition() const { return definition_; }
  const std::shared_ptr<online::Learner::Impl>& learner() const { return learner_; }
  // Shared by predictions; exclusive for all that changes the model.
  SharedMutex& mutex() const { return learner_->mutex; }

  // The functions of tandem_c.h with these names. They are not thread-safe: see mutex().
  void spec(std::int32_t output, tandem_array& spec) const;
  double get(std::string_view name) const;
  void set(std::string_view name, double value);
  Variable weight(std::string_view name, const char* what) const;
  void observe(const tandem_array* x, const tandem_array* y);
  double train(const Arrays& x, const Arrays& y, const tandem_array* weight);
  double evaluate(const Arrays& x, const Arrays& y);
  void predict(const Arrays& x, const Arrays& y) const;
  void backward(const tandem_array* x, const tandem_array* dy, bool train, const tandem_array* dx);
  // The samples of an array as a window keeps them.
  std::pair<Tensor, Tensor> samples(const tandem_array* x, const tandem_array* y) const;

 private:
  // `none`: the array may have no examples. `at`: the input or output.
  HostArray input(const tandem_array* x, const char* what, bool none, std::size_t at = 0) const;
  HostArray output(const tandem_array* y, const char* what, const char* name, std::int64_t examples,
                   std::size_t at = 0) const;
  // Those of all inputs or outputs.
  std::vector<HostArray> inputs(const Arrays& x, const char* what, bool none) const;
  std::vector<HostArray> outputs(const Arrays& y, const char* what, std::int64_t examples) const;
  online::Batch read(const Arrays& x, const Arrays& y, const tandem_array* weight,
                     const char* what) const;

  std::string definition_;
  std::shared_ptr<Group> group_;
  ModelText text_;
  std::shared_ptr<online::Learner::Impl> learner_;
};

Handles<tandem_model, HostModel>& models();

}  // namespace tandem::c
