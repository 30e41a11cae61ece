// PyTorch: classification on two moons, Dataset and DataLoader, StepLR, validation, state saved and restored.
#include <cmath>
#include <iostream>
#include <memory>
#include <tandem/tandem.h>
namespace td = tandem;
namespace nn = td::nn;
namespace optim = td::optim;

class MLP : public nn::Module {
 public:
  MLP(int in, int hidden, int classes) : fc1(in, hidden), fc2(hidden, hidden), out(hidden, classes), drop(0.1) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("out", out);
    register_module("drop", drop);
  }
  td::Tensor forward(td::Tensor x) {
    x = td::relu(fc1(x));
    x = drop(td::relu(fc2(x)));
    return out(x);
  }

 private:
  nn::Linear fc1, fc2, out;
  nn::Dropout drop;
};

int main() {
  td::manual_seed(0);
  const int n = 600;
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int i = 0; i < n; ++i) {
    double t = M_PI * i / n;
    int c = i % 2;
    points.push_back(c ? 1 - std::cos(t) : std::cos(t));
    points.push_back(c ? 0.5 - std::sin(t) : std::sin(t));
    labels.push_back(c);
  }
  auto x = td::tensor(points).view({n, 2}) + 0.05 * td::randn({n, 2});
  auto y = td::tensor(labels);
  td::data::TensorDataset dataset(x, y);
  auto [train_set, val_set] = td::data::random_split(dataset, {500, 100});
  td::data::DataLoader train_loader(train_set, {.batch_size = 50, .shuffle = true});
  td::data::DataLoader val_loader(val_set, {.batch_size = 100});

  auto model = std::make_shared<MLP>(2, 32, 2);
  nn::CrossEntropyLoss criterion;
  optim::SGD optimizer(model->parameters(), {.lr = 0.2, .momentum = 0.9, .weight_decay = 1e-4});
  optim::lr_scheduler::StepLR scheduler(optimizer, {.step_size = 10, .gamma = 0.5});
  float best = 0.0f;
  for (int epoch = 0; epoch < 20; ++epoch) {
    model->train();
    for (auto& [inputs, targets] : train_loader) {
      optimizer.zero_grad();
      auto loss = criterion(model->forward(inputs), targets);
      loss.backward();
      optimizer.step();
    }
    scheduler.step();
    model->eval();
    td::NoGradGuard no_grad;
    float correct = 0;
    for (auto& [inputs, targets] : val_loader) correct += (model->forward(inputs).argmax(1) == targets).sum().item<int64_t>();
    if (correct / 100 > best) {
      best = correct / 100;
      td::save(model->state_dict(), "best.pt.safetensors");
    }
    std::cout << "epoch " << epoch << " accuracy " << correct / 100 << " lr " << optimizer.param_groups()[0].lr() << std::endl;
  }
  model->load_state_dict(td::load("best.pt.safetensors"));
  return best > 0.8f ? 0 : 1;
}
