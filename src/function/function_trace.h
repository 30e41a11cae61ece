// A trace of a function, and its programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/mutex.h"
#include "function/trace_gradient.h"
#include "function/traced_function.h"
#include "graph/program_pool.h"
#include "tandem/function.h"

namespace tandem {
class VariableImpl;
struct TraceFrame;
}  // namespace tandem

namespace tandem::detail {

// Whether the tensor is tracked and may have a gradient.
bool wants_gradient(const Tensor& tensor);

struct ArgumentSpec {
  TensorType spec;
  bool tracked = false;
};

struct TraceProgram;

// The memory of a function's programs, and of their backward programs, which run between them.
struct Memories {
  std::shared_ptr<ProgramMemory> forward, backward = ProgramMemory::make();
};

struct Trace : TracedFunction {
  std::size_t number = 0;                   // index of the trace in the function
  std::shared_ptr<TraceGradient> gradient;  // null if runs are not recorded
  bool replayed = true;                     // false if calls run the callable eagerly

  // Returns whether the callable created variables.
  bool make(const std::vector<ArgumentSpec>& inputs,
            std::span<const std::shared_ptr<ElementPass>> passes, const FunctionTraces::Body& body,
            bool may_make_variables);
  // Whether the settings that the callable has read have the same values as then.
  bool has_settings() const;
  const Settings& settings() const { return settings_; }
  // Whether the trace is still valid: no captured tensor has become tracked since, and the same
  // variables are frozen. Only tapes track variables that are not trainable.
  bool current();
  // Takes the elements of a run and adds them to the inputs of the call.
  void take_elements(FunctionCall& call) const;
  void prepare(TraceProgram& prepared, const std::vector<Tensor>& inputs,
               const Memories& memories) const;
  // Runs at the same time as other calls if the program and the trace allow it.
  void run(TraceProgram& prepared, FunctionCall& call);
  // Runs calls for which the same program was prepared.
  void run_in_order(TraceProgram& prepared, std::span<FunctionCall> calls);

 private:
  bool note_captured(const GraphImpl& nodes);
  void note_frozen(const GraphImpl& nodes, const TraceFrame& frame);
  // `sizes`: set to those of the graph.
  std::unique_ptr<Program> make_program(const std::vector<Tensor>& inputs, KnownSizes& sizes,
                                        std::shared_ptr<ProgramMemory> memory) const;
  // Holds `running_`, unless runs of the program may happen at the same time.
  std::unique_lock<Mutex> turn(const TraceProgram& prepared);
  // An instance of the program for inputs of these sizes.
  ProgramPool::Lease take(TraceProgram& prepared, const std::vector<Tensor>& inputs) const;
  void end_run() const;

  std::vector<const Node*> untracked_;  // captured tensors without a gradient
  Settings settings_;
  std::unordered_map<const VariableImpl*, bool> frozen_;  // whether variables were, at the start
  std::uint64_t freezes_ = 0;  // VariableImpl::freezes() when frozen_ was compared
  Mutex running_{"function"};  // one run at a time of programs that change something
};

// The program of a trace for inputs of certain sizes on certain devices.
struct TraceProgram {
  std::shared_ptr<Trace> trace;
  std::unique_ptr<ProgramPool> programs;      // null if calls run the callable
  std::shared_ptr<ProgramMemory> memory{};    // of the programs
  std::shared_ptr<ProgramGradient> gradient;  // null if runs are not recorded
};

}  // namespace tandem::detail
