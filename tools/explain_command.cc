#include "tandem/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "commands.h"
#include "models.h"
#include "pictures.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "workload.h"

namespace tandem::tools {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kSteps = 1000;  // of a training whose length nothing here depends on

struct ExplainOptions {
  Workload workload;
  bool as_json = false;
};

json sizes_of(const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); }

json as_json(const Explanation& explanation, const Workload& workload) {
  json report = {{"model", workload.model},     {"strategy", workload.placement.strategy},
                 {"batch", explanation.batch},  {"replicas", explanation.replica_devices},
                 {"devices", json::array()},    {"variables", json::array()},
                 {"operations", json::array()}, {"collectives", json::array()},
                 {"fallbacks", json::array()}};
  for (const auto& device : explanation.devices)
    report["devices"].push_back({{"device", device.device},
                                 {"limit", device.limit},
                                 {"weights", device.weights},
                                 {"optimizer", device.optimizer},
                                 {"gradients", device.gradients},
                                 {"activations", device.activations},
                                 {"inputs", device.inputs},
                                 {"constants", device.constants},
                                 {"total", device.total()},
                                 {"fits", device.fits()}});
  for (const auto& variable : explanation.variables)
    report["variables"].push_back({{"name", variable.name},
                                   {"dtype", name_of(variable.dtype)},
                                   {"shape", sizes_of(variable.shape)},
                                   {"optimizer", variable.optimizer},
                                   {"bytes", variable.bytes},
                                   {"devices", variable.devices}});
  for (const auto& operation : explanation.operations) {
    json shapes = json::array();
    for (const Shape& shape : operation.outputs) shapes.push_back(sizes_of(shape));
    report["operations"].push_back({{"name", operation.name},
                                    {"type", operation.type},
                                    {"device", operation.device},
                                    {"outputs", std::move(shapes)},
                                    {"output_bytes", operation.output_bytes}});
  }
  for (const auto& collective : explanation.collectives)
    report["collectives"].push_back({{"type", collective.type},
                                     {"bytes", collective.bytes},
                                     {"replicas", collective.replicas},
                                     {"variables", collective.variables}});
  for (const auto& fallback : explanation.fallbacks)
    report["fallbacks"].push_back({{"operation", fallback.operation},
                                   {"type", fallback.type},
                                   {"device", fallback.device},
                                   {"reason", fallback.reason}});
  return report;
}

// "GPU:0" of "/job:localhost/replica:0/task:0/device:GPU:0".
std::string short_name(const std::string& device) {
  const std::size_t at = device.rfind("device:");
  return at == std::string::npos ? device : device.substr(at + 7);
}

std::string size_text(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

void print_devices(const Explanation& explanation) {
  std::cout << fmt::format("{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}\n", "device",
                           "weights", "optimizer", "gradients", "activations", "inputs",
                           "constants", "total", "limit");
  for (const auto& device : explanation.devices)
    std::cout << fmt::format(
        "{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}{}\n", short_name(device.device),
        size_text(device.weights), size_text(device.optimizer), size_text(device.gradients),
        size_text(device.activations), size_text(device.inputs), size_text(device.constants),
        size_text(device.total()), device.limit > 0 ? size_text(device.limit) : "none",
        device.fits() ? "" : "  DOES NOT FIT");
}

void print_variables(const Explanation& explanation) {
  std::cout << fmt::format("\n{:<44}{:<10}{:<20}{:>12}  devices\n", "variable", "dtype", "shape",
                           "bytes");
  for (const auto& variable : explanation.variables) {
    std::vector<std::string> devices;
    for (const std::string& device : variable.devices) devices.push_back(short_name(device));
    std::cout << fmt::format("{:<44}{:<10}{:<20}{:>12}  {}\n", variable.name,
                             name_of(variable.dtype), variable.shape.to_string(), variable.bytes,
                             fmt::join(devices, ", "));
  }
}

// The replicas run the same operations: the first one's, and those on no replica's device, are
// enough for a table.
void print_operations(const Explanation& explanation) {
  const std::set<std::string> others(explanation.replica_devices.begin() + 1,
                                     explanation.replica_devices.end());
  std::map<std::string, int> per_device;
  for (const auto& operation : explanation.operations) ++per_device[short_name(operation.device)];
  std::cout << fmt::format("\n{:<44}{:<42}{:<10}{:>12}\n",
                           explanation.num_replicas > 1 ? "operation of replica 0" : "operation",
                           "type", "device", "output");
  for (const auto& operation : explanation.operations)
    if (!others.contains(operation.device))
      std::cout << fmt::format("{:<44}{:<42}{:<10}{:>12}\n", operation.name, operation.type,
                               short_name(operation.device), size_text(operation.output_bytes));
  std::cout << "in all:";
  for (const auto& [device, count] : per_device)
    std::cout << fmt::format(" {} on {}", count, device);
  std::cout << '\n';
}

void print_collectives(const Explanation& explanation) {
  if (explanation.collectives.empty()) return;
  std::int64_t total = 0;
  std::cout << fmt::format("\n{:<14}{:>12}{:>10}  for\n", "collective", "bytes", "replicas");
  for (const auto& collective : explanation.collectives) {
    total += collective.bytes;
    std::cout << fmt::format("{:<14}{:>12}{:>10}  {}\n", collective.type, collective.bytes,
                             collective.replicas, fmt::join(collective.variables, ", "));
  }
  std::cout << fmt::format("each replica gives {} bytes a step\n", total);
}

void print_fallbacks(const Explanation& explanation) {
  if (explanation.fallbacks.empty()) return;
  std::cout << "\non the CPU, though replicas have GPUs\n";
  for (const auto& fallback : explanation.fallbacks)
    std::cout << fmt::format("{:<44}{:<42}{}\n", fallback.operation, fallback.type,
                             fallback.reason);
}

// On the host, where data comes from.
data::Example batch_of(const Shape& picture, std::int64_t examples) {
  const DeviceScope host("/cpu:0");
  return {zeros(picture.with_leading(examples)), zeros({examples}, {.dtype = int64})};
}

void explain_training(const ExplainOptions& options) {
  const Workload& workload = options.workload;
  check(workload);
  const Recipe recipe = recipe_of(workload.model);
  const std::int64_t batch = workload.batch.value_or(recipe.batch);
  const PictureShape data = picture_shape(workload.data, "explain");
  const distribute::Strategy strategy = make_strategy(workload.placement);
  Model model;
  {
    const auto scope = strategy.scope();
    model = make_model(workload.model, data.picture, data.classes);
    model.compile({.optimizer = make_optimizer(recipe, workload.optimizer, std::nullopt, kSteps),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  const Explanation explanation = explain(model, batch_of(data.picture, batch));
  if (options.as_json) {
    std::cout << as_json(explanation, workload).dump(2) << '\n';
    return;
  }
  print_devices(explanation);
  print_variables(explanation);
  print_operations(explanation);
  print_collectives(explanation);
  print_fallbacks(explanation);
}

}  // namespace

void add_explain_command(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand(
      "explain", "Tell where a model's training will run and what it will take, without training");
  add_workload_options(*command, options->workload, "synthetic, mnist or cifar10; nothing is read");
  command->add_flag("--json", options->as_json, "Print JSON instead of a table");
  command->callback([options] { explain_training(*options); });
}

}  // namespace tandem::tools
