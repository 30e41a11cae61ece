// What a Variable handle points to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/node.h"
#include "op/record.h"
#include "runtime/strategy_mark.h"
#include "runtime/workers.h"
#include "tandem/variable.h"

namespace tandem {

class VariableImpl final : public RefCounted {
 public:
  // One copy of the variable: on one device, with its own leaf for gradients.
  struct Copy {
    Tensor value;       // of_graph(): the memory, as a symbolic tensor
    RefPtr<Leaf> leaf;  // null: not trainable
    MemoryTag tag = MemoryTag::kWeights;
  };

  // `initial_value` is copied to each of `devices`: one copy each, in the order of the replicas.
  // `tag`: what the memory is accounted as. `workers`: who has copies in other processes.
  // `strategy`: whose replicas the copies belong to.
  VariableImpl(const Tensor& initial_value, std::span<Device* const> devices,
               VariableOptions options, MemoryTag tag = MemoryTag::kWeights,
               std::shared_ptr<Workers> workers = nullptr,
               std::shared_ptr<const StrategyMark> strategy = nullptr);
  // A variable of the graph that the thread builds: its one copy is symbolic, the elements are each
  // session's. `initial_value`: symbolic or not. REQUIRES: building->for_sessions.
  VariableImpl(const Tensor& initial_value, VariableOptions options);

  const VariableOptions& options() const { return options_; }
  const TensorSpec& spec() const { return spec_; }
  // Whether the elements belong to sessions.
  bool of_graph() const { return of_graph_; }
  bool distributed() const { return copies_.size() > 1 || workers_; }
  // Null: no other process has copies.
  const std::shared_ptr<Workers>& workers() const { return workers_; }
  // Null unless distributed(): a variable with a single copy may be used under every strategy.
  const std::shared_ptr<const StrategyMark>& strategy() const { return strategy_; }
  // This process's.
  std::vector<Copy>& copies() { return copies_; }
  // Those of all processes.
  std::size_t num_copies() const {
    return workers_ ? static_cast<std::size_t>(workers_->num_replicas()) : copies_.size();
  }
  // The present replica's copy; the first one outside replicas. Everything that a replica reads or
  // writes goes through it. Throws RuntimeError "Mixing different ..." in a replica of a strategy
  // other than the variable's.
  std::size_t local_index() const;
  Copy& local() { return copies_[local_index()]; }

  // What the three following do when the thread builds a graph is a node of it.
  //
  // The elements of a copy.
  Tensor read(std::size_t copy);
  // Replaces the elements of a copy by those of `value`.
  void write(std::size_t copy, const Tensor& value);
  // A copy for an operation that writes it in place.
  Tensor memory(std::size_t copy);

  // The value of `copy` in memory that nothing else refers to any more (readers keep the old one).
  static const Tensor& writable(Copy& copy);
  // Replaces the elements of `copy` by those of `value`, at once.
  static void store(Copy& copy, const Tensor& value);

 private:
  // Throws FailedPreconditionError for a variable of a graph that is not being built.
  void require_elements() const;

  VariableOptions options_;
  TensorSpec spec_;
  bool of_graph_ = false;
  std::shared_ptr<Workers> workers_;
  std::shared_ptr<const StrategyMark> strategy_;
  std::vector<Copy> copies_;  // each touched by its own replica's thread
};

// How texts refer to a variable: "'NAME'", or "(unnamed, of shape (3, 4) and dtype float32)".
std::string quoted_name(const std::string& name, const TensorSpec& spec);
std::string quoted_name(const VariableImpl& variable);
std::string quoted_name(const Variable& variable);

// Decides where the copies of a new variable go. Strategies install one for their scope.
class VariableCreator {
 public:
  virtual ~VariableCreator() = default;
  virtual RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) = 0;
  // The processes among which what it makes is kept equal; null: this one alone.
  virtual std::shared_ptr<Workers> workers() const { return nullptr; }
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
