#include "training_step.h"

#include "images.h"
#include "models.h"
#include "tandem/creation.h"
#include "tandem/device.h"

namespace tandem::tools {
namespace {

constexpr std::int64_t kSteps = 1000;  // any length of training: the result does not depend on it

// A batch of zeros on the host, where datasets produce batches.
data::Example batch_of(const Shape& image, std::int64_t examples) {
  const DeviceScope host("/cpu:0");
  return {zeros(image.with_leading(examples)), zeros({examples}, {.dtype = int64})};
}

}  // namespace

Explanation explain_step(const Workload& workload, const std::string& command) {
  const Recipe recipe = recipe_for(workload.model);
  const std::int64_t batch = workload.batch.value_or(recipe.batch);
  const ImageSpec data = image_spec(workload.data, command);
  const distribute::Strategy strategy = make_strategy(workload.placement);
  Model model;
  {
    const auto scope = strategy.scope();
    model = make_model(workload.model, data.image, data.classes);
    model.compile({.optimizer = make_optimizer(recipe, workload.optimizer, std::nullopt, kSteps),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"},
                   .dtype = workload.dtype});
  }
  return explain(model, batch_of(data.image, batch));
}

}  // namespace tandem::tools
