#include "runtime/variable_storage.h"

#include <array>
#include <atomic>
#include <mutex>

#include "core/mutex.h"
#include "core/status.h"
#include "graph/graph.h"
#include "runtime/autocast.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"

namespace tandem {
namespace {

Tensor clone_to(const Tensor& value, DeviceImpl& device, MemoryTag tag) {
  const Scoped scope(memory_tag, tag);
  Tensor copy = make_tensor(device, value.shape(), value.dtype());
  copy_into(copy, value);
  return copy;
}

// For a write of any variable.
std::uint64_t next_version() {
  static constinit std::atomic<std::uint64_t> next{TensorView::kFirstVersion};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool shared(const TensorImpl& impl) { return !reusable(impl); }

// As a run of a program would, whatever the calling thread does.
Tensor cast_at_once(const Tensor& tensor, DType dtype, MemoryTag tag) {
  const Scoped eager(context.graph, nullptr);
  const AutocastScope as_asked(std::nullopt);
  const NoGradScope no_grad;
  const OnDevice on(impl_of(tensor).device());
  const Scoped scope(memory_tag, tag);
  return cast_tensor(tensor, dtype);
}

class ReplicaCopies final : public VariableStorage {
 public:
  ReplicaCopies(const Tensor& initial_value, std::span<DeviceImpl* const> devices, bool trainable,
                MemoryTag tag)
      : VariableStorage(devices, devices.size(), trainable),
        tag_(tag),
        casts_(devices.size()),
        versions_(devices.size()) {
    copies_.reserve(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      copies_.push_back(of_reader(i, clone_to(initial_value, *devices[i], tag)));
      versions_[i] = next_version();
    }
  }

  DeviceImpl& home(std::size_t reader) const override { return device(reader); }
  const void* identity(std::size_t reader) const override { return &copies_[reader]; }
  Tensor value(std::size_t reader) override { return copies_[reader]; }
  Tensor read(std::size_t reader) override { return copies_[reader]; }
  std::uint64_t version(std::size_t reader) const override { return versions_[reader]; }

  Tensor writable(std::size_t reader) override {
    casts_[reader].current = false;
    versions_[reader] = next_version();
    return unshared(reader);
  }

  bool has_cast_copies() const override { return true; }
  Tensor cast_copy(std::size_t reader, DType dtype) override {
    Cast& cast = casts_[reader];
    if (cast.current && cast.copy.dtype() == dtype) return cast.copy;
    const Tensor elements = cast_at_once(copies_[reader], dtype, tag_);
    // Its address remains the same, because recorded CUDA graphs contain it.
    if (cast.copy.defined() && cast.copy.dtype() == dtype)
      copy_into(cast.copy, elements);
    else
      cast.copy = elements;
    cast.current = true;
    return cast.copy;
  }
  Tensor writable_with_cast(std::size_t reader, DType dtype) override {
    cast_copy(reader, dtype);
    versions_[reader] = next_version();
    return unshared(reader);
  }

  void store(std::size_t reader, const Tensor& value) override {
    casts_[reader].current = false;
    versions_[reader] = next_version();
    Tensor& copy = copies_[reader];
    if (shared(impl_of(copy)))
      copy = of_reader(reader, clone_to(value, device(reader), tag_));
    else
      copy_into(copy, value);
  }

  // The common case: as VariableImpl does it, without virtual calls.
  bool update(VariableImpl&, std::size_t reader, const VariableUpdate& update,
              const Tensor& gradient, std::span<VariableStorage* const> slots) override {
    if (context.graph) return false;
    std::array<Tensor, kMaxSlots> memory;
    for (std::size_t i = 0; i < slots.size(); ++i)
      memory[i] = static_cast<ReplicaCopies&>(*slots[i]).writable(reader);
    update.apply(writable(reader), gradient, {memory.data(), slots.size()});
    return true;
  }

  std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                             MemoryTag tag) const override {
    return copy_per_replica(initial_value, reader_devices(), trainable, tag);
  }

 private:
  struct Cast {
    Tensor copy;
    bool current = false;
  };

  void leaves_changed() override {
    for (std::size_t i = 0; i < copies_.size(); ++i)
      copies_[i] = of_reader(i, make_alias(copies_[i]));
  }

  Tensor unshared(std::size_t reader) {
    Tensor& copy = copies_[reader];
    if (shared(impl_of(copy))) copy = of_reader(reader, clone_to(copy, device(reader), tag_));
    return copy;
  }

  const MemoryTag tag_;
  // Each used by its own replica's thread.
  std::vector<Tensor> copies_;
  std::vector<Cast> casts_;
  std::vector<std::uint64_t> versions_;
};

class SharedCopy final : public VariableStorage {
 public:
  SharedCopy(const Tensor& initial_value, DeviceImpl& home, std::span<DeviceImpl* const> readers,
             std::size_t writer, bool trainable, MemoryTag tag)
      : VariableStorage(readers, 1, trainable, writer),
        home_(home),
        tag_(tag),
        copy_(clone_to(initial_value, home, tag)) {}

