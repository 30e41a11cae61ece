// Plain C++: configuration struct, model factory, k-fold cross-validation, results in a table, errors.
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tandem/tandem.h>

struct Config {
  int hidden = 16;
  double rate = 0.01;
  std::string activation = "relu";
  bool normalize = true;
};

std::unique_ptr<tandem::Sequential> make_model(const Config& config) {
  std::vector<tandem::Layer> layers;
  layers.push_back(tandem::layers::Dense(config.hidden, {.activation = config.activation}));
  if (config.normalize) layers.push_back(tandem::layers::LayerNormalization());
  layers.emplace_back(tandem::layers::Dense(1));
  auto model = std::make_unique<tandem::Sequential>(layers);
  model->compile({.optimizer = tandem::optimizers::Adam(config.rate), .loss = "mse"});
  return model;
}

double cross_validate(const Config& config, const tandem::Tensor& x, const tandem::Tensor& y, int folds) {
  const std::int64_t n = x.size(0), part = n / folds;
  double sum = 0.0;
  for (int fold = 0; fold < folds; ++fold) {
    const std::int64_t begin = fold * part, end = begin + part;
    const tandem::Tensor x_test = x[tandem::Slice{begin, end}], y_test = y[tandem::Slice{begin, end}];
    const tandem::Tensor x_train = tandem::concat({x[tandem::Slice{0, begin}], x[tandem::Slice{end, n}]}, 0);
    const tandem::Tensor y_train = tandem::concat({y[tandem::Slice{0, begin}], y[tandem::Slice{end, n}]}, 0);
    auto model = make_model(config);
    model->fit(x_train, y_train, {.epochs = 10, .batch_size = 16, .verbose = 0});
    sum += model->evaluate(x_test, y_test).at("loss");
  }
  return sum / folds;
}

int main() {
  tandem::random::set_seed(5);
  const tandem::Tensor x = tandem::random::normal({120, 3});
  const tandem::Tensor y = tandem::sin(tandem::reduce_sum(x, {.axis = 1, .keepdims = true}));
  std::map<std::string, double> results;
  for (const std::string& activation : {"relu", "tanh"})
    for (int hidden : {8, 16}) {
      Config config{.hidden = hidden, .activation = activation};
      results[activation + "/" + std::to_string(hidden)] = cross_validate(config, x, y, 3);
    }
  std::ofstream csv("results.csv");
  for (const auto& [name, loss] : results) {
    std::cout << std::left << std::setw(12) << name << std::fixed << std::setprecision(4) << loss << '\n';
    csv << name << ',' << loss << '\n';
  }
  const auto best = std::min_element(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::cout << "best: " << best->first << '\n';
  try {
    make_model({.activation = "no such"})->predict(x);
  } catch (const tandem::Error& error) {
    std::cout << "refused: " << error.what() << '\n';
    return best->second < 1.0 ? 0 : 1;
  }
  return 1;
}
