#include "runtime/variable_storage.h"

#include <array>

#include "core/status.h"
#include "graph/graph.h"
#include "runtime/variable_impl.h"

namespace tandem {
namespace {

Tensor clone_to(const Tensor& value, Device& device, MemoryTag tag) {
  MemoryTagScope scope(tag);
  Tensor copy = make_tensor(device, value.shape(), value.dtype());
  copy_into(copy, value);
  return copy;
}

bool shared(const TensorImpl& impl) { return !impl.unique() || !impl.storage->unique(); }

template <class Memory, class Apply>
void with_slots(std::span<const Variable> slots, const Memory& memory_of, const Apply& apply) {
  TANDEM_ASSERT(slots.size() <= VariableStorage::kMaxSlots);
  std::array<Tensor, VariableStorage::kMaxSlots> memory;
  for (std::size_t i = 0; i < slots.size(); ++i) memory[i] = memory_of(slots[i]);
  apply(std::span<const Tensor>(memory.data(), slots.size()));
}

class ReplicaCopies final : public VariableStorage {
 public:
  ReplicaCopies(const Tensor& initial_value, std::span<Device* const> devices, bool trainable,
                MemoryTag tag)
      : VariableStorage(devices, devices.size(), trainable), tag_(tag) {
    copies_.reserve(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i)
      copies_.push_back(of_reader(i, clone_to(initial_value, *devices[i], tag)));
  }

  Device& home(std::size_t reader) const override { return device(reader); }
  const void* identity(std::size_t reader) const override { return &copies_[reader]; }
  Tensor value(std::size_t reader) override { return copies_[reader]; }
  Tensor read(std::size_t reader) override { return copies_[reader]; }

  Tensor writable(std::size_t reader) override {
    Tensor& copy = copies_[reader];
    if (shared(impl_of(copy))) copy = of_reader(reader, clone_to(copy, device(reader), tag_));
    return copy;
  }

  void store(std::size_t reader, const Tensor& value) override {
    Tensor& copy = copies_[reader];
    if (shared(impl_of(copy)))
      copy = of_reader(reader, clone_to(value, device(reader), tag_));
    else
      copy_into(copy, value);
  }

  // The common case: as VariableStorage::update(), without virtual calls.
  void update(VariableImpl& variable, std::size_t reader, const VariableUpdate& update,
              const Tensor& gradient, std::span<const Variable> slots) override {
    if (building) return VariableStorage::update(variable, reader, update, gradient, slots);
    with_slots(
        slots,
        [&](const Variable& slot) {
          return static_cast<ReplicaCopies&>(slot.impl().storage()).writable(reader);
        },
        [&](std::span<const Tensor> memory) { update.apply(writable(reader), gradient, memory); });
  }

  std::unique_ptr<VariableStorage> make_slot(const Tensor& initial_value) const override {
    std::vector<Device*> devices;
    for (std::size_t i = 0; i < num_readers(); ++i) devices.push_back(&device(i));
    return copy_per_replica(initial_value, devices, /*trainable=*/false, MemoryTag::kOptimizer);
  }

 private:
  const MemoryTag tag_;
  std::vector<Tensor> copies_;  // each used by its own replica's thread
};

constexpr Device* kNoDevice = nullptr;

class MemoryInGraph final : public VariableStorage {
 public:
  MemoryInGraph(const Tensor& memory, bool trainable)
      : VariableStorage({&kNoDevice, 1}, 1, trainable), memory_(memory) {}

  Device& home(std::size_t) const override { of_sessions(); }
  const void* identity(std::size_t) const override { return &memory_; }
  Tensor value(std::size_t) override { return memory_; }
  Tensor writable(std::size_t) override { of_sessions(); }
  void store(std::size_t, const Tensor&) override { of_sessions(); }
  std::unique_ptr<VariableStorage> make_slot(const Tensor&) const override { of_sessions(); }

 private:
  [[noreturn]] static void of_sessions() {
    throw FailedPreconditionError(
        "[Variable] a variable of a graph has its elements and its device in sessions");
  }

  const Tensor memory_;
};

}  // namespace

VariableStorage::VariableStorage(std::span<Device* const> readers, std::size_t num_places,
                                 bool trainable)
    : num_places_(num_places) {
  TANDEM_ASSERT(num_places == 1 || num_places == readers.size());
  for (Device* device : readers)
    readers_.push_back({device, trainable ? make_ref<Leaf>(device) : RefPtr<Leaf>()});
}

void VariableStorage::update(VariableImpl& variable, std::size_t reader,
                             const VariableUpdate& update, const Tensor& gradient,
                             std::span<const Variable> slots) {
  with_slots(
      slots, [&](const Variable& slot) { return slot.impl().memory(reader); },
      [&](std::span<const Tensor> memory) {
        update.apply(variable.memory(reader), gradient, memory);
      });
}

std::unique_ptr<VariableStorage> copy_per_replica(const Tensor& initial_value,
                                                  std::span<Device* const> devices, bool trainable,
                                                  MemoryTag tag) {
  return std::make_unique<ReplicaCopies>(initial_value, devices, trainable, tag);
}

std::unique_ptr<VariableStorage> memory_in_graph(const Tensor& memory, bool trainable) {
  return std::make_unique<MemoryInGraph>(memory, trainable);
}

}  // namespace tandem
