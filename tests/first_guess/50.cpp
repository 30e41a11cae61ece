// Horovod background: the usual program with hvd::init, DistributedOptimizer, broadcast, averaged metrics.
#include <iostream>
#include <tandem/tandem.h>
#include <tandem/horovod.h>
namespace td = tandem;
namespace hvd = tandem::horovod;

struct Net : td::nn::Module {
  Net() {
    fc1 = register_module("fc1", td::nn::Linear(8, 16));
    fc2 = register_module("fc2", td::nn::Linear(16, 2));
  }
  td::Tensor forward(td::Tensor x) override { return fc2(td::relu(fc1(x))); }
  td::nn::Linear fc1, fc2;
};

int main() {
  hvd::init();
  td::manual_seed(42);
  const auto x = td::randn({512, 8});
  const auto y = (x.sum(1) > 0).to(td::int64);

  td::data::TensorDataset dataset(x, y);
  td::data::DistributedSampler sampler(dataset, {.num_replicas = hvd::size(), .rank = hvd::rank()});
  td::data::DataLoader loader(dataset, {.batch_size = 32, .sampler = &sampler});

  Net model;
  const float lr_scaler = hvd::size();
  td::optim::SGD base(model.parameters(), {.lr = 0.05f * lr_scaler, .momentum = 0.5});
  hvd::broadcast_parameters(model.state_dict(), /*root_rank=*/0);
  hvd::broadcast_optimizer_state(base, 0);
  auto optimizer = hvd::DistributedOptimizer(base, {.named_parameters = model.named_parameters(),
                                                    .compression = hvd::Compression::fp16,
                                                    .op = hvd::Average});
  for (int epoch = 0; epoch < 4; ++epoch) {
    model.train();
    sampler.set_epoch(epoch);
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto output = model(batch[0]);
      const auto loss = td::nn::functional::cross_entropy(output, batch[1]);
      loss.backward();
      optimizer.step();
    }
  }
  model.eval();
  const auto correct = model(x).argmax(1).eq(y).to(td::float32).mean();
  const auto accuracy = hvd::allreduce(correct, {.name = "avg_accuracy"});
  const auto gathered = hvd::allgather(td::full({1, 2}, hvd::rank()), "ranks");
  const auto objects = hvd::broadcast(td::tensor({1, 2, 3}), 0, "numbers");
  if (hvd::rank() == 0)
    std::cout << "size " << hvd::size() << " local " << hvd::local_rank() << " accuracy " << accuracy.item<float>() << '\n';
  const bool ok = accuracy.item<float>() > 0.75f && gathered.size(0) == hvd::size() && objects.size(0) == 3;
  hvd::shutdown();
  return ok ? 0 : 1;
}
