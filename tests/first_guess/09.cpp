// Keras: text-like classification with an embedding, global pooling, early stopping and the best weights kept.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace layers = td::layers;

int main() {
  td::utils::set_random_seed(7);
  const int vocab = 100, length = 12, examples = 400;
  td::Tensor tokens = td::random::uniform_int({examples, length}, 0, vocab);
  td::Tensor labels = td::cast(td::reduce_mean(td::cast(tokens, td::float32), {.axis = 1}) > 50.0, td::int64);

  td::Sequential model({layers::Embedding(vocab, 16), layers::GlobalAveragePooling1D(), layers::Dense(16, {.activation = "relu"}),
                        layers::Dropout(0.1), layers::Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = td::optimizers::Adam(0.01), .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  auto early = td::callbacks::EarlyStopping({.monitor = "val_accuracy", .patience = 3, .restore_best_weights = true});
  td::History history = model.fit(tokens, labels, {.epochs = 15, .batch_size = 32, .validation_split = 0.2, .verbose = 0, .callbacks = {early}});
  std::cout << "epochs: " << history.epoch.size() << ", best " << *std::max_element(history["val_accuracy"].begin(), history["val_accuracy"].end()) << "\n";
  auto [loss, accuracy] = model.evaluate(tokens, labels, {.batch_size = 64});
  std::cout << "loss " << loss << " accuracy " << accuracy << "\n";
  td::Tensor probabilities = model.predict(tokens[td::Slice(0, 5)]);
  for (int i = 0; i < 5; ++i) std::cout << td::argmax(probabilities[i]).item<int64_t>() << " " << labels[i].item<int64_t>() << "\n";
  model.save_weights("text.safetensors");
  return accuracy > 0.6 ? 0 : 1;
}
