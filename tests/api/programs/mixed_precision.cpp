// Mixed precision by Apex's API and by torch.amp's.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  td::Sequential net({td::layers::Dense(512, {.activation = "relu", .input_shape = {784}}), td::layers::Dense(10)});
  auto sgd = td::optimizers::SGD({.learning_rate = 0.1}, net.parameters());
  auto [model, optimizer] = td::amp::initialize(net, sgd, {.opt_level = "O1", .dtype = td::bfloat16});

  td::Tensor x = td::random::normal({64, 784}), y = td::random::uniform_int({64}, 0, 10);
  auto loss_fn = td::losses::SparseCategoricalCrossentropy({.from_logits = true});
  float first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    td::Tensor loss = loss_fn(y, model(x));
    (step == 0 ? first : last) = loss.item<float>();
    optimizer.zero_grad();
    {
      auto scaled = td::amp::scale_loss(loss, optimizer);
      scaled.backward();
    }  // gradients are unscaled here; a step with an overflow is skipped
    optimizer.step();
  }
  std::cout << (last < first) << ' ' << model(x).dtype() << ' ' << net.parameters()[0].dtype() << '\n';  // 1 bfloat16 float32

  td::amp::GradScaler scaler;  // 2^16, doubled after 2000 good steps, halved at an overflow
  {
    td::amp::autocast cast(td::bfloat16);
    optimizer.zero_grad();
    td::Tensor loss = loss_fn(y, net(x));
    scaler.scale(loss).backward();
  }
  scaler.step(sgd);
  scaler.update();
  std::cout << sgd.iterations() << ' ' << scaler.get_scale() << '\n';  // 21 65536
}
