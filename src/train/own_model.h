// Models of users: classes derived from Model.
#pragma once

#include <string>
#include <vector>

#include "tandem/model.h"

namespace tandem {

// The layer of such a model: calls the object, wherever it has been moved.
class OwnModelLayer final : public layers::Layer {
 public:
  explicit OwnModelLayer(Model& object);

  // The object is elsewhere now; null: it has ended. `from` is another object: does nothing.
  void move(const Model& from, Model* to) noexcept;

  std::string kind() const override { return kind_; }
  bool casts_inputs() const override { return false; }
  Tensor call(const Tensor& inputs, bool training) override;
  Tensor call(const std::vector<Tensor>& inputs, bool training) override;

  // The object. Throws FailedPreconditionError if it has ended.
  Model& object() const;

 private:
  Model* object_;
  std::string kind_;  // of the class
};

// Whether the object's class is a user's, derived from Model, Sequential or Functional.
bool has_own_class(const Model& object);

}  // namespace tandem
