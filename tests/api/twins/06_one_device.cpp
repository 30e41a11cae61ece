// examples/06_multi_worker.cpp on one device.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  td::Sequential model;
  model = td::Sequential({td::layers::Dense(64, {.activation = "relu", .input_shape = {16}}), td::layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  td::random::set_seed(7);
  td::Tensor x = td::random::normal({1024, 16}), y = td::reduce_sum(x, {.axis = {1}, .keepdims = true});
  auto data = td::data::Dataset::from_tensor_slices({x, y}).batch(64);
  td::History history = model.fit(data, {.epochs = 5, .callbacks = {td::callbacks::BackupAndRestore("backup")}});
  model.save_weights("multi_worker.safetensors");
  std::cout << "loss " << history.at("loss").back() << '\n';
}
