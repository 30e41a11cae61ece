#include "train/own_model.h"

#include <typeinfo>

#include "core/status.h"
#include "nn/type_name.h"
#include "train/model_impl.h"

namespace tandem {

OwnModelLayer::OwnModelLayer(Model& object)
    : object_(&object), kind_(snake_case_name(typeid(object))) {}

void OwnModelLayer::move(const Model& from, Model* to) noexcept {
  if (object_ == &from) object_ = to;
}

Model& OwnModelLayer::object() const {
  if (!object_ || typeid(*object_) == typeid(Model))
    fail<FailedPreconditionError>(
        "[{}] the object of the class derived from td::Model has ended, or was moved into a "
        "td::Model: keep the object as long as the model is called, for example by "
        "std::make_shared",
        label());
  return *object_;
}

Tensor OwnModelLayer::call(const Tensor& inputs, bool training) {
  return object().call(inputs, training);
}

Tensor OwnModelLayer::call(const std::vector<Tensor>& inputs, bool training) {
  return object().call(inputs, training);
}

bool has_own_class(const Model& object) {
  const std::type_info& type = typeid(object);
  return type != typeid(Model) && type != typeid(Sequential) && type != typeid(Functional);
}

const std::shared_ptr<Model::Impl>& Model::impl() const {
  // A Sequential without layers is undefined.
  if (!impl_ && typeid(*this) != typeid(Model) && !dynamic_cast<const Sequential*>(this)) {
    impl_ = std::make_shared<Impl>();
    impl_->own = std::make_shared<OwnModelLayer>(const_cast<Model&>(*this));
    impl_->layer = impl_->own;
  }
  return impl_;
}

Model& Model::operator=(const Model& other) {
  if (this == &other) return *this;
  if (impl_ && impl_->own) impl_->own->move(*this, nullptr);
  impl_ = other.impl();
  return *this;
}

Model& Model::operator=(Model&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ && impl_->own) impl_->own->move(*this, nullptr);
  impl_ = other.impl();
  other.impl_ = nullptr;
  if (impl_ && impl_->own) impl_->own->move(other, this);
  return *this;
}

Model::~Model() {
  if (impl_ && impl_->own) impl_->own->move(*this, nullptr);
}

Tensor Model::call(const Tensor&) {
  fail<UnimplementedError>(
      "the model was called with one input: expected a class that overrides "
      "td::Tensor call(const td::Tensor& inputs)");
}

Tensor Model::call(const std::vector<Tensor>& inputs) {
  fail<UnimplementedError>(
      "the model was called with {} inputs: expected a class that overrides "
      "td::Tensor call(const std::vector<td::Tensor>& inputs)",
      inputs.size());
}

Tensor Model::call(const Tensor& inputs, bool) { return call(inputs); }
Tensor Model::call(const std::vector<Tensor>& inputs, bool) { return call(inputs); }

}  // namespace tandem
