// Variables on parameter servers, which may be divided into shards along their first axis.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ps/proto/function.pb.h"
#include "tandem/shape.h"

namespace tandem::ps {

// A shard. The same in all tasks. The upper half is the index of the server that holds it.
using VariableId = std::uint64_t;

constexpr VariableId variable_id(std::uint32_t server, std::uint32_t number) {
  return VariableId{server} << 32 | number;
}
constexpr std::uint32_t server_of(VariableId id) { return static_cast<std::uint32_t>(id >> 32); }

// Rows of a variable along its first axis. A variable that is not divided is one shard, and a
// scalar has one row.
struct Shard {
  VariableId id = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 1;
};

inline std::int64_t rows_of(const Shape& shape) { return shape.rank() > 0 ? shape.word(0) : 1; }
// The same for a variable with these shards.
inline std::int64_t rows_of(std::span<const Shard> shards) {
  return shards.back().first_row + shards.back().rows;
}
// The shape of a shard of a variable of this shape.
Shape shape_of(const Shard& shard, const Shape& variable);
// A variable that is not divided.
inline std::vector<Shard> one_shard(VariableId id, const Shape& shape) {
  return {{.id = id, .rows = rows_of(shape)}};
}
// The server that applies the update.
inline std::uint32_t server_of(const proto::Update& update) {
  return server_of(update.part().variables(0).shards(0).id());
}

using ShardMessages = google::protobuf::RepeatedPtrField<proto::Shard>;
void write_shards(std::span<const Shard> shards, ShardMessages& to);
// Throws InvalidArgumentError, which names the variable as `what`, unless the shards have `rows`
// rows.
std::vector<Shard> read_shards(const ShardMessages& messages, std::int64_t rows,
                               const std::string& what);

}  // namespace tandem::ps
