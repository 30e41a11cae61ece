// What a Variable handle points to.
#pragma once

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
  // `workers`: the other processes that keep the variable. `strategy`: whose replicas the readers
  // are.
  VariableImpl(std::unique_ptr<VariableStorage> storage, const TensorSpec& spec,
               VariableOptions options, std::shared_ptr<WorkerCollectives> workers = nullptr,
               std::shared_ptr<const StrategyMark> strategy = nullptr);
  // `initial_value` is copied to each of `devices`: one copy each, in the order of the replicas.
  // `tag`: what the memory is accounted as.
  VariableImpl(const Tensor& initial_value, std::span<Device* const> devices,
               VariableOptions options, MemoryTag tag = MemoryTag::kWeights,
               std::shared_ptr<WorkerCollectives> workers = nullptr,
               std::shared_ptr<const StrategyMark> strategy = nullptr);
  // A variable of the graph that the thread builds: its memory is symbolic, the elements are each
  // session's. `initial_value`: symbolic or not. REQUIRES: building->for_sessions.
  VariableImpl(const Tensor& initial_value, VariableOptions options);

  const VariableOptions& options() const { return options_; }
  const TensorSpec& spec() const { return spec_; }
  // Whether the elements belong to sessions.
  bool of_graph() const { return of_graph_; }
  bool distributed() const { return distributed_; }
  // Null: no other process has copies.
  const std::shared_ptr<WorkerCollectives>& workers() const { return workers_; }
  // Null unless distributed(): a variable with a single reader may be used under every strategy.
  const std::shared_ptr<const StrategyMark>& strategy() const { return strategy_; }
  // Whose functions act at once, whether the thread builds a graph or not.
  VariableStorage& storage() const { return *storage_; }
  // The readers of all processes.
  std::size_t num_copies() const {
    return workers_ ? static_cast<std::size_t>(workers_->num_replicas()) : storage_->num_readers();
  }
  // The reader that the present replica is; the first one outside replicas. Everything that a
  // replica reads or writes goes through it. Throws RuntimeError "Mixing different ..." in a
  // replica of a strategy other than the variable's.
  std::size_t local_index() const;
  // The present reader's.
  const RefPtr<Leaf>& leaf() const { return storage_->leaf(local_index()); }
  Device& device() const { return storage_->device(local_index()); }

  // What the four following do when the thread builds a graph is nodes of it.
  //
  // The elements for a reader.
  Tensor read(std::size_t reader);
  // Replaces the elements at a reader's place by those of `value`.
  void write(std::size_t reader, const Tensor& value);
  // A reader's place for an operation that writes it in place.
  Tensor memory(std::size_t reader);
  // Changes the variable and `slots`, made by make_slot(), once for each place.
  void update(std::size_t reader, const VariableUpdate& update, const Tensor& gradient,
              std::span<const Variable> slots) {
    if (storage_->applies(reader)) storage_->update(*this, reader, update, gradient, slots);
  }

  // A variable for the same readers, not trainable, that lives where this one does.
  Variable make_slot(const Tensor& initial_value, std::string name);

 private:
  // Throws FailedPreconditionError for a variable of a graph that is not being built.
  void require_elements() const;

  VariableOptions options_;
  TensorSpec spec_;
  bool of_graph_ = false;
  bool distributed_ = false;
  std::shared_ptr<WorkerCollectives> workers_;
  std::shared_ptr<const StrategyMark> strategy_;
  std::unique_ptr<VariableStorage> storage_;
};

// How texts refer to a variable: "'NAME'", or "(unnamed, of shape (3, 4) and dtype float32)".
std::string quoted_name(const std::string& name, const TensorSpec& spec);
std::string quoted_name(const VariableImpl& variable);
std::string quoted_name(const Variable& variable);

// Decides where a new variable lives. Strategies install one for their scope.
class VariableCreator {
 public:
  virtual ~VariableCreator() = default;
  virtual RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) = 0;
  // The processes among which what it makes is kept equal; null: this one alone.
  virtual std::shared_ptr<WorkerCollectives> workers() const { return nullptr; }
  // The calling thread's; null outside strategies.
  static VariableCreator* current();
};

class VariableCreatorScope {
 public:
  explicit VariableCreatorScope(VariableCreator* creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  VariableCreator* previous_;
};

}  // namespace tandem
