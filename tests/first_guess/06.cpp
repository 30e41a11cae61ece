// Keras: tabular binary classification with dropout, batch normalization, class weights and a confusion matrix.
#include <iostream>
#include <vector>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  td::utils::set_random_seed(42);
  const int n = 512;
  td::Tensor x = td::random::normal({n, 8});
  td::Tensor w = td::random::normal({8, 1});
  td::Tensor y = td::cast(td::matmul(x, w) > 0.0, td::float32);

  td::Sequential model;
  model.add(td::layers::Input({8}));
  model.add(td::layers::Dense(32, {.activation = "relu", .kernel_regularizer = td::regularizers::L2(1e-4)}));
  model.add(td::layers::BatchNormalization());
  model.add(td::layers::Dropout(0.2));
  model.add(td::layers::Dense(1, {.activation = "sigmoid"}));
  model.summary();

  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 5e-3}),
                 .loss = "binary_crossentropy",
                 .metrics = {"accuracy", td::metrics::AUC(), td::metrics::Precision(), td::metrics::Recall()}});

  auto stop = td::callbacks::EarlyStopping({.monitor = "val_loss", .patience = 5, .restore_best_weights = true});
  auto history = model.fit(x, y, {.epochs = 10,
                                  .batch_size = 32,
                                  .validation_split = 0.2,
                                  .verbose = 2,
                                  .callbacks = {stop},
                                  .class_weight = {{0, 1.0}, {1, 2.0}}});

  for (const auto& [name, values] : history.history) std::cout << name << ": " << values.back() << "\n";

  auto results = model.evaluate(x, y, {.batch_size = 64, .verbose = 0});
  std::cout << "loss " << results["loss"] << ", accuracy " << results["accuracy"] << "\n";

  td::Tensor p = model.predict(x, {.batch_size = 64});
  td::Tensor predicted = td::cast(p > 0.5, td::int64).reshape({-1});
  td::Tensor cm = td::math::confusion_matrix(td::cast(y, td::int64).reshape({-1}), predicted, 2);
  std::cout << cm << "\n";
  if (results["accuracy"] < 0.7) return 1;
}
