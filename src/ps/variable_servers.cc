#include "ps/variable_servers.h"

#include <utility>

#include "core/status.h"
#include "ps/rows.h"
#include "tandem/array.h"
#include "tensor/tensor_buffers.h"

namespace tandem::ps {
namespace {

// The elements of a shard, on the CPU.
Tensor elements_of(const Tensor& value, const Shard& shard) {
  return rows_of(value.shape()) == shard.rows
             ? value
             : slice_rows(value, shard.first_row, shard.first_row + shard.rows);
}

}  // namespace

VariableServers::VariableServers(std::vector<std::shared_ptr<ServerClient>> servers)
    : servers_(std::move(servers)) {
  if (servers_.empty())
    throw InvalidArgumentError(
        "[ParameterServerStrategy] expected at least one parameter server, got none");
}

VariableId VariableServers::next_id(std::uint32_t server) {
  return variable_id(server, next_number_++);
}

std::vector<Shard> VariableServers::create(const std::string& name, const Tensor& value,
                                           std::int64_t num_shards) {
  const std::int64_t rows = rows_of(value.shape());
  std::vector<Shard> shards;
  {
    const std::lock_guard lock(mutex_);
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < num_shards; ++i) {
      const std::int64_t size = rows / num_shards + (i < rows % num_shards ? 1 : 0);
      const std::uint32_t server = next_server_;
      next_server_ = (next_server_ + 1) % static_cast<std::uint32_t>(servers_.size());
      shards.push_back({.id = next_id(server), .first_row = row, .rows = size});
      row += size;
    }
  }
  create(shards, name, value);
  return shards;
}

std::vector<Shard> VariableServers::create_like(const std::vector<Shard>& like,
                                                const std::string& name, const Tensor& value) {
  std::vector<Shard> shards = like;
  const std::int64_t rows = rows_of(value.shape());
  if (rows != rows_of(like)) shards = {{.first_row = 0, .rows = rows}};
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < shards.size(); ++i) shards[i].id = next_id(server_of(like[i].id));
  }
  create(shards, name, value);
  return shards;
}

void VariableServers::create(const std::vector<Shard>& shards, const std::string& name,
                             const Tensor& value) {
  const EagerOnHost eager;
  const Tensor elements = value.cpu();
  std::vector<Pending<void>> pending;
  for (const Shard& shard : shards) {
    const ServerClient::NewVariable created{
        .id = shard.id,
        .name = shards.size() == 1 ? name : fmt::format("{}/part_{}", name, pending.size()),
        .value = elements_of(elements, shard)};
    pending.push_back(servers_[server_of(shard.id)]->create({&created, 1}));
  }
  for (Pending<void>& call : pending) call.wait();
}

Tensor VariableServers::read(const std::vector<Shard>& shards, const TensorType& spec) {
  std::vector<Pending<std::vector<ParameterStore::Read>>> pending;
  for (const Shard& shard : shards)
    pending.push_back(servers_[server_of(shard.id)]->read({&shard.id, 1}));
  std::vector<Tensor> parts;
  for (auto& call : pending) parts.push_back(std::move(call.wait().front().value));
  if (parts.size() == 1) return std::move(parts.front());
  const EagerOnHost eager;
  Tensor whole = concat(parts, 0);
  TANDEM_ASSERT(whole.shape() == spec.shape);
  return whole;
}

void VariableServers::assign(const std::vector<Shard>& shards, const Tensor& value) {
  const EagerOnHost eager;
  const Tensor elements = value.cpu();
  std::vector<Pending<void>> pending;
  for (const Shard& shard : shards)
    pending.push_back(
        servers_[server_of(shard.id)]->assign(shard.id, elements_of(elements, shard)));
  for (Pending<void>& call : pending) call.wait();
}

void VariableServers::add_updates(std::uint64_t function, const proto::Function& message) {
  std::vector<std::vector<std::pair<std::uint32_t, const proto::Part*>>> of_server(servers_.size());
  for (int i = 0; i < message.updates_size(); ++i) {
    const proto::Part& part = message.updates(i).part();
    of_server[server_of(message.updates(i))].emplace_back(i, &part);
  }
  std::vector<Pending<void>> pending;
  for (std::size_t i = 0; i < servers_.size(); ++i)
    if (!of_server[i].empty()) pending.push_back(servers_[i]->add_updates(function, of_server[i]));
  for (Pending<void>& call : pending) call.wait();
}

void VariableServers::remove_updates(std::span<const std::uint64_t> functions) {
  std::vector<Pending<void>> pending;
  for (const auto& server : servers_) pending.push_back(server->remove_updates(functions));
  for (Pending<void>& call : pending) call.wait();
}

void VariableServers::add(const void* identity, std::vector<Shard> shards) {
  const std::lock_guard lock(mutex_);
  variables_[identity] = std::move(shards);
}

void VariableServers::drop(const void* identity) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(identity);
  if (found == variables_.end()) return;
  for (const Shard& shard : found->second) dropped_.push_back(shard.id);
  variables_.erase(found);
}

std::vector<VariableId> VariableServers::take_dropped() {
  const std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

void VariableServers::remove(std::span<const VariableId> shards) {
  std::vector<std::vector<VariableId>> of_server(servers_.size());
  for (const VariableId id : shards) of_server[server_of(id)].push_back(id);
  std::vector<Pending<void>> pending;
  for (std::size_t i = 0; i < servers_.size(); ++i)
    if (!of_server[i].empty()) pending.push_back(servers_[i]->remove(of_server[i]));
  for (Pending<void>& call : pending) call.wait();
}

std::vector<Shard> VariableServers::find(const void* identity) const {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(identity);
  return found == variables_.end() ? std::vector<Shard>() : found->second;
}

}  // namespace tandem::ps
