#include "ps/shards.h"

#include "core/status.h"

namespace tandem::ps {

Shape shape_of(const Shard& shard, const Shape& variable) {
  Shape shape = variable;
  if (shape.rank() > 0) shape.set(0, shard.rows);
  return shape;
}

void write_shards(std::span<const Shard> shards, ShardMessages& to) {
  for (const Shard& shard : shards) {
    proto::Shard& made = *to.Add();
    made.set_id(shard.id);
    made.set_rows(shard.rows);
  }
}

std::vector<Shard> read_shards(const ShardMessages& messages, std::int64_t rows,
                               const std::string& what) {
  std::vector<Shard> shards;
  std::int64_t left = rows;
  for (const proto::Shard& message : messages) {
    if (message.rows() < 0 || message.rows() > left)
      fail<InvalidArgumentError>("[{}] a shard of {} rows; {} of {} are left", what, message.rows(),
                                 left, rows);
    shards.push_back({.id = message.id(), .first_row = rows - left, .rows = message.rows()});
    left -= message.rows();
  }
  if (shards.empty() || left != 0)
    fail<InvalidArgumentError>("[{}] expected shards of {} rows, got {} of {}", what, rows,
                               shards.size(), rows - left);
  return shards;
}

}  // namespace tandem::ps
