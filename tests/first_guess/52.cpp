// Custom training loop with GradientTape and metrics.
#include <tandem/tandem.h>
#include <cstdio>
namespace td = tandem;
using td::Tensor;

int main() {
  auto [train, test] = td::datasets::synthetic_digits();
  auto ds = train.dataset()
                .map([](Tensor x, Tensor y) { return std::make_pair(td::cast(x, td::float32) / 255.f, y); })
                .shuffle(1024)
                .batch(64);
  auto val = test.dataset()
                 .map([](Tensor x, Tensor y) { return std::make_pair(td::cast(x, td::float32) / 255.f, y); })
                 .batch(64);

  td::Sequential model({td::layers::Flatten(), td::layers::Dense(128, "relu"), td::layers::Dense(10)});
  td::optimizers::SGD optimizer(0.01, {.momentum = 0.9, .nesterov = true});
  td::losses::SparseCategoricalCrossentropy loss_fn({.from_logits = true});
  td::metrics::SparseCategoricalAccuracy train_acc("train_accuracy");
  td::metrics::SparseCategoricalAccuracy val_acc;
  td::metrics::Mean mean_loss("loss");

  auto train_step = td::function([&](const Tensor& x, const Tensor& y) {
    td::GradientTape tape;
    Tensor logits = model(x, {.training = true});
    Tensor loss = loss_fn(y, logits);
    auto grads = tape.gradient(loss, model.trainable_weights());
    optimizer.apply_gradients(grads, model.trainable_variables());
    train_acc.update_state(y, logits);
    return loss;
  });

  for (int epoch = 0; epoch < 3; ++epoch) {
    std::printf("Start of epoch %d\n", epoch);
    int step = 0;
    for (auto [x, y] : ds) {
      Tensor loss = train_step(x, y);
      mean_loss(loss);
      if (step++ % 100 == 0) std::printf("step %d: loss %.4f\n", step, loss.item<float>());
    }
    std::printf("train acc %.4f\n", train_acc.result().item<float>());
    train_acc.reset_state();
    mean_loss.reset_states();
    for (auto& [x, y] : val) val_acc.update_state(y, model(x, {.training = false}));
    double acc = val_acc.result();
    std::printf("val acc %.4f\n", acc);
    val_acc.reset_state();
  }
}
