// Run with TANDEM_EMULATED_GPUS=4.
#include <tandem/tandem.h>

#include <iostream>
namespace td = tandem;

int main() {
  auto make_net = [] {
    return td::Sequential({td::layers::Dense(256, {.activation = "relu", .input_shape = {64}}),
                           td::layers::Dense(1000)});
  };
  td::Tensor inputs = td::random::normal({32, 64});
  td::Tensor labels = td::random::uniform_int({32}, 0, 1000);

  // replicate -> scatter -> parallel_apply -> gather; all outputs end on one device.
  td::parallel::DataParallel gathered(make_net(),
                                      {.device_ids = {0, 1, 2, 3}, .output_device = 1});
  td::Tensor outputs = gathered(inputs);
  std::cout << outputs.shape() << ' ' << outputs.device() << '\n';  // (32, 1000) .../device:GPU:1

  // The loss is computed where the outputs are: no device holds them all.
  td::parallel::DataParallelModel model(make_net(), {.device_ids = {0, 1, 2, 3}});
  td::parallel::DataParallelCriterion criterion(
      td::losses::SparseCategoricalCrossentropy({.from_logits = true}));
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.1}, model.parameters());
  for (int step = 0; step < 10; ++step) {
    td::Tensor loss = criterion(model(inputs), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  td::parallel::print_memory_balance(std::cout);  // a line a device: peak MiB, share of the largest,
                                                  // busy share
}
