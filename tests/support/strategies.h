// Strategies and data for tests of replicas.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/tandem.h"

namespace tandem::testing {

// Replicas on `count` logical CPUs.
inline distribute::MirroredStrategy cpus(int count) {
  config::set_logical_cpus(count);
  distribute::MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back("/cpu:" + std::to_string(i));
  return distribute::MirroredStrategy(options);
}

// Iterates over `count` examples of 6 numbers; the last batch of each pass is smaller.
inline data::Dataset uneven(std::int64_t count, std::int64_t batch) {
  const DeviceScope cpu("/cpu:0");
  random::set_seed(9);
  const Tensor x = random::normal({count, 6});
  const Tensor y = argmax(slice(x, {0, 0}, {-1, 3}), 1);
  return data::Dataset::from_tensor_slices({x, y}).batch(batch).repeat();
}

// A step of a replica with labels. The loss is averaged over the global batch.
inline Tensor step_of_replica(const Model& model, optimizers::Optimizer& optimizer,
                              const data::Example& batch) {
  GradientTape tape;
  const Tensor loss = nn::compute_average_loss(
      nn::sparse_softmax_cross_entropy(batch[1], model(batch[0], {.training = true})));
  optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                            model.trainable_variables());
  return loss;
}

}  // namespace tandem::testing
