#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "tandem/config.h"

namespace tandem::tools {
namespace {

using json = nlohmann::ordered_json;

json describe(const config::PhysicalDevice& device) {
  const config::DeviceDetails details = config::get_device_details(device);
  json entry = {{"name", device.name},
                {"type", device.device_type},
                {"device_name", details.device_name},
                {"memory_bytes", details.memory_bytes},
                {"emulated", details.emulated}};
  if (details.compute_capability)
    entry["compute_capability"] =
        fmt::format("{}.{}", details.compute_capability->first, details.compute_capability->second);
  if (details.pci_bus_id) entry["pci_bus_id"] = *details.pci_bus_id;
  if (!details.platform.empty()) entry["platform"] = details.platform;
  return entry;
}

void print_table(const json& report) {
  std::cout << fmt::format("{:<28}{:<36}{:>12}  {}\n", "physical device", "description", "memory",
                           "notes");
  for (const json& device : report["physical_devices"]) {
    std::string notes = device["emulated"].get<bool>() ? "emulated" : "";
    if (device.contains("compute_capability"))
      notes += "compute capability " + device["compute_capability"].get<std::string>();
    if (device.contains("platform"))
      notes += "PJRT platform " + device["platform"].get<std::string>();
    std::cout << fmt::format("{:<28}{:<36}{:>8} MiB  {}\n", device["name"].get<std::string>(),
                             device["device_name"].get<std::string>(),
                             device["memory_bytes"].get<std::int64_t>() >> 20, notes);
  }
  std::cout << "\nlogical device\n";
  for (const json& device : report["logical_devices"])
    std::cout << device["name"].get<std::string>() << '\n';
}

void list_devices(bool as_json) {
  json report = {{"physical_devices", json::array()},
                 {"logical_devices", json::array()},
                 {"version", TANDEM_VERSION}};
  for (const config::PhysicalDevice& device : config::list_physical_devices())
    report["physical_devices"].push_back(describe(device));
  for (const config::LogicalDevice& device : config::list_logical_devices())
    report["logical_devices"].push_back({{"name", device.name}, {"type", device.device_type}});
  if (as_json) {
    std::cout << report.dump(2) << '\n';
  } else {
    print_table(report);
  }
}

}  // namespace

void add_devices_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the available devices");
  const auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON instead of tables");
  command->callback([as_json] { list_devices(*as_json); });
}

}  // namespace tandem::tools
