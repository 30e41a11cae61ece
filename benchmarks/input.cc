// Input pipelines. Each line of the standard input asks for a measurement,
//   SECONDS PIPELINE
// and a JSON line answers: examples per second. Options: --threads, --files FOLDER
// (data_batch_1.bin and data_batch_2.bin in CIFAR-10's format). Pipelines are named by their
// stages; a digit is the number of parallel calls.
#include <tandem/tandem.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "report.h"

namespace {

namespace td = tandem;
using td::data::Dataset;
using td::data::Example;

Example light(const Example& e) { return {td::cast(e[0], td::float32) / 255.0, e[1]}; }

Example scale(const Example& e) { return {e[0] * 2.0 - 1.0, e[1]}; }

// About a millisecond of products.
Example heavy(const Example& e) {
  const td::Tensor planes = td::transpose(e[0], {2, 0, 1});
  return {td::transpose(td::matmul(planes, planes), {1, 2, 0}) * 0.01, e[1]};
}

// A random crop after padding, and a random mirror image.
Example augment(const Example& e) {
  const td::Tensor x = td::pad(td::cast(e[0], td::float32) / 255.0, {{4, 4}, {4, 4}, {0, 0}});
  const auto at = td::random::uniform_int({3}, 0, 9).to_vector<std::int32_t>();
  const td::Tensor crop = x(td::Slice(at[0], at[0] + 32), td::Slice(at[1], at[1] + 32));
  return {at[2] % 2 != 0 ? td::reverse(crop, {1}) : crop, e[1]};
}

Dataset labelled(const td::Tensor& x) {
  return Dataset::from_tensor_slices(
      {x, td::random::uniform_int({x.dim(0)}, 0, 10, {.dtype = td::int64})});
}

std::map<std::string, std::function<Dataset()>> pipelines(const std::string& files) {
  const auto bytes = td::random::uniform_int({60000, 28, 28, 1}, 0, 256, {.dtype = td::int32});
  const Dataset digits = labelled(td::cast(bytes, td::uint8));
  const Dataset large = labelled(td::random::normal({256, 224, 224, 3}));
  const Dataset scalars = labelled(td::random::normal({1'000'000}));
  const Dataset images = Dataset::from_files(
      {files + "/data_batch_1.bin", files + "/data_batch_2.bin"}, td::datasets::cifar10_examples);
  const auto shuffled = [=] { return digits.shuffle(10000); };
  const auto mixed = [=] { return large.shuffle(256); };
  const td::data::MapOptions two{.num_parallel_calls = 2};
  return {
      {"digits batch", [=] { return digits.batch(128); }},
      {"digits shuffle batch", [=] { return shuffled().batch(128); }},
      {"digits shuffle map batch", [=] { return shuffled().map(light).batch(128); }},
      {"digits shuffle map batch prefetch",
       [=] { return shuffled().map(light).batch(128).prefetch(2); }},
      {"digits shuffle map2 batch prefetch",
       [=] { return shuffled().map(light, two).batch(128).prefetch(2); }},
      {"digits shuffle batch map", [=] { return shuffled().batch(128).map(light); }},
      {"digits shuffle batch map prefetch",
       [=] { return shuffled().batch(128).map(light).prefetch(2); }},
      {"large shuffle batch", [=] { return mixed().batch(32); }},
      {"large shuffle batch prefetch", [=] { return mixed().batch(32).prefetch(2); }},
      {"large shuffle map batch prefetch",
       [=] { return mixed().map(scale).batch(32).prefetch(2); }},
      {"large shuffle map2 batch prefetch",
       [=] { return mixed().map(scale, two).batch(32).prefetch(2); }},
      {"large heavy map2 batch prefetch",
       [=] { return large.map(heavy, two).batch(32).prefetch(2); }},
      {"scalars shuffle batch", [=] { return scalars.shuffle(100000).batch(1024); }},
      {"scalars map batch", [=] { return scalars.map(scale).batch(1024); }},
      {"files shuffle map batch prefetch",
       [=] { return images.shuffle(10000).map(augment).batch(128).prefetch(2); }},
      {"files shuffle map2 batch prefetch",
       [=] { return images.shuffle(10000).map(augment, two).batch(128).prefetch(2); }},
  };
}

double examples_per_second(const Dataset& data, double seconds) {
  data.iterate().next();
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t examples = 0;
  std::chrono::duration<double> taken{};
  for (std::uint64_t epoch = 0; taken.count() < seconds; ++epoch) {
    td::data::Iterator pass = data.iterate({.epoch = epoch});
    for (auto e = pass.next(); e && taken.count() < seconds; e = pass.next()) {
      examples += (*e)[0].dim(0);
      taken = std::chrono::steady_clock::now() - begin;
    }
  }
  return static_cast<double>(examples) / taken.count();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  td::config::set_visible_devices({}, "GPU");
  td::config::set_intra_op_parallelism_threads(options.threads);
  const auto all = pipelines(options.files);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    double seconds = 0;
    std::string name;
    words >> seconds;
    std::getline(words >> std::ws, name);
    std::printf("{\"per_s\": %.1f}\n", examples_per_second(all.at(name)(), seconds));
    std::fflush(stdout);
  }
}
