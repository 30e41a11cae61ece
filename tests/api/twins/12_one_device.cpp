// examples/12_tpu.cpp on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  td::random::set_seed(1);
  td::Sequential model;
  model = td::Sequential({
      td::layers::Conv2D(8, {3, 3}, {.activation = "relu", .input_shape = {28, 28, 1}}),
      td::layers::MaxPooling2D({2, 2}),
      td::layers::Flatten(),
      td::layers::Dense(32, {.activation = "relu"}),
      td::layers::Dense(10),
  });
  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 2e-3}),
                 .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  auto [train, test] = td::datasets::synthetic_digits({.train = 8'000, .test = 1'000, .seed = 1});
  auto scaled = [](td::data::Example e) { return td::data::Example{td::cast(e[0], td::float32) / 255.0, e[1]}; };
  auto batches = train.dataset().shuffle(8'000, {.seed = 1}).map(scaled).batch(128, {.drop_remainder = true});

  model.fit(batches, {.epochs = 3, .verbose = 0});
  auto result = model.evaluate(test.dataset().map(scaled).batch(200), {.verbose = 0});
  std::cout << result.at("accuracy") << '\n';                     // above 0.9
}
