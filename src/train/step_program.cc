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

namespace {

using Results = StepProgram::Results;

std::function<Results()> ready(Results results) {
  return [results = std::move(results)]() mutable { return std::move(results); };
}

Results by_replica(std::vector<Tensor> outputs, std::size_t replicas) {
  const std::size_t each = outputs.size() / replicas;
  Results results(replicas);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    results[i / each].push_back(std::move(outputs[i]));
  return results;
}

}  // namespace

std::function<Results()> StepProgram::start(StepRunner& runner, const GlobalBatch& batch,
                                            std::string_view key, const StepRunner::Step& step) {
  if (run_eagerly_ || detail::FunctionTraces::tracing()) return ready(runner.run(batch, step));
  detail::FunctionCall call = detail::FunctionTraces::start_call();
  call.add_to_key(key);
  const distribute::BatchSplit& split = batch.split();
  call.add_to_key(static_cast<std::uint64_t>(split.total));
  call.add_to_key(static_cast<std::uint64_t>(split.leader));
  std::size_t replicas = 0;
  for (std::size_t replica = 0; replica < batch.size(); ++replica) {
    const data::Example& mine = batch[replica];
    call.add_to_key(static_cast<std::uint64_t>(mine.size()));
    call.add_to_key(static_cast<std::uint64_t>(split.offsets[replica]));
    call.add_to_key(static_cast<std::uint64_t>(split.counts[replica]));
    replicas += mine.empty() ? 0 : 1;
    for (const Tensor& component : mine) call.inputs.push_back(component);
  }
  const auto body = [&](std::vector<Tensor> symbols) {
    const detail::SymbolicAdvice advice(advice_);
    GlobalBatch symbolic = batch;
    std::size_t next = 0;
    for (std::size_t replica = 0; replica < symbolic.size(); ++replica)
      for (std::size_t i = 0; i < symbolic[replica].size(); ++i)
        symbolic[replica][i] = std::move(symbols[next++]);
    std::vector<Tensor> outputs;
    for (const std::vector<Tensor>& results : runner.run(symbolic, step))
      outputs.insert(outputs.end(), results.begin(), results.end());
    return outputs;
  };
  if (RemoteSteps* remote = runner.remote_steps()) {
    auto traced = traces_.trace(call, std::ref(body));
    return [wait = remote->start(std::move(traced), std::move(call.inputs)), replicas] {
      return by_replica(wait(), replicas);
    };
  }
  if (!traces_.run(call, std::ref(body))) {
    detail::FunctionTraces::keep(std::move(call));
    return ready(runner.run(batch, step));
  }
  Results results = by_replica(std::move(call.outputs), replicas);
  detail::FunctionTraces::keep(std::move(call));
  return ready(std::move(results));
}

}  // namespace tandem
