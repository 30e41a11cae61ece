// Programs for libtorch, with torch as the name of tandem::libtorch.
#include "tandem/libtorch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

namespace tandem::libtorch_test {
namespace {

namespace torch = tandem::libtorch;

class Points : public torch::data::Dataset<Points> {
 public:
  explicit Points(std::size_t size)
      : x_(torch::randn({static_cast<std::int64_t>(size), 2})),
        y_(torch::cast(x_.index({torch::indexing::Slice(), 0}) > 0.0, torch::kLong)) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {x_[row], y_[row]};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(x_.size(0));
  }

 private:
  torch::Tensor x_, y_;
};

struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t in, std::int64_t hidden)
      : body(register_module("body", torch::nn::Linear(in, hidden))),
        policy(register_module("policy", torch::nn::Linear(hidden, 2))),
        value(register_module("value", torch::nn::Linear(hidden, 1))) {}
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    x = torch::relu(body->forward(x));
    return {torch::nn::functional::log_softmax(policy->forward(x), 1), value->forward(x)};
  }
  torch::nn::Linear body{nullptr}, policy{nullptr}, value{nullptr};
};
TORCH_MODULE(Net);

struct IdentityImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};
TORCH_MODULE(Identity);

TEST(Libtorch, TrainsByALoaderOfAnOwnDataset) {
  torch::manual_seed(3);
  auto dataset = Points(256).map(torch::data::transforms::Stack<>());
  const std::size_t size = dataset.size().value();
  EXPECT_EQ(size, 256u);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(dataset), torch::data::DataLoaderOptions().batch_size(32).workers(2));
  Net net(2, 16);
  net->train();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.5));
  double first = 0.0, last = 0.0;
  for (int epoch = 0; epoch < 4; ++epoch)
    for (torch::data::Example<>& batch : *loader) {
      batch.data = batch.data * 1.0;  // as to(device)
      optimizer.zero_grad();
      const auto [log_probabilities, value] = net->forward(batch.data);
      EXPECT_EQ(value.shape(), Shape({32, 1}));
      const torch::Tensor loss =
          torch::nn::functional::nll_loss(log_probabilities, batch.target) + 0.0 * value.mean();
      loss.backward();
      optimizer.step();
      if (first == 0.0) first = loss.item<float>();
      last = loss.item<float>();
    }
  EXPECT_LT(last, 0.6 * first);
}

TEST(Libtorch, ModulesAreMadeOfTheirOptions) {
  namespace nn = torch::nn;
  const nn::Linear linear(nn::LinearOptions(3, 4).bias(false));
  EXPECT_EQ(linear.weight.shape(), Shape({4, 3}));
  EXPECT_FALSE(linear.bias.defined());
  const nn::ConvTranspose2d up(
      nn::ConvTranspose2dOptions(2, 3, 4).stride(2).padding(1).bias(false));
  EXPECT_EQ(up(torch::ones({1, 2, 5, 5})).shape(), Shape({1, 3, 10, 10}));
  EXPECT_EQ(up->parameters().size(), 1u);
  const nn::MaxPool2d pool(nn::MaxPool2dOptions(3).stride(2).padding(1));
  EXPECT_EQ(pool(torch::ones({1, 1, 6, 6})).shape(), Shape({1, 1, 3, 3}));
  const nn::LeakyReLU leaky(nn::LeakyReLUOptions().negative_slope(0.5).inplace(true));
  EXPECT_EQ(leaky(torch::full({1}, -2.0)).item<float>(), -1.0f);
  nn::Sequential all(nn::Linear(nn::LinearOptions(3, 2)),
                     nn::BatchNorm1d(nn::BatchNorm1dOptions(2).eps(0.25)),
                     nn::Dropout(nn::DropoutOptions(0.25)));
  all.eval();
  EXPECT_EQ(all(torch::ones({5, 3})).shape(), Shape({5, 2}));
  const nn::Dropout drops(nn::DropoutOptions().p(0.75));
  EXPECT_EQ(drops(torch::ones({99})).max().item<float>(), 4.0f);
}

TEST(Libtorch, ModulesAreMadeByTheirHandles) {
  const Net empty{nullptr};
  EXPECT_TRUE(empty.is_empty());
  Identity identity;
  EXPECT_FALSE(identity.is_empty());
  const torch::Tensor x = torch::ones({2});
  EXPECT_TRUE(identity(x).same_as(x));
  const Identity same = identity;
  EXPECT_EQ(same.ptr(), identity.ptr());
  const Identity of_pointer(std::make_shared<IdentityImpl>());
  EXPECT_FALSE(of_pointer.is_empty());
  Net net(3, 4);
  const auto [policy, value] = net(torch::ones({1, 3}));
  EXPECT_EQ(policy.shape(), Shape({1, 2}));
  EXPECT_EQ(net->named_parameters()[0].key(), "body.weight");
}

}  // namespace
}  // namespace tandem::libtorch_test
