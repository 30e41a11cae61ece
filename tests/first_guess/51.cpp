// Keras Sequential CNN with callbacks and evaluate.
#include <tandem/tandem.h>
#include <iostream>
namespace td = tandem;

int main() {
  auto [train, test] = td::datasets::synthetic_digits({.train = 2000, .test = 400});
  auto x_train = td::cast(train.images, td::float32) / 255.0;
  auto x_test = td::cast(test.images, td::float32) / 255.0;
  auto y_train = td::one_hot(train.labels, 10);
  auto y_test = td::one_hot(test.labels, 10);

  td::Sequential model;
  model.add(td::layers::Input({28, 28, 1}));
  model.add(td::layers::Conv2D(32, {3, 3}, {.activation = "relu", .kernel_initializer = "he_normal"}));
  model.add(td::layers::BatchNormalization());
  model.add(td::layers::MaxPooling2D({2, 2}));
  model.add(td::layers::Conv2D(64, 3, {.activation = "relu"}));
  model.add(td::layers::MaxPooling2D());
  model.add(td::layers::Flatten());
  model.add(td::layers::Dense(64, {.activation = "relu"}));
  model.add(td::layers::Dropout(0.5));
  model.add(td::layers::Dense(10, {.activation = "softmax"}));

  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 0.001}),
                 .loss = "categorical_crossentropy",
                 .metrics = {"accuracy"}});

  td::callbacks::EarlyStopping stop({.monitor = "val_loss", .patience = 3, .restore_best_weights = true});
  td::callbacks::ModelCheckpoint best("best.weights.safetensors",
                                      {.monitor = "val_accuracy", .save_best_only = true, .save_weights_only = true});
  td::callbacks::ReduceLROnPlateau plateau({.monitor = "val_loss", .factor = 0.5, .patience = 2, .min_lr = 1e-6});

  auto hist = model.fit(x_train, y_train,
                        {.epochs = 10,
                         .batch_size = 64,
                         .validation_split = 0.1,
                         .callbacks = {stop, best, plateau}});

  model.load_weights("best.weights.safetensors");
  auto score = model.evaluate(x_test, y_test, {.verbose = 0});
  std::cout << "Test loss: " << score["loss"] << "\nTest accuracy: " << score["accuracy"] << std::endl;
  std::cout << "stopped at epoch " << stop.stopped_epoch() << "\n";
  std::cout << "best val_loss " << *std::min_element(hist.history["val_loss"].begin(), hist.history["val_loss"].end());
}
