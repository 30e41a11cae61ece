#include "tandem/function.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <ostream>
#include <unordered_map>

#include "core/log.h"
#include "core/mutex.h"
#include "core/status.h"
#include "core/thread_object.h"
#include "device/device_manager.h"
#include "function/context_key.h"
#include "function/function_trace.h"
#include "graph/program_cache.h"
#include "runtime/placement.h"
#include "tandem/config.h"

namespace tandem {
namespace {

std::atomic<bool> run_eagerly{false};

}  // namespace

void config::run_functions_eagerly(bool eagerly) {
  run_eagerly.store(eagerly, std::memory_order_relaxed);
}

bool config::functions_run_eagerly() { return run_eagerly.load(std::memory_order_relaxed); }

}  // namespace tandem

namespace tandem::detail {

void FunctionCall::add_to_key(const std::shared_ptr<ElementPass>& pass) { passes.push_back(pass); }

namespace {

// Warns, at most kMaxWarnings times, if kTooMany of the last kHistory calls were traced. As in
// TensorFlow.
constexpr int kHistory = 10, kTooMany = 5, kMaxWarnings = 2;

void add_shape(FunctionCall& call, const Shape& shape) {
  call.add_to_key(static_cast<std::uint64_t>(shape.rank()));
  for (std::int64_t size : shape.words()) call.add_to_key(static_cast<std::uint64_t>(size));
}

}  // namespace

struct FunctionTraces::Impl {
  FunctionOptions options;
  Memories memories;
  mutable Mutex mutex{"function"};
  // Several with one key differ in settings that they have read.
  std::unordered_multimap<std::string, std::shared_ptr<Trace>> traces;
  std::size_t next_number = 0;  // of traces
  ProgramCache<std::shared_ptr<TraceProgram>> programs;
  std::uint64_t calls = 0;
  std::uint32_t traced_calls = 0;  // one bit per recent call
  int warnings = 0;

  std::string_view name() const {
    return options.name.empty() ? std::string_view("function") : std::string_view(options.name);
  }

  void check_signature(const FunctionCall& call) const {
    const auto& signature = options.input_signature;
    if (call.inputs.size() != signature.size())
      fail<InvalidArgumentError>("[{}] expected {} tensors, as input_signature has, got {}", name(),
                                 signature.size(), call.inputs.size());
    for (std::size_t i = 0; i < signature.size(); ++i) {
      const Tensor& input = call.inputs[i];
      if (input.dtype() == signature[i].dtype && signature[i].shape.matches(input.shape()))
        continue;
      fail<InvalidArgumentError>(
          "[{}] tensor {} of the arguments does not suit input_signature: expected shape {} and "
          "dtype {}, got {} and {}",
          name(), i, signature[i].shape.to_string(), name_of(signature[i].dtype),
          input.shape().to_string(), name_of(input.dtype()));
    }
  }

  // Completes the key. Returns the length of the prefix that the trace depends on; the program
  // depends on the whole key, and on the trace's number.
  std::size_t complete(FunctionCall& call) const {
    const bool free_sizes = !options.input_signature.empty();
    if (free_sizes) check_signature(call);
    add_to_key(context, call);
    for (const Tensor& input : call.inputs) {
      const TensorImpl& impl = impl_of(input);
      call.add_to_key(static_cast<std::uint64_t>(impl.dtype));
      call.add_to_key(std::uint64_t{wants_gradient(input)});
      if (!free_sizes) add_shape(call, impl.shape);
    }
    const std::size_t of_trace = call.key.size();
    for (const Tensor& input : call.inputs) {
      const TensorImpl& impl = impl_of(input);
      if (free_sizes) add_shape(call, impl.shape);
      call.add_to_key(reinterpret_cast<std::uintptr_t>(&impl.device()));
    }
    return of_trace;
  }

  // Adds the elements of the run to the inputs and to the key.
  static void add_elements(FunctionCall& call, const Trace& trace) {
    const std::size_t arguments = call.inputs.size();
    trace.take_elements(call);
    for (std::size_t i = arguments; i < call.inputs.size(); ++i)
      append_to_key(call.key, call.inputs[i]);
  }

  std::shared_ptr<Trace> trace_for(const std::string& key, FunctionCall& call, const Body& body) {
    const auto [first, end] = traces.equal_range(key);
    const auto found =
        std::find_if(first, end, [](const auto& entry) { return entry.second->has_settings(); });
    if (found != end) {
      if (found->second->current()) return found->second;
      forget(std::shared_ptr(found->second));
    }
    const auto& signature = options.input_signature;
    std::vector<ArgumentSpec> inputs;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Tensor& input = call.inputs[i];
      ArgumentSpec& made = inputs.emplace_back(ArgumentSpec{impl_of(input), wants_gradient(input)});
      if (!signature.empty()) made.spec = {signature[i].dtype, signature[i].shape};
    }
    auto trace = std::make_shared<Trace>();
    trace->name = name();
    // If the first trace has created variables, trace again: they exist now. The second trace
    // throws if the callable creates new variables in each call.
    if (trace->make(inputs, call.passes, body, next_number == 0))
      trace->make(inputs, call.passes, body, false);
    trace->number = next_number++;
    trace->result = std::move(call.result);
    note_traced();
    // A function that changes a setting before it reads it keeps the last trace alone.
    const auto same = std::find_if(traces.begin(), traces.end(), [&](const auto& entry) {
      return entry.first == key && entry.second->settings() == trace->settings();
    });
    if (same != traces.end()) forget(std::shared_ptr(same->second));
    return traces.emplace(key, std::move(trace))->second;
  }

