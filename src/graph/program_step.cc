#include "graph/program_step.h"

#include "op/find_kernel.h"

#include <unordered_map>

#include "core/status.h"
#include "graph/collective.h"

namespace tandem {

std::vector<std::unique_ptr<ProgramStep>> make_steps(const Block& block) {
  std::vector<std::unique_ptr<ProgramStep>> steps;  // in the order of the block
  std::unordered_map<const BlockOperation*, ProgramStep*> step_of;
  for (const auto& operation : block.operations) {
    ProgramStep& step = *steps.emplace_back(std::make_unique<ProgramStep>());
    step.operation = operation.get();
    step_of[operation.get()] = &step;
    if (operation->copied_from) step.awaits = step_of.at(operation->copied_from);
    if (operation->op == &kCopy) {
      step.from = operation->inputs[0]->device;
      step.copy_bytes = operation->outputs[0]->bytes();
    } else if (operation->op == &kCollectiveWait) {
      step.started = step_of.at(operation->inputs[0]->producer);
    } else if (!operation->runs_alone()) {
      step.kernel = find_kernel(*operation->op, operation->device->backend());
      TANDEM_ASSERT(step.kernel);
    }
    step.member = operation->member.get();
  }
  return steps;
}

}  // namespace tandem
