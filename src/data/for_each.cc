// td::for_each over the elements of a dataset, eager and traced.
#include "autodiff/control_flow.h"
#include "core/status.h"
#include "data/node.h"

namespace tandem {
namespace {

using data::Dataset;
using data::Example;

// The specs for which the loop's body is traced.
std::vector<TensorType> specs_of(const Dataset& dataset) {
  std::vector<TensorType> specs;
  for (const data::ComponentSpec& component : dataset.iterate().element_spec())
    specs.push_back({component.dtype, component.shape});
  return specs;
}

}  // namespace

void for_each(const Dataset& dataset, const std::function<void(const Example& element)>& body) {
  if (context.graph) {
    const auto start = [dataset] {
      return dataset.iterate({.epoch = dataset.node()->next_epoch()}).pass();
    };
    trace_for_each(start, specs_of(dataset), [&](const std::vector<Tensor>& element) {
      body(Example(element));
      return std::vector<Tensor>();
    });
    return;
  }
  for (const Example& element : dataset) body(element);
}

}  // namespace tandem
