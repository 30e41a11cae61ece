#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "commands.h"
#include "core/json.h"
#include "tandem/config.h"

namespace tandem::tools {
namespace {

Json describe(const config::PhysicalDevice& device) {
  const config::DeviceDetails details = config::get_device_details(device);
  Json entry = {{"name", device.name},
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

void print_table(const Json& report) {
  std::cout << fmt::format("{:<28}{:<36}{:>12}  {}\n", "physical device", "description", "memory",
                           "notes");
  for (const Json& device : report.at("physical_devices").array()) {
    std::string notes = device.at("emulated").boolean() ? "emulated" : "";
    if (const Json* capability = device.find("compute_capability"))
      notes += "compute capability " + capability->text();
    if (const Json* platform = device.find("platform"))
      notes += "PJRT platform " + platform->text();
    std::cout << fmt::format("{:<28}{:<36}{:>8} MiB  {}\n", device.at("name").text(),
                             device.at("device_name").text(),
                             device.at("memory_bytes").integer() >> 20, notes);
  }
  std::cout << "\nlogical device\n";
  for (const Json& device : report.at("logical_devices").array())
    std::cout << device.at("name").text() << '\n';
}

void list_devices(bool as_json) {
  Json report = {{"physical_devices", Json::Array()},
                 {"logical_devices", Json::Array()},
                 {"version", TANDEM_VERSION}};
  for (const config::PhysicalDevice& device : config::list_physical_devices())
    report["physical_devices"].push_back(describe(device));
  for (const config::LogicalDevice& device : config::list_logical_devices())
    report["logical_devices"].push_back({{"name", device.name}, {"type", device.device_type}});
  if (as_json) {
    std::cout << report.dump({.indent = 2}) << '\n';
  } else {
    print_table(report);
  }
}

}  // namespace

void add_devices_command(Command program) {
  Command command = program.command("devices", "List the available devices");
  const auto as_json = std::make_shared<bool>(false);
  command.flag("--json", *as_json, "Print JSON instead of tables");
  command.runs([as_json] { list_devices(*as_json); });
}

}  // namespace tandem::tools
