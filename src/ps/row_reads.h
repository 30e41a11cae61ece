// The rows that a worker's part looks up in variables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ps/part_program.h"
#include "ps/server_client.h"

namespace tandem::ps {

// Reads these rows alone: first a part of the function computes the indices. Thread-safe.
class RowReads {
 public:
  // Throws InvalidArgumentError for a message that is not valid.
  RowReads(const proto::Function& function, std::size_t num_servers);

  std::size_t num_feeds() const;
  // The last feeds of the worker's part, whose first ones are `inputs`: the rows of each look-up,
  // in the order of its indices. Asks each server once. Sets the versions of the shards.
  std::vector<Tensor> read(std::span<const Tensor> inputs,
                           std::span<const std::shared_ptr<ServerClient>> servers,
                           std::map<VariableId, std::uint64_t>& versions);

 private:
  struct Variable {
    std::vector<Shard> shards;
    std::vector<std::uint32_t> lookups;  // results of `indices_`
  };
  struct Request;
  static void ask(std::vector<Request>& requests,
                  std::span<const std::shared_ptr<ServerClient>> servers,
                  std::map<VariableId, std::uint64_t>& versions);

  std::vector<Variable> variables_;
  std::mutex computing_;                // held while the following runs
  std::optional<PartProgram> indices_;  // none if there are no variables
};

}  // namespace tandem::ps
