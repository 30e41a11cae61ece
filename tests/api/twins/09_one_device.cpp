// examples/09_ddp.cpp on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

void train() {
  auto [training, test] = td::datasets::synthetic_digits({.train = 2000, .test = 500, .seed = 3});
  td::data::DataLoader loader(training, {.batch_size = 32, .shuffle = true, .num_workers = 1});

  td::Sequential model({td::layers::Flatten({.input_shape = {28, 28, 1}}), td::layers::Dense(128, {.activation = "relu"}), td::layers::Dense(10)});
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.parameters());
  auto loss_fn = td::losses::SparseCategoricalCrossentropy({.from_logits = true});

  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : loader) {
      td::Tensor loss = loss_fn(batch[1], model(td::cast(batch[0], td::float32) / 255.0));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  }
  td::NoGradScope no_grad;
  td::metrics::Metric accuracy("accuracy");
  accuracy.update(test.labels, model(td::cast(test.images, td::float32) / 255.0));
  std::cout << "accuracy " << accuracy.result() << '\n';
  td::save_weights(model, "ddp.safetensors");
}

int main() {
  train();
}
