// Horovod (PyTorch style): broadcast of parameters and optimizer, DistributedOptimizer, clipping; rank 0 prints "ranks 2".
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace hvd = td::hvd;

int main(int argc, char** argv) {
  hvd::init();
  if (td::cuda::is_available()) td::cuda::set_device(hvd::local_rank());
  td::manual_seed(42);

  auto model = td::nn::Sequential(td::nn::Linear(10, 32), td::nn::ReLU(), td::nn::Dropout(0.1), td::nn::Linear(32, 3));
  td::optim::SGD optimizer(model->parameters(), td::optim::SGDOptions(0.01 * hvd::size()).momentum(0.9));

  hvd::broadcast_parameters(model->named_parameters(), /*root_rank=*/0);
  hvd::broadcast_optimizer_state(optimizer, 0);
  hvd::DistributedOptimizer dist_optimizer(optimizer, {.named_parameters = model->named_parameters(),
                                                       .compression = hvd::Compression::fp16,
                                                       .backward_passes_per_step = 1,
                                                       .op = hvd::Average});

  auto x = td::randn({300, 10});
  auto labels = x.slice(1, 0, 3).argmax(1);
  const int per_rank = 300 / hvd::size();
  auto my_x = x.narrow(0, hvd::rank() * per_rank, per_rank);
  auto my_y = labels.narrow(0, hvd::rank() * per_rank, per_rank);

  for (int epoch = 0; epoch < 10; ++epoch) {
    model->train();
    for (int i = 0; i + 30 <= per_rank; i += 30) {
      dist_optimizer.zero_grad();
      auto out = model->forward(my_x.slice(0, i, i + 30));
      auto loss = td::nll_loss(td::log_softmax(out, 1), my_y.slice(0, i, i + 30));
      loss.backward();
      dist_optimizer.synchronize();
      td::nn::utils::clip_grad_norm_(model->parameters(), 2.0);
      {
        auto guard = dist_optimizer.skip_synchronize();
        dist_optimizer.step();
      }
    }
    model->eval();
    td::NoGradGuard guard;
    auto acc = (model->forward(my_x).argmax(1) == my_y).to(td::kFloat).mean();
    auto avg = hvd::allreduce(acc, {.name = "avg_accuracy"});
    if (hvd::rank() == 0) std::cerr << "epoch " << epoch << " accuracy " << avg.item<float>() << "\n";
  }

  auto objects = hvd::allgather_object(hvd::rank());
  auto handle = hvd::allreduce_async(td::ones({4}), {.name = "ones", .op = hvd::Sum});
  while (!hvd::poll(handle)) {
  }
  auto total = hvd::synchronize(handle);
  if (hvd::rank() == 0) std::cout << "ranks " << total[0].item<float>() << "\n";
  hvd::shutdown();
}
