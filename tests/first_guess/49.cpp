// PyTorch background: DDP over two spawned processes, DistributedSampler, autocast and GradScaler.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace dist = td::distributed;

struct Net : td::nn::Module {
  td::nn::Linear fc1, fc2;
  Net() : fc1(10, 32), fc2(32, 1) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  td::Tensor forward(const td::Tensor& x) { return fc2(td::relu(fc1(x))); }
};

void worker(int rank, int world_size) {
  dist::init_process_group("gloo", {.rank = rank, .world_size = world_size});
  td::manual_seed(0);
  auto x = td::randn({256, 10});
  auto y = x.sum(1, /*keepdim=*/true);

  td::data::TensorDataset dataset(x, y);
  td::data::DistributedSampler sampler(dataset, {.num_replicas = world_size, .rank = rank, .shuffle = true});
  td::data::DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler});

  Net net;
  td::nn::parallel::DistributedDataParallel ddp(net);
  td::optim::SGD optimizer(ddp.parameters(), {.lr = 0.01, .momentum = 0.9});
  td::nn::MSELoss criterion;
  td::amp::GradScaler scaler;
  float first = -1, last = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& [inputs, targets] : loader) {
      optimizer.zero_grad();
      td::Tensor loss;
      {
        td::autocast guard("cpu", td::bfloat16);
        loss = criterion(ddp(inputs), targets);
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      if (first < 0) first = loss.item<float>();
      last = loss.item<float>();
    }
  }
  auto total = td::tensor({last});
  dist::all_reduce(total, dist::ReduceOp::SUM);
  dist::barrier();
  if (rank == 0) std::cout << first << " -> " << total.item<float>() / world_size << std::endl;
  if (!(last < first)) throw std::runtime_error("the loss does not fall");
  dist::destroy_process_group();
}

int main() {
  const int world_size = 2;
  td::multiprocessing::spawn(worker, {.args = {world_size}, .nprocs = world_size, .join = true});
  return 0;
}
