// What a rank asks for under a name, and the form in which ranks tell each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/hvd.h"
#include "tandem/shape.h"

namespace tandem::hvd {

enum class Kind : std::uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kBarrier,
};
constexpr Kind last_value(Kind) { return Kind::kBarrier; }
// "ALLREDUCE", "Allreduce"
std::string_view upper_name_of(Kind kind);
std::string_view title_of(Kind kind);
std::string_view name_of(Op op);  // "Average"

struct Request {
  Kind kind = Kind::kBarrier;
  Op op = kSum;
  bool on_gpu = false;  // where the tensors are
  bool absent = false;  // this rank has no such tensor: zeros
  std::int32_t root = 0;
  double prescale = 1.0, postscale = 1.0;
  std::string name;
  // Of a group's tensors, or of the one. The dtype is that in which the elements travel.
  std::vector<DType> dtypes;
  std::vector<Dims> shapes;
  std::vector<std::int64_t> splits;  // of an alltoall

  friend bool operator==(const Request&, const Request&) = default;
  std::int64_t count(std::size_t tensor) const;  // elements
};
using RequestRef = std::shared_ptr<const Request>;

void append_request(std::vector<std::byte>& bytes, const Request& request);
// Throws DataLossError for what append_request() does not write.
std::vector<Request> parse_requests(std::span<const std::byte> bytes);

}  // namespace tandem::hvd
