// Plain C++: time series from a CSV file into windows, training with early exit, inference, errors, a thread pool.
#include <algorithm>
#include <fstream>
#include <future>
#include <iostream>
#include <numeric>
#include <optional>
#include <sstream>
#include <tandem/tandem.h>

struct Series {
  std::vector<double> values;
  static Series read(const std::string& path) {
    Series s;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) s.values.push_back(std::stod(line));
    return s;
  }
};

int main() {
  {
    std::ofstream out("series.csv");
    for (int i = 0; i < 300; ++i) out << std::sin(i * 0.1) << '\n';
  }
  const auto series = Series::read("series.csv");
  const std::size_t window = 8, count = series.values.size() - window;
  std::vector<float> x, y;
  for (std::size_t i = 0; i < count; ++i) {
    x.insert(x.end(), series.values.begin() + i, series.values.begin() + i + window);
    y.push_back(static_cast<float>(series.values[i + window]));
  }
  tandem::Tensor inputs = tandem::constant(x, {.shape = {static_cast<std::int64_t>(count), static_cast<std::int64_t>(window)}});
  tandem::Tensor targets = tandem::constant(y).reshape({static_cast<std::int64_t>(count), 1});

  tandem::Sequential model{tandem::layers::Dense(16, {.activation = "relu"}), tandem::layers::Dense(1)};
  model.compile({.optimizer = "adam", .loss = "mae"});
  double best = std::numeric_limits<double>::max();
  for (int epoch = 0; epoch < 20; ++epoch) {
    const auto history = model.fit(inputs, targets, {.batch_size = 32, .verbose = 0});
    const double loss = history.at("loss").back();
    if (loss > best * 1.5) break;
    best = std::min(best, loss);
  }
  std::cout << "best " << best << '\n';

  std::vector<std::future<float>> futures;
  for (std::size_t i = 0; i < 4; ++i)
    futures.push_back(std::async(std::launch::async, [&model, &inputs, i] {
      const tandem::Tensor row = inputs[i].reshape({1, -1});
      return model(row).item<float>();
    }));
  for (auto& f : futures) std::cout << f.get() << ' ';
  std::cout << '\n';
  const float* raw = inputs.data<float>();
  std::cout << std::accumulate(raw, raw + inputs.size(), 0.0F) << ' ' << inputs.nbytes() << '\n';
  try {
    model.predict(tandem::ones({2, 5}));
    return 1;
  } catch (const tandem::InvalidArgumentError& error) {
    std::cerr << "expected: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "other: " << error.what() << '\n';
    return 2;
  }
  return best < 0.5 ? 0 : 1;
}
