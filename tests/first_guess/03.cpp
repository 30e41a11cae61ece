// Keras user: callbacks that stop, save and slow down; regularizers.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  auto x = td::random::normal({400, 10});
  auto y = td::reduce_sum(x, {.axis = {1}, .keepdims = true});
  auto x_val = td::random::normal({100, 10});
  auto y_val = td::reduce_sum(x_val, {.axis = {1}, .keepdims = true});

  td::Sequential model({
      td::layers::Dense(32, {.activation = "relu", .kernel_regularizer = td::regularizers::L2(1e-4), .input_shape = {10}}),
      td::layers::BatchNormalization(),
      td::layers::Dropout(0.1),
      td::layers::Dense(1),
  });
  model.compile({.optimizer = td::optimizers::Adam(0.01), .loss = td::losses::MeanSquaredError(), .metrics = {td::metrics::MeanAbsoluteError()}});

  auto early = td::callbacks::EarlyStopping({.monitor = "val_loss", .patience = 3, .restore_best_weights = true});
  auto reduce = td::callbacks::ReduceLROnPlateau({.monitor = "val_loss", .factor = 0.5, .patience = 2, .min_lr = 1e-5});
  auto save = td::callbacks::ModelCheckpoint("best.weights", {.monitor = "val_loss", .save_best_only = true, .save_weights_only = true});
  auto hist = model.fit(x, y, {.epochs = 15, .batch_size = 32, .validation_data = {x_val, y_val}, .verbose = 0, .callbacks = {early, reduce, save}});

  std::cout << "epochs " << hist.epoch.size() << "\n";
  std::cout << "losses of regularizers " << model.losses().size() << "\n";
  std::cout << "lr " << model.optimizer().learning_rate() << "\n";
  model.load_weights("best.weights");
  auto r = model.evaluate(x_val, y_val, {.verbose = 0});
  std::cout << "val mae " << r["mean_absolute_error"] << "\n";
}
