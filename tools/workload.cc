#include "workload.h"

namespace tandem::tools {

void add_workload_options(Command command, Workload& workload, const std::string& data_help) {
  workload.placement.command = command.name();
  command.takes_last_value();  // so that scripts can append options
  command.option("--model", workload.model, "Model: mlp, lenet or resnet20");
  command.option("--data", workload.data, data_help);
  command.option("--strategy", workload.placement.strategy,
                 "Distribution strategy: default, one_device, mirrored, central_storage, tpu (with "
                 "a PJRT plug-in in TANDEM_PJRT_PLUGIN), or multi_worker under tandem run");
  command.option("--devices", workload.placement.devices,
                 "Devices to use, comma-separated, e.g. /gpu:0,/gpu:1");
  command.option("--batch", workload.batch, "Global batch size (default: depends on the model)")
      .at_least(1);
  command.option("--optimizer", workload.optimizer,
                 "Optimizer: sgd, adam, ... (default: depends on the model)");
  command.option("--dtype", workload.dtype,
                 "Dtype policy of the layers: float32, mixed_bfloat16, mixed_float16, ...");
}

void check(const Workload& workload) { check(workload.placement); }

}  // namespace tandem::tools
