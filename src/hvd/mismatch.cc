// Messages for ranks that submitted different operations by one name. They begin as Horovod's do.
#include <algorithm>

#include "core/joined.h"
#include "core/status.h"
#include "hvd/negotiation.h"

namespace tandem::hvd {
namespace {

std::string text_of(const Dims& shape) { return fmt::format("[{}]", joined(shape, ", ")); }

// Two ranks whose requests differ.
struct RequestPair {
  const Agreement& agreement;
  const RankNames& names;
  std::size_t a, b;
  const Request& first() const { return *agreement.requests[a]; }
  const Request& second() const { return *agreement.requests[b]; }
  std::string who() const {
    return fmt::format(" ('{}': rank {} and rank {})", first().name, names[static_cast<int>(a)],
                       names[static_cast<int>(b)]);
  }
};

std::string shapes_of(const RequestPair& pair) {
  const Request &a = pair.first(), &b = pair.second();
  const auto prefix = fmt::format("Mismatched {} tensor shapes: ", upper_name_of(a.kind));
  if (a.shapes.size() != b.shapes.size())
    return prefix +
           fmt::format(
               "One rank sent a group of {} tensors, but another rank sent a group of {} tensors.",
               a.shapes.size(), b.shapes.size()) +
           pair.who();
  for (std::size_t i = 0; i < a.shapes.size(); ++i) {
    const Dims &x = a.shapes[i], &y = b.shapes[i];
    if (x == y) continue;
    const bool rows_may_differ =
        a.kind == RequestKind::kAllgather || a.kind == RequestKind::kAlltoall;
    if (!rows_may_differ)
      return prefix +
             fmt::format(
                 "One rank sent a tensor of shape {}, but another rank sent a tensor of shape {}.",
                 text_of(x), text_of(y)) +
             pair.who();
    if (x.size() != y.size())
      return prefix +
             fmt::format(
                 "One rank sent a tensor of rank {}, but another rank sent a tensor of rank {}.",
                 x.size(), y.size()) +
             pair.who();
    for (int axis = 1; axis < x.size(); ++axis)
      if (x[axis] != y[axis])
        return prefix +
               fmt::format(
                   "One rank sent a tensor with dimension {} equal to {}, but another rank sent a "
                   "tensor with "
                   "dimension {} equal to {}.",
                   axis, x[axis], axis, y[axis]) +
               pair.who();
  }
  return {};
}

std::string dtypes_of(const RequestPair& pair) {
  const Request &a = pair.first(), &b = pair.second();
  for (std::size_t i = 0; i < std::min(a.dtypes.size(), b.dtypes.size()); ++i)
    if (a.dtypes[i] != b.dtypes[i])
      return fmt::format(
                 "Mismatched data types: One rank had type {}, but another rank had type {}.",
                 tandem::name_of(a.dtypes[i]), tandem::name_of(b.dtypes[i])) +
             pair.who();
  return {};
}

std::string mismatch_of_pair(const RequestPair& pair) {
  const Request &a = pair.first(), &b = pair.second();
  if (a.kind != b.kind)
    return fmt::format("Mismatched operations: One rank did an {}, but another rank did an {}.",
                       upper_name_of(a.kind), upper_name_of(b.kind)) +
           pair.who();
  if (std::string text = dtypes_of(pair); !text.empty()) return text;
  if (std::string text = shapes_of(pair); !text.empty()) return text;
  if (a.op != b.op)
    return fmt::format(
               "Mismatched reduction operation: One rank specified {}, but another rank specified "
               "{}.",
               name_of(a.op), name_of(b.op)) +
           pair.who();
  if (a.prescale != b.prescale || a.postscale != b.postscale)
    return fmt::format(
               "Mismatched prescale and/or postscale factors: One rank sent factors ({}, {}), but "
               "another rank "
               "sent factors ({}, {}).",
               a.prescale, a.postscale, b.prescale, b.postscale) +
           pair.who();
  if (a.root != b.root)
    return fmt::format(
               "Mismatched BROADCAST root ranks: One rank specified root rank {}, but another rank "
               "specified "
               "root rank {}.",
               pair.names[a.root], pair.names[b.root]) +
           pair.who();
  if (a.on_gpu != b.on_gpu && !a.absent && !b.absent)
    return fmt::format(
               "Mismatched {} CPU/GPU device selection: One rank specified device {}, but another "
               "rank "
               "specified device {}.",
               upper_name_of(a.kind), a.on_gpu ? "GPU" : "CPU", b.on_gpu ? "GPU" : "CPU") +
           pair.who();
  return {};
}

// The error in a request that no rank may make; empty if it is valid.
std::string describe_problem(const Request& request, std::size_t ranks) {
  const bool by_rows = request.kind == RequestKind::kAllgather ||
                       request.kind == RequestKind::kAlltoall ||
                       request.kind == RequestKind::kReducescatter;
  if (by_rows && request.shapes[0].empty())
    return fmt::format("Rank zero tried to {} a rank-zero tensor. ('{}' is a scalar)",
                       upper_name_of(request.kind), request.name);
  if (request.kind == RequestKind::kAlltoall) {
    std::int64_t rows = 0;
    bool negative = false;
    for (std::int64_t split : request.splits) {
      rows += split;
      negative = negative || split < 0;
    }
    if (request.splits.size() != ranks || rows != request.shapes[0][0] || negative)
      return fmt::format("[alltoall] '{}': expected {} splits that add up to {} rows, got [{}]",
                         request.name, ranks, request.shapes[0][0], joined(request.splits, ", "));
  }
  return {};
}

}  // namespace

std::string describe_mismatch(const Agreement& agreement, const RankNames& names) {
  std::size_t first = 0;
  while (!agreement.requests[first]) ++first;
  for (std::size_t other = first + 1; other < agreement.requests.size(); ++other) {
    if (!agreement.requests[other]) continue;
    if (std::string text = mismatch_of_pair({agreement, names, first, other}); !text.empty())
      return text;
  }
  for (const RequestRef& request : agreement.requests) {
    if (!request) continue;
    if (std::string text = describe_problem(*request, agreement.requests.size()); !text.empty())
      return text;
  }
  return {};
}

}  // namespace tandem::hvd
