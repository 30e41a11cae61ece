// A rank's request for an operation, and its serialised form.
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

enum class RequestKind : std::uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kBarrier,
};
constexpr RequestKind last_value(RequestKind) { return RequestKind::kBarrier; }
// "ALLREDUCE" and "Allreduce".
std::string_view upper_name_of(RequestKind kind);
std::string_view title_of(RequestKind kind);
std::string_view name_of(Op op);  // "Average"

struct Request {
  RequestKind kind = RequestKind::kBarrier;
  Op op = kSum;
  bool on_gpu = false;  // device of the tensors
  bool absent = false;  // this rank has no such tensor and contributes zeros
  std::int32_t root = 0;
  double prescale = 1.0, postscale = 1.0;
  std::string name;
  // One per tensor of the group. `dtypes` are those in which elements are sent.
  std::vector<DType> dtypes;
  std::vector<Dims> shapes;
  std::vector<std::int64_t> splits;  // for alltoall

  friend bool operator==(const Request&, const Request&) = default;
  std::int64_t count(std::size_t tensor) const;  // number of elements
};
using RequestRef = std::shared_ptr<const Request>;

void append_request(std::vector<std::byte>& bytes, const Request& request);
// Throws DataLossError for bytes that append_request() cannot have written.
std::vector<Request> parse_requests(std::span<const std::byte> bytes);

}  // namespace tandem::hvd
