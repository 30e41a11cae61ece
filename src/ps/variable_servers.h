// The variables of a strategy on its parameter servers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/server_client.h"
#include "ps/shards.h"

namespace tandem::ps {

// Creates, reads and assigns variables, shard by shard. Thread-safe. Errors are those of
// ServerClient.
class VariableServers {
 public:
  explicit VariableServers(std::vector<std::shared_ptr<ServerClient>> servers);

  // Creates a variable in `num_shards` shards, one per server in turn. The first shards have one
  // row more than the others if the rows do not divide evenly.
  std::vector<Shard> create(const std::string& name, const Tensor& value, std::int64_t num_shards);
  // Creates a variable of the same number of rows on the servers of `like`, or one that is not
  // sharded on the server of its first shard.
  std::vector<Shard> create_like(const std::vector<Shard>& like, const std::string& name,
                                 const Tensor& value);
  Tensor read(const std::vector<Shard>& shards, const TensorType& spec);
  void assign(const std::vector<Shard>& shards, const Tensor& value);

  // Adds the updates of a function to the servers of their variables.
  void add_updates(std::uint64_t function, const proto::Function& message);
  // Removes those of functions that no closure uses any more.
  void remove_updates(std::span<const std::uint64_t> functions);

  // The variable that a trace refers to by `identity`.
  void add(const void* identity, std::vector<Shard> shards);
  // It is no longer used by this process. Calls no server.
  void drop(const void* identity);
  // The shards that were dropped since the last call. The caller removes them once no closure uses
  // them.
  std::vector<VariableId> take_dropped();
  void remove(std::span<const VariableId> shards);
  // Empty if it is not a variable of these servers.
  std::vector<Shard> find(const void* identity) const;

 private:
  void create(const std::vector<Shard>& shards, const std::string& name, const Tensor& value);
  VariableId next_id(std::uint32_t server);

  const std::vector<std::shared_ptr<ServerClient>> servers_;
  mutable std::mutex mutex_;  // guards the following
  std::uint32_t next_server_ = 0;
  std::uint32_t next_number_ = 0;
  std::unordered_map<const void*, std::vector<Shard>> variables_;
  std::vector<VariableId> dropped_;
};

}  // namespace tandem::ps
