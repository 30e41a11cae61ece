#include <iostream>
#include <memory>

#include "commands.h"
#include "core/json.h"
#include "training_step.h"
#include "workload.h"

namespace tandem::tools {
namespace {

struct ExplainOptions {
  Workload workload;
  bool as_json = false;
};

Json sizes_of(const Shape& shape) {
  return Json::Array(shape.words().begin(), shape.words().end());
}

Json as_json(const Explanation& explanation, const Workload& workload) {
  Json report = {{"model", workload.model},     {"strategy", workload.placement.strategy},
                 {"batch", explanation.batch},  {"replicas", explanation.replica_devices},
                 {"devices", Json::Array()},    {"variables", Json::Array()},
                 {"operations", Json::Array()}, {"collectives", Json::Array()},
                 {"fallbacks", Json::Array()}};
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
    Json::Array shapes;
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

void explain_training(const ExplainOptions& options) {
  const Workload& workload = options.workload;
  check(workload);
  const Explanation explanation = explain_step(workload, "explain");
  if (options.as_json) {
    std::cout << as_json(explanation, workload).dump({.indent = 2}) << '\n';
    return;
  }
  std::cout << explanation;
}

}  // namespace

void add_explain_command(Command program) {
  const auto options = std::make_shared<ExplainOptions>();
  Command command = program.command(
      "explain", "Show placement, memory and communication of a training step without running it");
  add_workload_options(command, options->workload,
                       "Dataset: synthetic, mnist or cifar10 (no files are read)");
  command.flag("--json", options->as_json, "Print JSON instead of tables");
  command.runs([options] { explain_training(*options); });
}

}  // namespace tandem::tools
