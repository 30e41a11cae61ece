// The MLP's training step in libtorch: what a C++ program on PyTorch takes to start, and in memory.
#include <torch/torch.h>

#include <vector>

#include "report.h"

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  torch::set_num_threads(options.threads);
  torch::manual_seed(1);
  torch::ones(1) + torch::ones(1);
  const double startup_ms = bench::since_start_ms();

  const std::int64_t batch = options.name == "mlp512" ? 512 : 64;
  torch::nn::Sequential model(torch::nn::Linear(784, 512), torch::nn::ReLU(),
                              torch::nn::Linear(512, 512), torch::nn::ReLU(),
                              torch::nn::Linear(512, 10));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pool;
  for (int i = 0; i < 4; ++i)
    pool.emplace_back(torch::randn({batch, 784}), torch::randint(10, {batch}, torch::kInt64));

  bench::measure("libtorch", options, {.startup_ms = startup_ms}, [&](int steps) {
    torch::Tensor loss;
    for (int i = 0; i < steps; ++i) {
      const auto& [x, y] = pool[static_cast<std::size_t>(i) % pool.size()];
      optimizer.zero_grad();
      loss = torch::nn::functional::cross_entropy(model->forward(x), y);
      loss.backward();
      optimizer.step();
    }
    loss.item<float>();
  });
}
