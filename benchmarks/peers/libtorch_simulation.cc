// The steps of simulation.c in libtorch, as TorchFort takes them: from the program's memory, with
// one blocking MPI_Allreduce per parameter after the backward pass.
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kWidth = 1024;

torch::nn::Sequential network(const std::string& sizes) {
  torch::nn::Sequential model;
  std::istringstream words(sizes);
  std::int64_t before = 0;
  for (std::string word; std::getline(words, word, '-'); before = std::stoll(word)) {
    if (before == 0) continue;
    if (!model->is_empty()) model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(before, std::stoll(word)));
  }
  return model;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::string sizes = "1024-1024";
  std::int64_t batch = 16, calls = 200;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (argv[i] == std::string("--network")) sizes = argv[i + 1];
    if (argv[i] == std::string("--batch")) batch = std::atoll(argv[i + 1]);
    if (argv[i] == std::string("--calls")) calls = std::atoll(argv[i + 1]);
  }
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  torch::set_num_threads(1);
  torch::nn::Sequential model = network(sizes);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-4));
  std::vector<float> x(static_cast<std::size_t>(batch * kWidth), 0.25f), y = x;
  const auto view = [&](std::vector<float>& values) {
    return torch::from_blob(values.data(), {batch, kWidth});
  };
  std::vector<double> train, predict;
  for (std::int64_t i = 0; i < 2 * calls; ++i) {
    const double start = MPI_Wtime();
    optimizer.zero_grad();
    torch::Tensor loss = torch::mse_loss(model->forward(view(x)), view(y));
    loss.backward();
    for (torch::Tensor& parameter : model->parameters()) {
      torch::Tensor gradient = parameter.grad();
      MPI_Allreduce(MPI_IN_PLACE, gradient.data_ptr(), static_cast<int>(gradient.numel()),
                    MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      gradient.div_(ranks);
    }
    optimizer.step();
    loss.item<float>();
    const double trained = MPI_Wtime();
    const torch::NoGradGuard no_gradients;
    view(y).copy_(model->forward(view(x)));
    if (i < calls) continue;
    train.push_back(1e3 * (trained - start));
    predict.push_back(1e3 * (MPI_Wtime() - trained));
  }
  if (rank == 0)
    std::printf(
        "{\"program\": \"libtorch\", \"part\": \"simulation\", \"network\": \"%s\", \"ranks\": %d, "
        "\"batch\": %lld, "
        "\"train_ms\": %.4f, \"predict_ms\": %.4f}\n",
        sizes.c_str(), ranks, static_cast<long long>(batch), median(train), median(predict));
  MPI_Finalize();
}
