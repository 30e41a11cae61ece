// The models that `tandem train` knows, each with settings under which it learns well.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/model.h"

namespace tandem::tools {

struct Recipe {
  std::int64_t batch = 128;  // global
  double learning_rate = 1e-3;
  // Pictures are shifted and mirrored at random while training.
  bool augment = false;
  // The rate warms up and falls to nothing over the whole of training, instead of staying as it is.
  bool decay = false;
  std::string optimizer;  // by name
};

// "mlp", "lenet", "resnet20". Throws InvalidArgumentError for another.
Recipe recipe_of(const std::string& model);

// Pictures [height, width, channels] scaled to [0, 1] in, logits of `classes` out. Makes the
// variables in the open strategy scope.
//   mlp       512, 512, classes units
//   lenet     two convolutions of 3 x 3 (32, 64 filters), pooling, 128, classes units, with dropout
//   resnet20  the network for CIFAR-10 of He et al. 2016, section 4.2, n = 3
Model make_model(const std::string& model, const Shape& picture, std::int64_t classes);

// The optimizer of that name, or the recipe's own when `name` is empty. `steps`: of the whole
// training.
optimizers::Optimizer make_optimizer(const Recipe& recipe, const std::string& name,
                                     std::optional<double> rate, std::int64_t steps);

}  // namespace tandem::tools
