// The storage of a variable: its copies, its readers, and how updates are applied.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "op/record.h"

namespace tandem {

class VariableImpl;

// An update of a variable and its slots, such as an optimizer step with a gradient.
class VariableUpdate {
 public:
  virtual ~VariableUpdate() = default;
  // Updates `variable` and `slots`, which are on one device, in place by operations. If the thread
  // builds a graph, they become its nodes.
  virtual void apply(const Tensor& variable, const Tensor& gradient,
                     std::span<const Tensor> slots) const = 0;
  // The same update for a storage that applies it in a node of its own, on any thread, while the
  // program runs. Its apply() uses the learning rate and the step number of that run. REQUIRES:
  // context.graph.
  virtual std::shared_ptr<const VariableUpdate> for_runs() const = 0;
};

// A reader is a replica of this process, or the program if there are no replicas. There is one copy
// per reader, or a single copy that all readers share. Each reader has its own leaf, so that
// backward passes of replicas do not interfere.
//
// Thread safety: the functions of a reader are called by one thread at a time, but for value() and
// edge(), which several threads may call while none changes the elements. A storage with a shared
// copy makes functions of different readers safe to call concurrently.
class VariableStorage {
 public:
  static constexpr std::size_t kMaxSlots = 4;  // of a variable in an optimizer

  // `readers`: the device of each reader; null in a graph. `writer`: the reader that applies
  // updates if all share a copy.
  VariableStorage(std::span<DeviceImpl* const> readers, std::size_t num_places, bool trainable,
                  std::size_t writer = 0);
  virtual ~VariableStorage() = default;
  VariableStorage(const VariableStorage&) = delete;
  VariableStorage& operator=(const VariableStorage&) = delete;

  std::size_t num_readers() const { return readers_.size(); }
  // The number of copies in this process; copy i is reader i's.
  std::size_t num_places() const { return num_places_; }
  // The device that a reader computes on. REQUIRES: not of a graph.
  DeviceImpl& device(std::size_t reader) const { return *readers_[reader].device; }
  // Null if the variable is not trainable, or frozen.
  const RefPtr<Leaf>& leaf(std::size_t reader) const { return readers_[reader].leaf; }
  // Takes the leaves from the readers, without gradients, or gives them back. Tensors that were
  // read before keep them.
  void set_frozen(bool frozen);
  // Whether this reader applies an update that all readers request.
  bool applies(std::size_t reader) const { return num_places_ > 1 || reader == writer_; }

  // The device of a reader's copy.
  virtual DeviceImpl& home(std::size_t reader) const = 0;
  // Equal for all readers of a copy.
  virtual const void* identity(std::size_t reader) const = 0;
  // The elements on home(), with the reader's leaf. Called for each run of a program that reads the
  // variable, and when copies are enumerated.
  virtual Tensor value(std::size_t reader) = 0;
  // The gradient edge of value(): that of the leaf, or of a tape that watches the elements.
  virtual GradEdge edge(std::size_t reader) { return impl_of(value(reader)).grad; }
  // The elements on device(), with the reader's leaf. Called when an operation reads them.
  virtual Tensor read(std::size_t reader) { return value(reader); }
  // The elements on home(), in memory that nothing else refers to, for an operation or a program
  // that writes them. Tensors that were read before keep the old memory.
  virtual Tensor writable(std::size_t reader) = 0;
  // The number of the last write of value()'s elements (TensorView::version). Called by the thread
  // that reads them. 0, as by default, if others may write them at any time.
  virtual std::uint64_t version([[maybe_unused]] std::size_t reader) const { return 0; }
  // Whether the next two functions are implemented.
  virtual bool has_cast_copies() const { return false; }
  // The elements as `dtype` on home(), in memory that only programs use. They are cast if they were
  // written since. One dtype at a time.
  virtual Tensor cast_copy(std::size_t reader, DType dtype);
  // As writable(), for a program that writes the cast copy whenever it writes the elements.
  virtual Tensor writable_with_cast(std::size_t reader, DType dtype);
  // Replaces the elements eagerly.
  virtual void store(std::size_t reader, const Tensor& value) = 0;
  // Applies `update`, or adds nodes that do if the thread builds a graph, and returns true. If it
  // returns false, as by default, VariableImpl does so in the memory of the variable and the slots.
  // `slots`: created by make_like(). Called for readers with applies().
  virtual bool update(VariableImpl& variable, std::size_t reader, const VariableUpdate& update,
                      const Tensor& gradient, std::span<VariableStorage* const> slots);
  // Creates storage for other elements, such as a slot's, on the same devices for the same readers.
  virtual std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                                     MemoryTag tag) const = 0;

 protected:
  // leaf() of all readers has changed.
  virtual void leaves_changed() {}
  std::vector<DeviceImpl*> reader_devices() const;
  std::size_t writer() const { return writer_; }
  // `value` with the reader's leaf.
  Tensor of_reader(std::size_t reader, Tensor value) const {
    impl_of(value).grad = {leaf(reader), 0, true};
    return value;
  }

 private:
  struct Reader {
    DeviceImpl* device;
    RefPtr<Leaf> leaf, frozen;  // at most one of them
  };

  friend class VariableImpl;

  std::vector<Reader> readers_;
  std::size_t num_places_;
  std::size_t writer_;
};

// One copy on each of `devices`, in the order of the replicas. `tag`: the tag that the memory is
// accounted under.
std::unique_ptr<VariableStorage> copy_per_replica(const Tensor& initial_value,
                                                  std::span<DeviceImpl* const> devices,
                                                  bool trainable, MemoryTag tag);
// One copy on `home` that replicas on `readers` share. Reader `writer` applies updates.
std::unique_ptr<VariableStorage> shared_copy(const Tensor& initial_value, DeviceImpl& home,
                                             std::span<DeviceImpl* const> readers,
                                             std::size_t writer, bool trainable, MemoryTag tag);
// The symbolic memory of a variable of a graph. Each session has its own elements.
std::unique_ptr<VariableStorage> memory_in_graph(const Tensor& memory, bool trainable);

}  // namespace tandem
