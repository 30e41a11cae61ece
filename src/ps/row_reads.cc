#include "ps/row_reads.h"

#include <utility>

#include "core/status.h"
#include "ps/rows.h"
#include "tandem/array.h"

namespace tandem::ps {

RowReads::RowReads(const proto::Function& function, std::size_t num_servers) {
  if (function.row_reads().empty()) return;
  const std::string& name = function.worker().name();
  indices_.emplace(function.indices(),
                   [&](std::span<const Shard>, const TensorType&) -> RefPtr<Resource> {
                     fail<InvalidArgumentError>("[{}] indices depend on a variable", name);
                   });
  for (const proto::RowRead& read : function.row_reads()) {
    std::int64_t rows = 0;
    for (const proto::Shard& shard : read.shards())
      if (shard.rows() < 0 || shard.rows() > kMaxElements - rows)
        fail<InvalidArgumentError>("[{}] a shard of {} rows", name, shard.rows());
      else
        rows += shard.rows();
    Variable& variable = variables_.emplace_back(Variable{
        read_shards(read.shards(), rows, name), {read.indices().begin(), read.indices().end()}});
    for (const Shard& shard : variable.shards)
      if (server_of(shard.id) >= num_servers)
        fail<InvalidArgumentError>("[Worker] a variable of server {}; there are {}",
                                   server_of(shard.id), num_servers);
    for (const std::uint32_t lookup : variable.lookups)
      if (lookup >= static_cast<std::uint32_t>(function.indices().function().fetches_size()))
        fail<InvalidArgumentError>("[{}] look-up of result {}, which does not exist", name, lookup);
  }
}

std::size_t RowReads::num_feeds() const {
  std::size_t count = 0;
  for (const Variable& variable : variables_) count += variable.lookups.size();
  return count;
}

// The rows that one server is asked for.
struct RowReads::Request {
  std::vector<ServerClient::RowsOfVariable> rows;
  std::vector<Tensor*> results;  // of each of these
};

std::vector<Tensor> RowReads::read(std::span<const Tensor> inputs,
                                   std::span<const std::shared_ptr<ServerClient>> servers,
                                   std::map<VariableId, std::uint64_t>& versions) {
  if (variables_.empty()) return {};
  std::vector<Tensor> indices;
  {
    const std::lock_guard lock(computing_);
    indices_->run(inputs, {}, indices);
  }
  std::vector<LookedUp> looked_up;
  std::vector<std::vector<Tensor>> parts;  // by variable and shard
  std::vector<Request> requests(servers.size());
  for (const Variable& variable : variables_) {
    std::vector<Tensor> of_variable;
    for (const std::uint32_t lookup : variable.lookups) of_variable.push_back(indices[lookup]);
    const LookedUp& found = looked_up.emplace_back(look_up(of_variable, rows_of(variable.shards)));
    Tensor* result = parts.emplace_back(variable.shards.size()).data();
    for (const Shard& shard : variable.shards) {
      Tensor numbers = rows_in(shard, found.rows).numbers;
      // The first shard is asked for no rows if there are none: the reply has their shape.
      const bool asked =
          numbers.size() > 0 || (found.rows.empty() && &shard == &variable.shards[0]);
      if (asked) {
        Request& request = requests[server_of(shard.id)];
        request.rows.push_back({.id = shard.id, .rows = std::move(numbers)});
        request.results.push_back(result);
      }
      ++result;
    }
  }
  ask(requests, servers, versions);
  const EagerOnHost eager;
  std::vector<Tensor> feeds;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    std::erase_if(parts[i], [](const Tensor& part) { return !part.defined(); });
    const Tensor rows = parts[i].size() == 1 ? parts[i][0] : concat(parts[i], 0);
    for (const Tensor& positions : looked_up[i].positions) feeds.push_back(gather(rows, positions));
  }
  return feeds;
}

void RowReads::ask(std::vector<Request>& requests,
                   std::span<const std::shared_ptr<ServerClient>> servers,
                   std::map<VariableId, std::uint64_t>& versions) {
  std::vector<std::pair<Request*, Pending<std::vector<ParameterStore::Read>>>> pending;
  for (std::size_t i = 0; i < servers.size(); ++i)
    if (!requests[i].rows.empty())
      pending.emplace_back(&requests[i], servers[i]->read_rows(requests[i].rows));
  for (auto& [request, call] : pending) {
    std::vector<ParameterStore::Read> values = call.wait();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t expected = request->rows[i].rows.size();
      if (rows_of(values[i].value.shape()) != expected)
        fail<InvalidArgumentError>("[Worker] expected {} rows of variable {}, got shape {}",
                                   expected, request->rows[i].id,
                                   values[i].value.shape().to_string());
      versions[request->rows[i].id] = values[i].version;
      *request->results[i] = std::move(values[i].value);
    }
  }
}

}  // namespace tandem::ps
