// The storage of a variable on parameter servers.
#pragma once

#include <memory>
#include <string>

#include "ps/variable_servers.h"
#include "runtime/variable_storage.h"

namespace tandem::ps {

// The elements are on the servers; each read gets them from there, onto the CPU. Functions that are
// scheduled on workers do not read them here (ps/split.h). An update that this process makes reads
// the elements, changes them and assigns them: one that a worker makes at the same time may be
// lost.
class RemoteStorage final : public VariableStorage {
 public:
  RemoteStorage(std::shared_ptr<VariableServers> servers, std::vector<Shard> shards,
                std::string name, const TensorSpec& spec, bool trainable);
  ~RemoteStorage() override;

  const VariableServers& servers() const { return *servers_; }

  Device& home(std::size_t) const override { return device(0); }
  const void* identity(std::size_t) const override { return this; }
  Tensor value(std::size_t reader) override;
  GradEdge edge(std::size_t reader) override { return {leaf(reader), 0, true}; }
  Tensor writable(std::size_t reader) override;
  void store(std::size_t reader, const Tensor& value) override;
  bool update(VariableImpl& variable, std::size_t reader, const VariableUpdate& update,
              const Tensor& gradient, std::span<VariableStorage* const> slots) override;
  std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                             MemoryTag tag) const override;

 private:
  const std::shared_ptr<VariableServers> servers_;
  const std::vector<Shard> shards_;
  const std::string name_;
  const TensorSpec spec_;
};

}  // namespace tandem::ps
