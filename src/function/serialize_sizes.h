// The unknown sizes of a serialised graph. Stored shapes and attributes refer to an expression by
// its number, as a very negative number.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dim.h"
#include "core/size_table.h"
#include "function/proto/graph.pb.h"

namespace tandem {

using SizeMessages = google::protobuf::RepeatedPtrField<proto::Size>;

// The stored form of sizes of the table, and of other numbers.
std::int64_t stored_size(const SizeTable& sizes, std::int64_t size);
void write_sizes(const SizeTable& sizes, SizeMessages& to);

// The sizes of a graph that is read. Bytes are untrusted.
class StoredSizes {
 public:
  // Adds the stored expressions to `sizes`. Throws InvalidArgumentError.
  StoredSizes(const SizeMessages& from, SizeTable& sizes);
  // The size of a stored number. Throws InvalidArgumentError for a number without an expression.
  std::int64_t operator()(std::int64_t stored) const;

 private:
  std::int64_t read(const proto::Size& from, SizeTable& sizes) const;

  std::vector<std::int64_t> sizes_;
};

}  // namespace tandem
