// The sizes of an attention operation, for all backends.
#pragma once

#include <compare>
#include <cstdint>

#include "tandem/shape.h"

namespace tandem {

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth;

  // query [batch, queries, heads, depth], key [batch, keys, kv_heads, depth], value [batch, keys,
  // kv_heads, value_depth].
  AttentionSizes(const Shape& query, const Shape& key, const Shape& value)
      : batch(query.word(0)),
        queries(query.word(1)),
        keys(key.word(1)),
        heads(query.word(2)),
        kv_heads(key.word(2)),
        depth(query.word(3)),
        value_depth(value.word(3)) {}

  constexpr std::int64_t group() const {
    return heads / kv_heads;
  }  // number of query heads per key head
  auto operator<=>(const AttentionSizes&) const = default;
};

}  // namespace tandem
