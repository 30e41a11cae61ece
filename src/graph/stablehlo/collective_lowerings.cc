// Collectives in StableHLO. The replicas that run a module are the ranks of its collectives.
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "graph/collective.h"
#include "graph/stablehlo/expression.h"
#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {
namespace {

std::int64_t ranks_of(const Context& c) { return c.node().member->group->size(); }

// "replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>": one group of all ranks.
std::string all_ranks(const Context& c) {
  std::string ranks;
  for (std::int64_t rank = 0; rank < ranks_of(c); ++rank)
    ranks += fmt::format("{}{}", rank > 0 ? ", " : "", rank);
  return fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", ranks, ranks_of(c));
}

Value all_reduce(Context& c, const Value& x, std::string_view operation) {
  const Type scalar(x.element(), Shape::scalar());
  const std::string body =
      c.build.region(std::array{scalar, scalar}, [&](std::span<const Value> both) {
        return std::vector<Value>{c.build.binary(operation, both[0], both[1])};
      });
  return c.build.add("all_reduce", {&x, 1}, {&body, 1}, all_ranks(c), {&x.type, 1}).front();
}

// As the communicators: 16-bit sums are rounded once.
void lower_reduce(Context& c) {
  const auto& attrs = c.attrs<CollectiveReduceAttrs>();
  if (attrs.by_examples) c.refuse("it weights ranks by their numbers of examples");
  if (attrs.op == ReduceOp::kTreeSum) c.refuse("it adds in the order of a tree");
  std::string_view operation = "add";
  if (attrs.op == ReduceOp::kMin) operation = "minimum";
  if (attrs.op == ReduceOp::kMax) operation = "maximum";
  if (attrs.op == ReduceOp::kProduct) operation = "multiply";
  for (std::size_t i = 0; i < c.num_inputs(); ++i) {
    const Value& x = c.input(i);
    const bool narrow = is_floating(x.element()) && bits_of(x.element()) == 16;
    Expression sum(c.build,
                   all_reduce(c, narrow ? c.build.convert(x, Element::kF32) : x, operation));
    if (attrs.op == ReduceOp::kMean) sum = sum / static_cast<double>(ranks_of(c));
    c.result(i, sum.as(x.element()).value());
  }
}

void lower_broadcast(Context& c) {
  const Value& x = c.input(0);
  const Value rank = c.build.add("replica_id", {}, "", {Element::kU32, Shape::scalar()});
  const Value root = c.build.integer(
      static_cast<std::uint64_t>(c.attrs<CollectiveBroadcastAttrs>().root), rank.type);
  // The other ranks add nothing. Not a product with 0, which would be NaN for infinities.
  const Value is_root = c.build.broadcast(c.build.compare("EQ", rank, root), x.shape(), {});
  const bool is_bool = x.element() == Element::kBool;
  const Value zero = c.build.like(x, 0.0);
  c.result(all_reduce(c, c.build.select(is_root, x, zero), is_bool ? "or" : "add"));
}

void lower_gather(Context& c) {
  const auto& attrs = c.attrs<CollectiveGatherAttrs>();
  for (const std::int64_t size : attrs.sizes)
    if (size != attrs.sizes[0]) c.refuse("the ranks gather tensors of different sizes");
  // Gathered along a new first axis; one slice per rank.
  const Value& x = c.input(0);
  const Value row = c.build.reshape(x, x.shape().with_leading(1));
  const Type all(x.element(), x.shape().with_leading(ranks_of(c)));
  const Value gathered =
      c.build.add("all_gather", {&row, 1}, "all_gather_dim = 0 : i64, " + all_ranks(c), all);
  Axes begin(static_cast<std::size_t>(gathered.rank()), 0), end;
  for (const std::int64_t size : gathered.shape().words()) end.push_back(size);
  for (std::size_t rank = 0; rank < c.num_outputs(); ++rank) {
    begin[0] = static_cast<std::int64_t>(rank);
    end[0] = begin[0] + 1;
    c.result(rank, c.build.reshape(c.build.slice(gathered, begin, end), x.shape()));
  }
}

constexpr Lowering kCollectiveLowerings[] = {
    {"CollectiveBroadcast", lower_broadcast},
    {"CollectiveGather", lower_gather},
    {"CollectiveReduce", lower_reduce},
};

}  // namespace

std::span<const Lowering> collective_lowerings() { return kCollectiveLowerings; }

}  // namespace tandem::stablehlo
