#include "ps/remote_storage.h"

#include <array>
#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "runtime/variable_name.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_buffers.h"

namespace tandem::ps {
namespace {

std::array<Device*, 1> readers() { return {&DeviceManager::get().host()}; }

}  // namespace

RemoteStorage::RemoteStorage(std::shared_ptr<VariableServers> servers, std::vector<Shard> shards,
                             std::string name, const TensorSpec& spec, bool trainable)
    : VariableStorage(readers(), 1, trainable),
      servers_(std::move(servers)),
      shards_(std::move(shards)),
      name_(std::move(name)),
      spec_(spec) {
  servers_->add(this, shards_);
}

RemoteStorage::~RemoteStorage() { servers_->drop(this); }

Tensor RemoteStorage::value(std::size_t reader) {
  return of_reader(reader, servers_->read(shards_, spec_));
}

Tensor RemoteStorage::writable(std::size_t) {
  fail<FailedPreconditionError>(
      "[ParameterServerStrategy] a function that updates variable {} was called, expected "
      "ClusterCoordinator::schedule(): the variable is on parameter servers",
      quoted_name(name_, spec_));
}

void RemoteStorage::store(std::size_t, const Tensor& value) { servers_->assign(shards_, value); }

bool RemoteStorage::update(VariableImpl&, std::size_t, const VariableUpdate& update,
                           const Tensor& gradient, std::span<VariableStorage* const> slots) {
  if (building) return false;
  const NoGradScope no_grad;
  const auto read = [](RemoteStorage& storage) {
    return exclusive_on(storage.device(0), storage.servers_->read(storage.shards_, storage.spec_));
  };
  std::array<Tensor, kMaxSlots> of_slots;
  for (std::size_t i = 0; i < slots.size(); ++i)
    of_slots[i] = read(static_cast<RemoteStorage&>(*slots[i]));
  const Tensor elements = read(*this);
  update.apply(elements, gradient, {of_slots.data(), slots.size()});
  store(0, elements);
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i]->store(0, of_slots[i]);
  return true;
}

std::unique_ptr<VariableStorage> RemoteStorage::make_like(const Tensor& initial_value,
                                                          bool trainable, MemoryTag) const {
  return std::make_unique<RemoteStorage>(
      servers_, servers_->create_like(shards_, name_ + "/slot", initial_value), name_ + "/slot",
      impl_of(initial_value), trainable);
}

}  // namespace tandem::ps