  void forget(const std::shared_ptr<Trace>& trace) {
    programs.erase_if([&](const auto& program) { return program->trace == trace; });
    std::erase_if(traces, [&](const auto& entry) { return entry.second == trace; });
  }

  void note_traced() {
    traced_calls |= 1u;
    const int traced = std::popcount(traced_calls);
    if (traced < kTooMany || warnings >= kMaxWarnings) return;
    ++warnings;
    logging::warn(
        "{} of the last {} calls of {} were traced anew. Tracing is expensive. It happens for each "
        "new dtype, shape, number or string among the arguments: pass numbers as tensors, and use "
        "input_signature with sizes of -1 for shapes that vary.",
        traced, std::min<std::uint64_t>(calls, kHistory), name());
  }

  std::shared_ptr<TraceProgram> prepare(FunctionCall& call, const Body& body) {
    const std::size_t of_trace = complete(call);
    std::unique_lock lock(mutex);
    ++calls;
    traced_calls = traced_calls << 1 & ((1u << kHistory) - 1);
    if (const auto* last = programs.last(call.key, sizeof(Trace::number));
        last && (*last)->trace->has_settings() && (*last)->trace->current())
      return *last;
    const std::shared_ptr<Trace> trace = trace_for(call.key.substr(0, of_trace), call, body);
    call.add_to_key(trace->number);
    if (!trace->elements.empty() && trace->replayed) {
      lock.unlock();  // the pipeline may call this function
      add_elements(call, *trace);
      lock.lock();
    }
    if (const auto* known = programs.find(call.key)) return *known;
    auto prepared = std::make_shared<TraceProgram>();
    prepared->trace = trace;
    if (trace->replayed) trace->prepare(*prepared, call.inputs, memories);
    // A trace goes with the last of its programs.
    const auto evicted = programs.put(call.key, prepared);
    if (evicted &&
        !programs.any_of([&](const auto& other) { return other->trace == (*evicted)->trace; }))
      forget((*evicted)->trace);
    return prepared;
  }
};

FunctionTraces::FunctionTraces(FunctionOptions options, std::shared_ptr<ProgramMemory> memory)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  if (impl_->options.jit_compile == false)
    fail<InvalidArgumentError>(
        "[{}] jit_compile = false: a traced function is always compiled; leave the option out, or "
        "call the callable itself",
        impl_->name());
  impl_->memories.forward = memory ? std::move(memory) : ProgramMemory::make();
}
FunctionTraces::~FunctionTraces() = default;

std::shared_ptr<const TracedFunction> FunctionTraces::trace(FunctionCall& call, const Body& body) {
  const std::size_t of_trace = impl_->complete(call);
  const std::lock_guard lock(impl_->mutex);
  return impl_->trace_for(call.key.substr(0, of_trace), call, body);
}

bool FunctionTraces::tracing() { return context.graph != nullptr; }

std::size_t FunctionTraces::num_traces() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->traces.size();
}

const FunctionOptions& FunctionTraces::options() const { return impl_->options; }

FunctionCall FunctionTraces::start_call() { return std::move(thread_object<FunctionCall>()); }

void FunctionTraces::keep(FunctionCall call) {
  call.key.clear();
  call.inputs.clear();
  call.outputs.clear();
  call.passes.clear();
  call.result = nullptr;
  thread_object<FunctionCall>() = std::move(call);
}

bool FunctionTraces::run(FunctionCall& call, const Body& body) {
  return run_in_order({&call, 1}, body);
}

bool FunctionTraces::run_in_order(std::span<FunctionCall> calls, const Body& body) {
  if (config::functions_run_eagerly()) return false;
  std::shared_ptr<TraceProgram> prepared;
  for (FunctionCall& call : calls) {
    auto own = impl_->prepare(call, body);
    TANDEM_ASSERT(!prepared || own == prepared);
    prepared = std::move(own);
    call.result = prepared->trace->result;
  }
  if (!prepared->programs) return false;
  log_call(prepared->trace->name, prepared->trace->number);
  if (calls.size() == 1)
    prepared->trace->run(*prepared, calls[0]);
  else
    prepared->trace->run_in_order(*prepared, calls);
  return true;
}

Signature signature_of(const TracedCall& call, std::vector<InputSpec> inputs) {
  Signature signature{.name = call.function->name, .inputs = std::move(inputs), .outputs = {}};
  for (const Node::Input& fetch : call.function->fetches) {
    const TensorType& output = fetch.node->outputs[static_cast<std::size_t>(fetch.output)];
    InputSpec& spec = signature.outputs.emplace_back(InputSpec{output.shape, output.dtype});
    if (!spec.shape.known()) continue;
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      if (spec.shape.word(axis) < 0) spec.shape.set(axis, -1);
  }
  return signature;
}

std::ostream& operator<<(std::ostream& out, const Signature& signature) {
  const auto print = [&](const std::vector<InputSpec>& specs) {
    out << '(';
    for (std::size_t i = 0; i < specs.size(); ++i)
      out << (i > 0 ? ", " : "") << specs[i].dtype << ' ' << specs[i].shape;
    out << ')';
  };
  out << signature.name;
  print(signature.inputs);
  out << " -> ";
  print(signature.outputs);
  return out;
}

std::vector<Tensor> tensors_like(const std::vector<InputSpec>& specs, std::size_t count) {
  if (specs.size() != count)
    fail<InvalidArgumentError>("[Function] the function takes {} tensors, input_signature has {}",
                               count, specs.size());
  std::vector<Tensor> tensors;
  for (const InputSpec& spec : specs) {
    Shape shape = spec.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape.word(axis) < 0) shape.set(axis, 1);
    tensors.push_back(make_tensor(DeviceManager::get().host(), shape, spec.dtype));
  }
  return tensors;
}

}  // namespace tandem::detail
