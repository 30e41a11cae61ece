#include "workload.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "tandem/errors.h"

namespace tandem::tools {

void add_workload_options(CLI::App& command, Workload& workload, const std::string& data_help) {
  workload.placement.command = command.get_name();
  // Given twice, the last counts: scripts add to what they pass on.
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("--model", workload.model, "mlp, lenet or resnet20")->capture_default_str();
  command.add_option("--data", workload.data, data_help)->capture_default_str();
  command
      .add_option("--strategy", workload.placement.strategy,
                  "default, one_device, mirrored, or multi_worker: a rank of tandem run")
      ->capture_default_str();
  command.add_option("--devices", workload.placement.devices,
                     "Of the strategy, as in /cpu:0,/cpu:1 or /gpu:0,/gpu:1");
  require_whole_number(
      *command.add_option("--batch", workload.batch,
                          "Examples a step, over all devices; not given: the model's own"),
      1);
  command.add_option("--optimizer", workload.optimizer,
                     "sgd, adam, ...; not given: the model's own");
}

void check(const Workload& workload) { check(workload.placement); }

void require_whole_number(CLI::Option& option, std::int64_t least) {
  option.check(CLI::Validator(
      [least, name = option.get_name()](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end && value >= least) return "";
        return fmt::format("expected a whole number of at least {}, got '{}'", least, text);
      },
      "", "whole number"));
}

}  // namespace tandem::tools
