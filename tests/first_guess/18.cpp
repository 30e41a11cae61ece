// PyTorch user: a convnet with batch norm and dropout.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace nn = td::nn;

struct Net : nn::Module {
  Net() : conv1(1, 8, 3, {.padding = 1}), conv2(8, 16, 3, {.stride = 2}), bn1(8), fc(16 * 6 * 6, 10) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("fc", fc);
  }
  td::Tensor forward(td::Tensor x) {
    x = td::relu(bn1(conv1(x)));
    x = td::max_pool2d(x, 2);
    x = td::relu(conv2(x));
    x = td::dropout(x, 0.25, is_training());
    x = x.view({x.size(0), -1});
    return td::log_softmax(fc(x), 1);
  }
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d bn1;
  nn::Linear fc;
};

int main() {
  auto [train, test] = td::datasets::synthetic_digits({.train = 256, .test = 64});
  auto x = train.images.permute({0, 3, 1, 2}).to(td::kFloat) / 255.0;
  Net net;
  td::optim::SGD optimizer(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    auto loss = td::nll_loss(net.forward(x), train.labels);
    loss.backward();
    optimizer.step();
    std::cout << i << " " << loss.item<float>() << "\n";
  }
}
