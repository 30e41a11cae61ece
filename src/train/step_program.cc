#include "train/step_program.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/status.h"
#include "tensor/symbolic_advice.h"
#include "tensor/tensor_impl.h"

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
using Waits = std::vector<std::function<Results()>>;

std::function<Results()> ready(Results results) {
  return [results = std::move(results)]() mutable { return std::move(results); };
}

// Replicas without examples have no results.
std::size_t active_replicas(const GlobalBatch& batch) {
  std::size_t active = 0;
  for (std::size_t replica = 0; replica < batch.size(); ++replica)
    active += batch[replica].empty() ? 0 : 1;
  return active;
}

Results by_replica(std::vector<Tensor> outputs, std::size_t replicas) {
  const std::size_t each = outputs.size() / replicas;
  Results results(replicas);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    results[i / each].push_back(std::move(outputs[i]));
  return results;
}

detail::FunctionCall call_for(const GlobalBatch& batch, std::string_view key) {
  detail::FunctionCall call = detail::FunctionTraces::start_call();
  call.add_to_key(key);
  const distribute::BatchSplit& split = batch.split();
  call.add_to_key(static_cast<std::uint64_t>(split.total));
  call.add_to_key(static_cast<std::uint64_t>(split.leader));
  for (std::size_t replica = 0; replica < batch.size(); ++replica) {
    const data::Example& mine = batch[replica];
    call.add_to_key(static_cast<std::uint64_t>(mine.size()));
    call.add_to_key(static_cast<std::uint64_t>(split.offsets[replica]));
    call.add_to_key(static_cast<std::uint64_t>(split.counts[replica]));
    for (const Tensor& component : mine) call.inputs.push_back(component);
  }
  return call;
}

bool same_signature(const detail::FunctionCall& a, const detail::FunctionCall& b) {
  return a.key == b.key && std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(),
                                      b.inputs.end(), [](const Tensor& x, const Tensor& y) {
                                        return x.dtype() == y.dtype() && x.shape() == y.shape() &&
                                               &impl_of(x).device() == &impl_of(y).device();
                                      });
}

}  // namespace

Waits StepProgram::start(StepRunner& runner, std::span<const GlobalBatch> batches,
                         std::string_view key, const StepRunner::Step& step) {
  Waits waits;
  if (run_eagerly_ || detail::FunctionTraces::tracing()) {
    for (const GlobalBatch& batch : batches) waits.push_back(ready(runner.run(batch, step)));
    return waits;
  }
  std::vector<detail::FunctionCall> calls;
  for (const GlobalBatch& batch : batches) calls.push_back(call_for(batch, key));
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
    for (end = begin + 1; end < calls.size(); ++end)
      if (!same_signature(calls[begin], calls[end])) break;
    Waits started = start(runner, batches.subspan(begin, end - begin),
                          std::span(calls).subspan(begin, end - begin), step);
    std::move(started.begin(), started.end(), std::back_inserter(waits));
  }
  for (detail::FunctionCall& call : calls) detail::FunctionTraces::keep(std::move(call));
  return waits;
}

Waits StepProgram::start(StepRunner& runner, std::span<const GlobalBatch> batches,
                         std::span<detail::FunctionCall> calls, const StepRunner::Step& step) {
  const std::size_t replicas = active_replicas(batches[0]);
  const auto body = [&](std::vector<Tensor> symbols) {
    const detail::SymbolicAdvice advice(advice_);
    GlobalBatch symbolic = batches[0];
    std::size_t next = 0;
    for (std::size_t replica = 0; replica < symbolic.size(); ++replica)
      for (std::size_t i = 0; i < symbolic[replica].size(); ++i)
        symbolic[replica][i] = std::move(symbols[next++]);
    std::vector<Tensor> outputs;
    for (const std::vector<Tensor>& results : runner.run(symbolic, step))
      outputs.insert(outputs.end(), results.begin(), results.end());
    return outputs;
  };
  Waits waits;
  if (RemoteSteps* remote = runner.remote_steps()) {
    for (detail::FunctionCall& call : calls) {
      auto traced = traces_.trace(call, std::ref(body));
      waits.push_back([wait = remote->start(std::move(traced), std::move(call.inputs)), replicas] {
        return by_replica(wait(), replicas);
      });
    }
    return waits;
  }
  if (traces_.run_in_order(calls, std::ref(body)))
    for (detail::FunctionCall& call : calls)
      waits.push_back(ready(by_replica(std::move(call.outputs), replicas)));
  else
    for (const GlobalBatch& batch : batches) waits.push_back(ready(runner.run(batch, step)));
  return waits;
}

}  // namespace tandem
