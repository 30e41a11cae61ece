// td::for_each over the elements of a dataset, eager and traced.
#include <optional>

#include "autodiff/control_flow.h"
#include "core/status.h"
#include "data/node.h"

namespace tandem {
namespace {

using data::Dataset;
using data::Example;

class DatasetSource final : public ElementSource {
 public:
  explicit DatasetSource(Dataset dataset) : dataset_(std::move(dataset)) {}

  std::unique_ptr<ElementPass> start() override {
    return std::make_unique<Elements>(dataset_.iterate({.epoch = dataset_.node()->next_epoch()}));
  }

 private:
  class Elements final : public ElementPass {
   public:
    explicit Elements(data::Iterator iterator) : iterator_(std::move(iterator)) {}
    bool next(std::vector<Tensor>& element) override {
      const data::NextExample example = iterator_.next();
      if (!example) return false;
      element = example->components();
      return true;
    }

   private:
    data::Iterator iterator_;
  };

  Dataset dataset_;
};

// The specs for which the loop's body is traced.
std::vector<TensorType> specs_of(const Dataset& dataset) {
  std::vector<TensorType> specs;
  for (const data::ComponentSpec& component : dataset.iterate().element_spec())
    specs.push_back({component.dtype, component.shape});
  return specs;
}

}  // namespace

void for_each(const Dataset& dataset, const std::function<void(const Example& element)>& body) {
  if (building) {
    trace_for_each(std::make_shared<DatasetSource>(dataset), specs_of(dataset),
                   [&](const std::vector<Tensor>& element) {
                     body(Example(element));
                     return std::vector<Tensor>();
                   });
    return;
  }
  for (const Example& element : dataset) body(element);
}

}  // namespace tandem
