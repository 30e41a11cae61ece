// The implementation of Variable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "graph/node.h"
#include "runtime/strategy_mark.h"
#include "runtime/variable_storage.h"
#include "runtime/worker_collectives.h"
#include "tandem/variable.h"

namespace tandem {

class VariableImpl final : public RefCounted {
 public:
  // `workers`: the other processes that have copies of the variable. `strategy`: the strategy whose
  // replicas are the readers.
  VariableImpl(std::unique_ptr<VariableStorage> storage, const TensorType& spec,
               VariableOptions options, std::shared_ptr<WorkerCollectives> workers = nullptr,
               std::shared_ptr<const StrategyMark> strategy = nullptr);
  // Copies `initial_value` to each of `devices`, in the order of the replicas. `tag`: the tag that
  // the memory is accounted under.
  VariableImpl(const Tensor& initial_value, std::span<DeviceImpl* const> devices,
               VariableOptions options, MemoryTag tag = MemoryTag::kWeights,
               std::shared_ptr<WorkerCollectives> workers = nullptr,
               std::shared_ptr<const StrategyMark> strategy = nullptr);
  // A variable of the graph that the thread builds. Each session has its own elements.
  // `initial_value`: symbolic or concrete. REQUIRES: context.graph->for_sessions.
  VariableImpl(const Tensor& initial_value, VariableOptions options);

  const VariableOptions& options() const { return options_; }
  // REQUIRES: nothing refers to the variable by its name yet.
  void rename(std::string name) { options_.name = std::move(name); }
  const TensorType& spec() const { return spec_; }
  // Whether training updates it now.
  bool trainable() const { return options_.trainable && !frozen_; }
  bool frozen() const { return frozen_; }
  // A frozen variable has no gradients. REQUIRES: no replica uses it meanwhile.
  void set_frozen(bool frozen);
  // The number of changes of frozen() of all variables.
  static std::uint64_t freezes();
  // Whether the elements belong to sessions.
  bool of_graph() const { return of_graph_; }
  bool distributed() const { return distributed_; }
  // Whether it is a weight of a layer, which reads it in the dtype of its policy.
  bool of_layer() const { return of_layer_; }
  void set_of_layer() { of_layer_ = true; }
  // Null if no other process has copies.
  const std::shared_ptr<WorkerCollectives>& workers() const { return workers_; }
  // Null unless distributed(). A variable with a single reader may be used under every strategy.
  const std::shared_ptr<const StrategyMark>& strategy() const { return strategy_; }
  // Its functions act eagerly, even if the thread builds a graph.
  VariableStorage& storage() const { return *storage_; }
  // The readers of all processes.
  std::size_t num_copies() const {
    return workers_ ? static_cast<std::size_t>(workers_->num_replicas()) : storage_->num_readers();
  }
  // The reader of the current replica; the first one outside replicas. Throws RuntimeError "Mixing
  // different ..." in a replica of a strategy other than the variable's.
  std::size_t local_index() const;
  // Those of the current reader.
  const RefPtr<Leaf>& leaf() const { return storage_->leaf(local_index()); }
  DeviceImpl& device() const { return storage_->device(local_index()); }

  // Whether the readers share one copy.
  bool shared() const { return storage_->num_places() < storage_->num_readers(); }
  // Whether the copy is shared, or on another device than the reader. Replicas then read it by
  // ReplicaContext::read_remote() and end their writes by end_write().
  bool remote() const { return remote_; }

  // If the thread builds a graph, the next five functions add nodes to it.
  //
  // The elements for a reader: in a replica on its device, else where they are.
  Tensor read(std::size_t reader);
  // The elements on the device of the reader's copy.
  Tensor read_home(std::size_t reader);
  // Replaces the elements of a reader's copy with those of `value`.
  void write(std::size_t reader, const Tensor& value);
  // A reader's copy, for an operation that writes it in place.
  Tensor memory(std::size_t reader);
  // A reader's copy, as programs refer to it. REQUIRES: the variable is not of a graph.
  RefPtr<Resource> resource(std::size_t reader);
  // A read of what `elements` returns, on the reader's device, when a run of the program starts.
  // REQUIRES: context.graph.
  Tensor read_at_start(std::size_t reader, std::function<Tensor()> elements);
  // `elements`, computed in another way than by a read, as a read of them.
  Tensor as_read(Tensor elements, std::size_t reader) const {
    return storage_->of_reader(reader, std::move(elements));
  }
  // Updates the variable and `slots`, created by make_slot(), once per copy.
  void update(std::size_t reader, const VariableUpdate& update, const Tensor& gradient,
              std::span<const Variable> slots) {
    if (storage_->applies(reader)) apply(reader, update, gradient, slots);
  }

  // Converts the elements of every copy. REQUIRES: no optimizer has slots of the variable.
  void convert(DType dtype);

  // Gives a variable of one copy one for each replica, with its elements. REQUIRES: it is not of a
  // graph, and no replica uses it yet.
  void copy_for_replicas(std::span<DeviceImpl* const> readers,
                         std::shared_ptr<const StrategyMark> strategy);

  // Creates a non-trainable variable for the same readers on the same devices.
  Variable make_slot(const Tensor& initial_value, std::string name);

 private:
  void replace_storage(std::unique_ptr<VariableStorage> storage);
  Tensor trace_read(const Tensor& handle, std::size_t reader);
  // Throws FailedPreconditionError for a variable of a graph unless the thread builds that graph.
  void require_elements() const;
  void apply(std::size_t reader, const VariableUpdate& update, const Tensor& gradient,
             std::span<const Variable> slots);

  VariableOptions options_;
  TensorType spec_;
  bool of_graph_ = false;
  bool distributed_ = false;
  bool of_layer_ = false;
  bool frozen_ = false;
  bool remote_ = false;
  std::shared_ptr<WorkerCollectives> workers_;
  std::shared_ptr<const StrategyMark> strategy_;
  std::unique_ptr<VariableStorage> storage_;
};

// The variable in messages (runtime/variable_name.h).
std::string quoted_name(const VariableImpl& variable);
std::string quoted_name(const Variable& variable);

// Chooses the devices of a new variable. Strategies install one for their scope.
class VariableCreator {
 public:
  virtual ~VariableCreator() = default;
  virtual RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) = 0;
  // The processes that share its variables; null if there is only this one.
  virtual std::shared_ptr<WorkerCollectives> workers() const { return nullptr; }
  // The creator of the calling thread; null outside strategies.
  static VariableCreator* current() { return context.creator; }
};

}  // namespace tandem
