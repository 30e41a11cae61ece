#include "workload.h"

#include <CLI/CLI.hpp>

#include "command_line.h"

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

}  // namespace tandem::tools
