#include "workload.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "tandem/errors.h"

namespace tandem::tools {

void add_workload_options(CLI::App& command, Workload& workload, const std::string& data_help) {
  workload.placement.command = command.get_name();
  // If an option is repeated, the last one counts, so that scripts can append options.
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("--model", workload.model, "Model: mlp, lenet or resnet20")
      ->capture_default_str();
  command.add_option("--data", workload.data, data_help)->capture_default_str();
  command
      .add_option(
          "--strategy", workload.placement.strategy,
          "Distribution strategy: default, one_device, mirrored, central_storage, tpu (with a PJRT "
          "plug-in in TANDEM_PJRT_PLUGIN), or multi_worker under tandem run")
      ->capture_default_str();
  command.add_option("--devices", workload.placement.devices,
                     "Devices to use, comma-separated, e.g. /gpu:0,/gpu:1");
  require_whole_number(*command.add_option("--batch", workload.batch,
                                           "Global batch size (default: depends on the model)"),
                       1);
  command.add_option("--optimizer", workload.optimizer,
                     "Optimizer: sgd, adam, ... (default: depends on the model)");
  command
      .add_option("--dtype", workload.dtype,
                  "Dtype policy of the layers: float32, mixed_bfloat16, mixed_float16, ...")
      ->capture_default_str();
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
