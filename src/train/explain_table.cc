// Prints an Explanation as tables.
#include <fmt/format.h>

#include <iterator>
#include <map>
#include <ostream>
#include <set>

#include "core/joined.h"
#include "tandem/explain.h"

namespace tandem {
namespace {

template <class... Args>
void add(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
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

void add_devices(std::string& text, const Explanation& explanation) {
  add(text, "{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}\n", "device", "weights",
      "optimizer", "gradients", "activations", "inputs", "constants", "total", "limit");
  for (const auto& device : explanation.devices)
    add(text, "{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}{}\n",
        short_name(device.device), size_text(device.weights), size_text(device.optimizer),
        size_text(device.gradients), size_text(device.activations), size_text(device.inputs),
        size_text(device.constants), size_text(device.total()),
        device.limit > 0 ? size_text(device.limit) : "none", device.fits() ? "" : "  DOES NOT FIT");
}

void add_variables(std::string& text, const Explanation& explanation) {
  add(text, "\n{:<44}{:<10}{:<20}{:>12}  devices\n", "variable", "dtype", "shape", "bytes");
  for (const auto& variable : explanation.variables) {
    std::vector<std::string> devices;
    for (const std::string& device : variable.devices) devices.push_back(short_name(device));
    add(text, "{:<44}{:<10}{:<20}{:>12}  {}\n", variable.name, name_of(variable.dtype),
        variable.shape.to_string(), variable.bytes, joined(devices, ", "));
  }
}

// The replicas run the same operations, so the table lists those of the first replica and those
// on other devices.
void add_operations(std::string& text, const Explanation& explanation) {
  const auto& replicas = explanation.replica_devices;
  const std::set<std::string> others(replicas.begin() + (replicas.empty() ? 0 : 1), replicas.end());
  std::map<std::string, int> per_device;
  for (const auto& operation : explanation.operations) ++per_device[short_name(operation.device)];
  add(text, "\n{:<44}{:<42}{:<10}{:>12}\n",
      explanation.num_replicas > 1 ? "operation of replica 0" : "operation", "type", "device",
      "output");
  for (const auto& operation : explanation.operations)
    if (!others.contains(operation.device))
      add(text, "{:<44}{:<42}{:<10}{:>12}\n", operation.name, operation.type,
          short_name(operation.device), size_text(operation.output_bytes));
  text += "total:";
  for (const auto& [device, count] : per_device) add(text, " {} on {}", count, device);
  text += '\n';
}

void add_collectives(std::string& text, const Explanation& explanation) {
  if (explanation.collectives.empty()) return;
  std::int64_t total = 0;
  add(text, "\n{:<14}{:>12}{:>10}  for\n", "collective", "bytes", "replicas");
  for (const auto& collective : explanation.collectives) {
    total += collective.bytes;
    add(text, "{:<14}{:>12}{:>10}  {}\n", collective.type, collective.bytes, collective.replicas,
        joined(collective.variables, ", "));
  }
  add(text, "each replica sends {} bytes per step\n", total);
}

void add_fallbacks(std::string& text, const Explanation& explanation) {
  if (explanation.fallbacks.empty()) return;
  text += "\noperations on the CPU although replicas run on GPUs\n";
  for (const auto& fallback : explanation.fallbacks)
    add(text, "{:<44}{:<42}{}\n", fallback.operation, fallback.type, fallback.reason);
}

void add_programs(std::string& text, const Explanation& explanation) {
  if (explanation.programs.empty()) return;
  add(text, "\n{:<34}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}\n", "compiled program", "replicas",
      "arguments", "outputs", "in place", "temporaries", "code", "GFLOP");
  for (const auto& program : explanation.programs)
    add(text, "{:<34}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10.3f}\n", program.name,
        program.devices.size(), size_text(program.arguments), size_text(program.outputs),
        size_text(program.aliased), size_text(program.temporaries), size_text(program.code),
        program.flops * 1e-9);
}

}  // namespace

std::string Explanation::to_string() const {
  std::string text;
  add_devices(text, *this);
  add_variables(text, *this);
  add_operations(text, *this);
  add_collectives(text, *this);
  add_fallbacks(text, *this);
  add_programs(text, *this);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Explanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace tandem
