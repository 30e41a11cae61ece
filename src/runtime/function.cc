#include "tandem/function.h"

#include <map>
#include <mutex>

#include "core/status.h"
#include "graph/program.h"
#include "graph/structural_ops.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/placer.h"

namespace tandem::detail {
namespace {

// What the calling thread's surroundings add to a signature.
std::string surroundings() {
  std::string key = placement_frame ? placement_frame->name->to_string() : std::string();
  key += grad_mode ? "|g" : "|n";
  return key;
}

struct Trace {
  std::size_t number = 0;
  RefPtr<GraphImpl> graph = make_ref<GraphImpl>();
  std::vector<Node::Input> feeds;
  std::vector<Node::Input> fetches;
  std::uint64_t draws = 0;  // that one run takes from the generator
  std::map<std::string, std::unique_ptr<Program>> programs;

  void make(const std::vector<TensorSpec>& inputs, const FunctionTraces::Body& body) {
    const BuildingScope scope(graph.get());
    Generator generator({.seed = 0, .draws = 0});
    const GeneratorScope draws_from(generator);
    std::vector<Tensor> symbols;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Node& node = graph->add(kPlaceholder, SpecAttrs{inputs[i].dtype, inputs[i].shape}, {},
                              {.name = fmt::format("args_{}", i)});
      feeds.push_back({&node, 0});
      symbols.push_back(graph->tensor(node));
    }
    for (const Tensor& output : body(std::move(symbols)))
      fetches.push_back(graph->input_of(output));
    draws = generator.state().draws;
  }

  Program& program_for(const std::vector<Tensor>& inputs) {
    std::string key;
    for (const Tensor& input : inputs)
      key += fmt::format("{}@{};", input.shape().to_string(), input.device());
    auto& program = programs[key];
    if (!program) {
      LowerOptions options{.feeds = feeds, .fetches = fetches, .all_updates = true};
      for (const Tensor& input : inputs) {
        options.feed_specs.push_back(impl_of(input));
        options.feed_devices.push_back(&impl_of(input).device());
      }
      options.devices = place_graph(*graph);
      program = std::make_unique<Program>(lower(*graph, options));
    }
    return *program;
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> outputs = program_for(inputs).run(inputs);
    for (const auto& action : graph->after_run()) action();
    if (draws > 0) {
      random::GeneratorState state = Generator::current().state();
      state.draws += draws;
      Generator::current().set_state(state);
    }
    return outputs;
  }
};

}  // namespace

struct FunctionTraces::Impl {
  FunctionOptions options;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Trace>> traces;
};

FunctionTraces::FunctionTraces(FunctionOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}
FunctionTraces::~FunctionTraces() = default;

bool FunctionTraces::tracing() { return building != nullptr; }

std::size_t FunctionTraces::num_traces() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->traces.size();
}

std::vector<Tensor> FunctionTraces::call(const std::string& key, std::vector<Tensor> inputs,
                                         const Body& body, std::size_t* number) {
  const std::lock_guard lock(impl_->mutex);
  std::string signature = key + surroundings();
  std::vector<TensorSpec> specs;
  for (const Tensor& input : inputs) {
    specs.push_back(impl_of(input));
    signature += fmt::format("|{}{}", name_of(input.dtype()), input.shape().to_string());
  }
  auto found = impl_->traces.find(signature);
  if (found == impl_->traces.end()) {
    auto trace = std::make_unique<Trace>();
    trace->number = impl_->traces.size();
    trace->make(specs, body);
    found = impl_->traces.emplace(std::move(signature), std::move(trace)).first;
  }
  *number = found->second->number;
  return found->second->run(inputs);
}

}  // namespace tandem::detail
