#include "train/step_program.h"

#include "core/status.h"
#include "tensor/symbolic_advice.h"

namespace tandem {

StepProgram::StepProgram(std::string what, bool run_eagerly, std::shared_ptr<ProgramMemory> memory)
    : advice_(fmt::format(
          "{}() traces its step. To run it operation by operation instead: compile({{..., "
          ".run_eagerly = true}})",
          what)),
      run_eagerly_(run_eagerly),
      traces_({.name = what, .input_signature = {}}, std::move(memory)) {}

std::vector<std::vector<Tensor>> StepProgram::run(ReplicaRunner& runner, const BatchParts& parts,
                                                  std::string_view key,
                                                  const ReplicaRunner::Step& step) {
  if (run_eagerly_ || detail::FunctionTraces::tracing()) return runner.run(parts, step);
  detail::FunctionCall call = detail::FunctionTraces::start_call();
  call.add_to_key(key);
  call.add_to_key(static_cast<std::uint64_t>(parts.total));
  call.add_to_key(static_cast<std::uint64_t>(parts.leader));
  std::size_t replicas = 0;
  for (std::size_t replica = 0; replica < parts.examples.size(); ++replica) {
    const data::Example& mine = parts.examples[replica];
    call.add_to_key(static_cast<std::uint64_t>(mine.size()));
    call.add_to_key(static_cast<std::uint64_t>(parts.offsets[replica]));
    call.add_to_key(static_cast<std::uint64_t>(parts.counts[replica]));
    replicas += mine.empty() ? 0 : 1;
    for (const Tensor& component : mine) call.inputs.push_back(component);
  }
  const auto body = [&](std::vector<Tensor> symbols) {
    const detail::SymbolicAdvice advice(advice_);
    BatchParts symbolic = parts;
    std::size_t next = 0;
    for (data::Example& mine : symbolic.examples)
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::move(symbols[next++]);
    std::vector<Tensor> outputs;
    for (const std::vector<Tensor>& results : runner.run(symbolic, step))
      outputs.insert(outputs.end(), results.begin(), results.end());
    return outputs;
  };
  if (!traces_.run(call, std::ref(body))) {
    detail::FunctionTraces::keep(std::move(call));
    return runner.run(parts, step);
  }
  const std::size_t each = call.outputs.size() / replicas;
  std::vector<std::vector<Tensor>> results(replicas);
  for (std::size_t i = 0; i < call.outputs.size(); ++i)
    results[i / each].push_back(std::move(call.outputs[i]));
  detail::FunctionTraces::keep(std::move(call));
  return results;
}

}  // namespace tandem
