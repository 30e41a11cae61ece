// PyTorch: DistributedDataParallel, Python style, 2 processes.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace dist = td::distributed;
namespace nn = td::nn;

struct ToyModel : nn::Module {
  ToyModel() {
    net1 = register_module("net1", nn::Linear(10, 10));
    relu = register_module("relu", nn::ReLU());
    net2 = register_module("net2", nn::Linear(10, 5));
  }
  td::Tensor forward(td::Tensor x) { return net2(relu(net1(x))); }
  nn::Linear net1{nullptr}, net2{nullptr};
  nn::ReLU relu{nullptr};
};

int main(int argc, char** argv) {
  dist::init_process_group("gloo");
  const int rank = dist::get_rank();
  const int world_size = dist::get_world_size();
  std::cout << "Running DDP example on rank " << rank << " of " << world_size << std::endl;
  td::manual_seed(0);
  ToyModel model;
  nn::parallel::DistributedDataParallel ddp_model(model);
  nn::MSELoss loss_fn;
  td::optim::SGD optimizer(ddp_model.parameters(), {.lr = 0.001});
  auto inputs = td::randn({20, 10}) + double(rank);
  auto labels = td::randn({20, 5});
  for (int i = 0; i < 10; ++i) {
    optimizer.zero_grad();
    auto outputs = ddp_model(inputs);
    auto loss = loss_fn(outputs, labels);
    loss.backward();
    optimizer.step();
    auto total = loss.detach();
    total = dist::all_reduce(total) / world_size;
    if (rank == 0) std::cout << "step " << i << ": " << total.item<float>() << "\n";
  }
  if (rank == 0) td::save(model.state_dict(), "model.ckpt");
  dist::barrier();
  model.load_state_dict(td::load("model.ckpt"));
  dist::destroy_process_group();
}
