// examples/04_fit_mirrored.cpp on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main(int argc, char** argv) {
  td::Sequential model;
  model = td::Sequential({
      td::layers::Conv2D(32, {3, 3}, {.activation = "relu", .input_shape = {28, 28, 1}}),
      td::layers::MaxPooling2D({2, 2}),
      td::layers::Flatten(),
      td::layers::Dense(128, {.activation = "relu"}),
      td::layers::Dropout(0.2),
      td::layers::Dense(10),
  });
  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 1e-3}),
                 .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.summary(std::cout);

  // The folder of MNIST's files, if one is given; else synthetic digits. Images uint8 [n, 28, 28, 1], labels int64 [n].
  auto [train, test] = argc > 1 ? td::datasets::mnist(argv[1]) : td::datasets::synthetic_digits();
  auto scaled = [](td::data::Example e) { return td::data::Example{td::cast(e[0], td::float32) / 255.0, e[1]}; };
  auto batches = td::data::Dataset::from_tensor_slices({train.images, train.labels})
                     .shuffle(10'000, {.seed = 1}).map(scaled).batch(128).prefetch(2);

  td::History history = model.fit(batches, {.epochs = 1,
                                            .callbacks = {td::callbacks::TensorBoard("logs"),
                                                          td::callbacks::ModelCheckpoint("weights.safetensors")}});
  auto result = model.evaluate(td::data::Dataset::from_tensor_slices({test.images, test.labels}).map(scaled).batch(256));
  std::cout << result.at("accuracy") << '\n';                     // above 0.97 after one epoch of MNIST

  // Plain tensors work too.
  td::Sequential line;
  line = td::Sequential({td::layers::Dense(1, {.input_shape = {1}})});
  line.compile({.optimizer = "sgd", .loss = "mse"});
  line.fit(td::ones({100, 1}), td::ones({100, 1}), {.epochs = 2, .batch_size = 10});
}