  DeviceImpl& home(std::size_t) const override { return home_; }
  const void* identity(std::size_t) const override { return &copy_; }
  Tensor value(std::size_t reader) override {
    const std::lock_guard lock(mutex_);
    return of_reader(reader, make_alias(copy_));
  }
  Tensor read(std::size_t reader) override {
    return of_reader(reader, copy_to_device(value(reader), device(reader)));
  }
  Tensor writable(std::size_t) override {
    const std::lock_guard lock(mutex_);
    if (shared(impl_of(copy_))) copy_ = clone_to(copy_, home_, tag_);
    return copy_;
  }
  void store(std::size_t, const Tensor& value) override {
    const std::lock_guard lock(mutex_);
    if (shared(impl_of(copy_)))
      copy_ = clone_to(value, home_, tag_);
    else
      copy_into(copy_, value);
  }
  std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                             MemoryTag tag) const override {
    return shared_copy(initial_value, home_, reader_devices(), writer(), trainable, tag);
  }

 private:
  DeviceImpl& home_;
  const MemoryTag tag_;
  std::mutex mutex_;  // guards the handle; strategies order reads and writes of the elements
  const HeldAtFork held_at_fork_{mutex_};
  Tensor copy_;
};

constexpr DeviceImpl* kNoDevice = nullptr;

class MemoryInGraph final : public VariableStorage {
 public:
  MemoryInGraph(const Tensor& memory, bool trainable)
      : VariableStorage({&kNoDevice, 1}, 1, trainable), memory_(memory) {}

  DeviceImpl& home(std::size_t) const override { of_sessions(); }
  const void* identity(std::size_t) const override { return &memory_; }
  Tensor value(std::size_t) override { return memory_; }
  Tensor writable(std::size_t) override { of_sessions(); }
  void store(std::size_t, const Tensor&) override { of_sessions(); }
  std::unique_ptr<VariableStorage> make_like(const Tensor&, bool, MemoryTag) const override {
    of_sessions();
  }

 private:
  [[noreturn]] static void of_sessions() {
    throw FailedPreconditionError(
        "[Variable] a variable of a graph has its elements and its device in sessions");
  }

  const Tensor memory_;
};

}  // namespace

VariableStorage::VariableStorage(std::span<DeviceImpl* const> readers, std::size_t num_places,
                                 bool trainable, std::size_t writer)
    : num_places_(num_places), writer_(writer) {
  TANDEM_ASSERT(num_places == 1 || num_places == readers.size());
  for (DeviceImpl* device : readers)
    readers_.push_back({device, trainable ? make_ref<Leaf>(device) : RefPtr<Leaf>(), {}});
}

void VariableStorage::set_frozen(bool frozen) {
  for (Reader& reader : readers_) {
    RefPtr<Leaf>&from = frozen ? reader.leaf : reader.frozen,
    &to = frozen ? reader.frozen : reader.leaf;
    if (!from) continue;
    from->set_grad({});
    to = std::move(from);
  }
  leaves_changed();
}

std::vector<DeviceImpl*> VariableStorage::reader_devices() const {
  std::vector<DeviceImpl*> devices;
  for (const Reader& reader : readers_) devices.push_back(reader.device);
  return devices;
}

bool VariableStorage::update(VariableImpl&, std::size_t, const VariableUpdate&, const Tensor&,
                             std::span<VariableStorage* const>) {
  return false;
}

Tensor VariableStorage::cast_copy(std::size_t, DType) {
  throw InternalError("[Variable] this storage has no cast copies");
}
Tensor VariableStorage::writable_with_cast(std::size_t, DType) {
  throw InternalError("[Variable] this storage has no cast copies");
}

std::unique_ptr<VariableStorage> copy_per_replica(const Tensor& initial_value,
                                                  std::span<DeviceImpl* const> devices,
                                                  bool trainable, MemoryTag tag) {
  return std::make_unique<ReplicaCopies>(initial_value, devices, trainable, tag);
}

std::unique_ptr<VariableStorage> shared_copy(const Tensor& initial_value, DeviceImpl& home,
                                             std::span<DeviceImpl* const> readers,
                                             std::size_t writer, bool trainable, MemoryTag tag) {
  return std::make_unique<SharedCopy>(initial_value, home, readers, writer, trainable, tag);
}

std::unique_ptr<VariableStorage> memory_in_graph(const Tensor& memory, bool trainable) {
  return std::make_unique<MemoryInGraph>(memory, trainable);
}

}  // namespace tandem
