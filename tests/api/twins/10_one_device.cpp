// examples/10_horovod.cpp on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  auto [training, test] = td::datasets::synthetic_digits({.train = 2000, .test = 500, .seed = 3});
  auto data = training.dataset().shuffle(1000).batch(32).repeat();

  td::Sequential model({td::layers::Flatten({.input_shape = {28, 28, 1}}), td::layers::Dense(128, {.activation = "relu"}), td::layers::Dense(10)});
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  auto loss_fn = td::losses::SparseCategoricalCrossentropy({.from_logits = true});

  int step = 0;
  for (const auto& batch : data) {
    td::GradientTape tape;
    td::Tensor loss = loss_fn(batch[1], model(td::cast(batch[0], td::float32) / 255.0));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()), model.trainable_variables());
    if (++step == 100) break;
  }
}
