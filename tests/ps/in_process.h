// Runs a function as a coordinator, a worker and servers would, in one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "device/device_manager.h"
#include "ps/parameter_store.h"
#include "ps/part_program.h"
#include "runtime/generator.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps::testing {

// A variable as a worker read it before a run.
class PulledVariable final : public Resource {
 public:
  PulledVariable(VariableId id, const TensorSpec& spec) : id(id), spec_(spec) {}
  const void* identity() const override { return this; }
  const std::string& name() const override { return name_; }
  Device& device() const override { return DeviceManager::get().host(); }
  const TensorSpec& spec() const override { return spec_; }
  Tensor value() override { return pulled; }
  Tensor writable() override { fail<InternalError>("a worker wrote a variable"); }

  const VariableId id;
  Tensor pulled;

 private:
  TensorSpec spec_;
  std::string name_ = "pulled";
};

// The trace of a callable for these arguments.
template <class F>
std::shared_ptr<const TracedFunction> trace(F callable, const std::vector<Tensor>& arguments,
                                            std::string name = "step") {
  detail::FunctionTraces traces({.name = std::move(name)});
  detail::FunctionCall call;
  call.inputs = arguments;
  return traces.trace(
      call, [&](std::vector<Tensor> inputs) -> std::vector<Tensor> { return callable(inputs); });
}

class InProcess {
 public:
  explicit InProcess(std::shared_ptr<const TracedFunction> traced) : traced_(std::move(traced)) {
    // The variables move to the store with their present elements.
    function_ = split(*traced_, [this](const Resource& variable) {
      const auto [at, added] = ids_.try_emplace(variable.identity(), ids_.size());
      if (added) store.create(at->second, variable.name(), const_cast<Resource&>(variable).value());
      names_.emplace(variable.name(), at->second);
      return at->second;
    });
    worker_ = std::make_unique<PartProgram>(
        function_.message.worker(), [this](VariableId id, const TensorSpec& spec) {
          return RefPtr<Resource>(pulled_.emplace_back(make_ref<PulledVariable>(id, spec)));
        });
    for (int i = 0; i < function_.message.updates_size(); ++i)
      store.add_update(0, static_cast<std::uint32_t>(i), function_.message.updates(i).part());
  }

  // Runs closure `closure`, `times` times. Returns the results.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, std::uint64_t closure, int times = 1) {
    std::vector<proto::RunAttributes> of_worker, of_updates;
    for (const Node* node : function_.worker_attributes)
      of_worker.push_back(attributes_of_run(*node));
    for (const Node* node : function_.update_attributes)
      of_updates.push_back(node ? attributes_of_run(*node) : proto::RunAttributes());
    for (const auto& action : traced_->graph->after_run()) action();
    std::vector<Tensor> outputs;
    for (int time = 0; time < times; ++time) {
      for (const auto& variable : pulled_) variable->pulled = store.read(variable->id).value;
      Generator generator({.seed = 7, .offset = closure << 32});
      const GeneratorScope scope(generator);
      worker_->run(inputs, of_worker, outputs);
      for (int i = 0; i < function_.message.updates_size(); ++i)
        apply(i, closure, outputs, of_updates[static_cast<std::size_t>(i)]);
    }
    outputs.resize(function_.message.results());
    return outputs;
  }

  Tensor variable(const std::string& name) { return store.read(names_.at(name)).value; }
  const proto::Function& message() const { return function_.message; }

  ParameterStore store;
  int repeated = 0;

 private:
  void apply(int i, std::uint64_t closure, const std::vector<Tensor>& outputs,
             const proto::RunAttributes& attributes) {
    const proto::Update& update = function_.message.updates(i);
    std::vector<Tensor> values;
    for (const std::uint32_t fetch : update.inputs()) values.push_back(outputs[fetch]);
    const bool has = update.part().attributes_size() > 0;
    repeated += store
                    .apply(0, static_cast<std::uint32_t>(i), closure, values,
                           {&attributes, has ? std::size_t{1} : 0})
                    .repeated;
  }

  std::shared_ptr<const TracedFunction> traced_;
  std::map<const void*, VariableId> ids_;
  std::map<std::string, VariableId> names_;
  SplitFunction function_;
  std::vector<RefPtr<PulledVariable>> pulled_;
  std::unique_ptr<PartProgram> worker_;
};

}  // namespace tandem::ps::testing
