// Trains a model on real data in one precision, and prints a JSON line with its accuracy (the
// validation loss of the transformer) on the test data. scripts/bench --parts accuracy compares the
// precisions.
//   --model lenet --data mnist:DIRECTORY     --model resnet20 --data cifar10:DIRECTORY
//   --model transformer --data FILE          a text, cut into characters
//   --precision NAME    a dtype policy, or O1 or O2 of amp::initialize
//   --dtype NAME        of O1 and O2: bfloat16 or float16
//   --strategy NAME     as of `tandem train`
//   --epochs N --seed N
#include <tandem/tandem.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.h"
#include "images.h"
#include "models.h"
#include "strategies.h"

namespace {

namespace td = tandem;

struct Options {
  std::string model = "lenet", data, precision = "float32", strategy = "default";
  td::DType dtype = td::bfloat16;
  std::int64_t epochs = 1;
  std::uint64_t seed = 1;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--model") options.model = value;
    if (key == "--data") options.data = value;
    if (key == "--precision") options.precision = value;
    if (key == "--dtype") options.dtype = value == "float16" ? td::float16 : td::bfloat16;
    if (key == "--strategy") options.strategy = value;
    if (key == "--epochs") options.epochs = std::stol(value);
    if (key == "--seed") options.seed = std::stoull(value);
  }
  return options;
}

// A model and its data, on which precisions are compared.
struct Task {
  td::Model model;
  td::optimizers::Optimizer optimizer;
  td::data::Dataset train, test;
};

Task image_task(const Options& options) {
  const td::tools::Recipe recipe = td::tools::recipe_for(options.model);
  const td::datasets::TrainTest images =
      td::tools::load_images(options.data, std::nullopt, options.seed);
  const std::int64_t steps = (images.train.size() + recipe.batch - 1) / recipe.batch;
  return {
      td::tools::make_model(options.model, images.train.images.shape().without_leading(1),
                            images.train.classes),
      td::tools::make_optimizer(recipe, "", std::nullopt, steps * options.epochs),
      td::tools::training_batches(
          images.train, {.batch = recipe.batch, .seed = options.seed, .augment = recipe.augment}),
      td::tools::test_batches(images.test, 256)};
}

// Sequences of 128 characters and the same sequences shifted by one. The last tenth of the file is
// the test data.
Task text_task(const Options& options) {
  std::ifstream file(options.data, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw std::invalid_argument("no text in " + options.data);
  std::map<char, std::int32_t> codes;
  for (const char c : text) codes.emplace(c, 0);
  std::int32_t next = 0;
  for (auto& [character, code] : codes) code = next++;
  constexpr std::int64_t kLength = 128;
  const auto sequences = [&](std::size_t begin, std::size_t end) {
    std::vector<std::int32_t> inputs, targets;
    for (std::size_t i = begin; i + kLength < end; i += kLength)
      for (std::size_t k = i; k < i + kLength; ++k) {
        inputs.push_back(codes.at(text[k]));
        targets.push_back(codes.at(text[k + 1]));
      }
    const td::Shape shape = {static_cast<std::int64_t>(inputs.size()) / kLength, kLength};
    return td::data::Example{td::reshape(td::constant(inputs), shape),
                             td::reshape(td::constant(targets), shape)};
  };
  const std::size_t split = text.size() / 10 * 9;
  const td::data::Example train = sequences(0, split), test = sequences(split, text.size());
  const std::int64_t steps = (train[0].dim(0) + 15) / 16 * options.epochs;
  return {bench::transformer({4, 256, 4, kLength, next}),
          td::optimizers::Adam(td::optimizers::schedules::cosine_decay(
              0.0, steps, {.warmup_target = 1e-3, .warmup_steps = steps / 20})),
          td::data::Dataset::from_tensor_slices(train)
              .shuffle(train[0].dim(0), {.seed = options.seed})
              .batch(16),
          td::data::Dataset::from_tensor_slices(test).batch(16)};
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  td::random::set_seed(options.seed);
  const bool by_level = options.precision[0] == 'O';
  const bool text = options.model == "transformer";
  const td::distribute::Strategy strategy =
      td::tools::make_strategy({.command = "accuracy", .strategy = options.strategy});
  const auto scope = strategy.scope();
  Task task = text ? text_task(options) : image_task(options);
  if (by_level)
    td::amp::initialize(task.model, task.optimizer,
                        {.opt_level = options.precision, .dtype = options.dtype});
  task.model.compile({.optimizer = task.optimizer,
                      .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                      .metrics = {"accuracy"},
                      .dtype = by_level ? td::DTypePolicy() : td::DTypePolicy(options.precision)});
  task.model.fit(task.train, {.epochs = options.epochs, .verbose = 0});
  const auto result = task.model.evaluate(task.test, {.verbose = 0});
  std::printf(
      "{\"model\": \"%s\", \"precision\": \"%s\", \"strategy\": \"%s\", \"loss\": %.5f, "
      "\"accuracy\": %.4f}\n",
      options.model.c_str(), options.precision.c_str(), options.strategy.c_str(), result.at("loss"),
      result.at("accuracy"));
}
