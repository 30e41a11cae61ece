// Where a variable lives: what its readers get, and where updates of it are applied.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "op/record.h"
#include "tandem/variable.h"

namespace tandem {

// A change of a variable by a value and by its slots, such as an optimizer's by a gradient.
class VariableUpdate {
 public:
  virtual ~VariableUpdate() = default;
  // Changes `variable` and `slots`, which are on one device, in place by operations. Where the
  // thread builds a graph, they become its nodes.
  virtual void apply(const Tensor& variable, const Tensor& gradient,
                     std::span<const Tensor> slots) const = 0;
  // REQUIRES: building. The same update for a storage whose own node applies it, on any thread,
  // while the program runs: apply() then takes the rate and the number of the step that the run
  // finds.
  virtual std::shared_ptr<const VariableUpdate> for_runs() const = 0;
};

// A reader is a replica of this process, or the program where there are none. Several readers may
// share a place: there is one for each reader, or a single one. Each reader has a leaf of its own,
// so that backward passes of several replicas do not meet.
//
// Thread safety: each reader's functions are called by one thread at a time. A storage whose
// readers share a place makes them safe for several.
class VariableStorage {
 public:
  static constexpr std::size_t kMaxSlots = 4;  // of a variable in an optimizer

  // `readers`: where each computes. null: on no known device, in a graph.
  VariableStorage(std::span<Device* const> readers, std::size_t num_places, bool trainable);
  virtual ~VariableStorage() = default;
  VariableStorage(const VariableStorage&) = delete;
  VariableStorage& operator=(const VariableStorage&) = delete;

  std::size_t num_readers() const { return readers_.size(); }
  // The distinct places in this process; the i-th is reader i's.
  std::size_t num_places() const { return num_places_; }
  // Where a reader computes with what it reads. REQUIRES: not of a graph.
  Device& device(std::size_t reader) const { return *readers_[reader].device; }
  // Null: not trainable.
  const RefPtr<Leaf>& leaf(std::size_t reader) const { return readers_[reader].leaf; }
  // Whether a change that all readers make alike is made by this one. Readers that share a place
  // leave it to the last of them, behind whose program order all reads of a traced step are.
  bool applies(std::size_t reader) const {
    return num_places_ > 1 || reader + 1 == readers_.size();
  }

  // The device of a reader's place.
  virtual Device& home(std::size_t reader) const = 0;
  // The same for all readers of a place.
  virtual const void* identity(std::size_t reader) const = 0;
  // The elements on home(), with the reader's leaf. Called for each run of a program that reads
  // the variable, and wherever a copy is enumerated.
  virtual Tensor value(std::size_t reader) = 0;
  // The elements on device(), with the reader's leaf. Called when an operation is to read them.
  virtual Tensor read(std::size_t reader) { return value(reader); }
  // The elements on home(), in memory that nothing else refers to (readers keep the old one): for
  // an operation that writes them, and for each run of a program that does.
  virtual Tensor writable(std::size_t reader) = 0;
  // Replaces the elements at once.
  virtual void store(std::size_t reader, const Tensor& value) = 0;
  // Applies `update` or, where the thread builds a graph, states the nodes that do. Called for
  // readers that apply.
  virtual void update(VariableImpl& variable, std::size_t reader, const VariableUpdate& update,
                      const Tensor& gradient, std::span<const Variable> slots);
  // Storage for a slot, which lives where this does, accounted as MemoryTag::kOptimizer.
  virtual std::unique_ptr<VariableStorage> make_slot(const Tensor& initial_value) const = 0;

 protected:
  // `value` with the reader's leaf.
  Tensor of_reader(std::size_t reader, Tensor value) const {
    impl_of(value).grad = {leaf(reader), 0, true};
    return value;
  }

 private:
  struct Reader {
    Device* device;
    RefPtr<Leaf> leaf;
  };

  friend class VariableImpl;

  std::vector<Reader> readers_;
  std::size_t num_places_;
};

// One copy on each of `devices`, in the order of the replicas. `tag`: what the memory is accounted
// as.
std::unique_ptr<VariableStorage> copy_per_replica(const Tensor& initial_value,
                                                  std::span<Device* const> devices, bool trainable,
                                                  MemoryTag tag);
// The memory of a variable of a graph, as a symbolic tensor; the elements are each session's.
std::unique_ptr<VariableStorage> memory_in_graph(const Tensor& memory, bool trainable);

}  // namespace tandem
