// TensorFlow: MirroredStrategy with fit, callbacks, saving; then evaluation on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

td::Sequential build_model() {
  td::Sequential model;
  model.add(td::layers::Input({28, 28, 1}));
  model.add(td::layers::Conv2D(8, 3, {.activation = "relu"}));
  model.add(td::layers::MaxPooling2D());
  model.add(td::layers::Flatten());
  model.add(td::layers::Dense(32, {.activation = "relu"}));
  model.add(td::layers::Dense(10));
  return model;
}

int main() {
  td::config::set_logical_cpus(2);
  for (const auto& device : td::config::list_logical_devices()) std::cout << device << "\n";
  const auto [train, test] = td::datasets::synthetic_digits({.train = 600, .test = 100});
  auto to_float = [](const td::Tensor& image, const td::Tensor& label) { return td::data::Example{td::cast(image, td::float32) / 255.0, label}; };
  const int batch = 32;
  td::distribute::MirroredStrategy strategy({"/cpu:0", "/cpu:1"});
  const int global_batch = batch * strategy.num_replicas_in_sync();
  auto train_ds = train.dataset().map(to_float, {.num_parallel_calls = 2}).cache().shuffle(600).batch(global_batch);
  auto test_ds = test.dataset().map(to_float).batch(global_batch);

  td::Sequential model;
  {
    auto scope = strategy.scope();
    model = build_model();
    model.compile({.optimizer = td::optimizers::Adam(), .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}), .metrics = {"accuracy"}});
  }
  auto decay = [](int epoch) { return epoch < 2 ? 1e-3 : 1e-4; };
  std::vector<td::callbacks::Callback> callbacks = {td::callbacks::TensorBoard("logs"),
                                                    td::callbacks::ModelCheckpoint("ckpt_{epoch}.safetensors", {.save_weights_only = true}),
                                                    td::callbacks::LearningRateScheduler(decay)};
  model.fit(train_ds, {.epochs = 3, .validation_data = test_ds, .verbose = 2, .callbacks = callbacks});
  auto result = model.evaluate(test_ds);
  std::cout << "accuracy " << result.at("accuracy") << "\n";

  td::Sequential single = build_model();
  single.compile({.optimizer = "adam", .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}), .metrics = {"accuracy"}});
  single.load_weights("ckpt_3.safetensors");
  auto again = single.evaluate(test_ds);
  std::cout << "again " << again["accuracy"] << "\n";
  return std::abs(again["accuracy"] - result["accuracy"]) < 1e-6 ? 0 : 1;
}
