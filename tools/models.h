// The models of `tandem train` and their default hyperparameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/model.h"

namespace tandem::tools {

struct Recipe {
  std::int64_t batch = 128;  // global
  double learning_rate = 1e-3;
  // Augment training images: random shifts and mirroring.
  bool augment = false;
  // Use a learning rate schedule: warm-up, then decay to zero at the end of training.
  bool decay = false;
  std::string optimizer;  // by name
};

// "mlp", "lenet", "resnet20". Throws InvalidArgumentError for another.
Recipe recipe_for(const std::string& model);

// Images [height, width, channels] scaled to [0, 1] in, logits of `classes` out. Makes the
// variables in the open strategy scope.
//   mlp       512, 512, classes units
//   lenet     two convolutions of 3 x 3 (32, 64 filters), pooling, 128, classes units, with dropout
//   resnet20  the network for CIFAR-10 of He et al. 2016, section 4.2, n = 3
Model make_model(const std::string& model, const Shape& image, std::int64_t classes);

// The optimizer of that name, or the recipe's own when `name` is empty. `steps`: of the whole
// training.
optimizers::Optimizer make_optimizer(const Recipe& recipe, const std::string& name,
                                     std::optional<double> rate, std::int64_t steps);

}  // namespace tandem::tools
