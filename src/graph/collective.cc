#include "graph/collective.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "comm/scaled_copy.h"
#include "core/status.h"

namespace tandem {
namespace {

void infer_same(InferContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.add_output(c.dtype(i), c.shape(i));
}

void copy_view(const TensorView& from, const TensorView& to) {
  const std::size_t bytes = static_cast<std::size_t>(from.size()) * size_of(from.dtype);
  if (bytes > 0 && from.data != to.data) std::memcpy(to.data, from.data, bytes);
}

// Copies the inputs that have an output.
void copy_inputs(KernelContext& c) {
  for (int i = 0; i < std::min(c.inputs.size(), c.outputs.size()); ++i)
    copy_view(c.inputs[i], c.outputs[i]);
}

void infer_reduce(InferContext& c) {
  const int tensors = c.num_inputs() - (c.attrs<CollectiveReduceAttrs>().by_examples ? 1 : 0);
  for (int i = 0; i < tensors; ++i) c.add_output(c.dtype(i), c.shape(i));
}

void infer_gather(InferContext& c) {
  const auto& attrs = c.attrs<CollectiveGatherAttrs>();
  if (attrs.sizes.empty()) {
    constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;
    if (attrs.rank < 0 || attrs.rank >= attrs.ranks || attrs.ranks > kMaxRanks)
      fail<InvalidArgumentError>("[all_gather] expected a rank of at most {} ranks, got {} of {}",
                                 kMaxRanks, attrs.rank, attrs.ranks);
    for (std::int64_t rank = 0; rank < attrs.ranks; ++rank) c.add_output(c.dtype(0), c.shape(0));
    return;
  }
  const auto own = static_cast<std::size_t>(attrs.rank);
  if (attrs.axis < 0 || attrs.axis >= c.shape(0).rank() || own >= attrs.sizes.size() ||
      !dim::may_equal(attrs.sizes[own], c.shape(0).word(static_cast<int>(attrs.axis))) ||
      !std::all_of(attrs.sizes.begin(), attrs.sizes.end(), dim::is_size))
    fail<InvalidArgumentError>(
        "[all_gather] the value of shape {} does not match the sizes of all ranks",
        c.shape(0).to_string());
  for (std::int64_t size : attrs.sizes) {
    Shape shape = c.shape(0);
    shape.set(static_cast<int>(attrs.axis), size);
    c.add_output(c.dtype(0), shape);
  }
}

void copy_own(KernelContext& c) {
  copy_view(c.inputs[0], c.outputs[static_cast<int>(c.attrs<CollectiveGatherAttrs>().rank)]);
}

void infer_all_to_all(InferContext& c) {
  infer_same(c);
  infer_same(c);
}

void infer_receive(InferContext& c) {
  const auto& attrs = c.attrs<CollectiveReceiveAttrs>();
  c.add_output(attrs.dtype, attrs.shape);
}

void nothing(KernelContext&) {}

}  // namespace

Communicator& CollectiveGroup::communicator(int) {
  throw InternalError("[graph] a group that reduces alone was asked for another collective");
}

const OpDef kCollectiveReduce = {.name = "CollectiveReduce",
                                 .attrs = &attrs_type<CollectiveReduceAttrs>,
                                 .infer = infer_reduce,
                                 .cpu_kernel = copy_inputs,
                                 .traits = kStateful | kInPlace};
const OpDef kCollectiveBroadcast = {.name = "CollectiveBroadcast",
                                    .attrs = &attrs_type<CollectiveBroadcastAttrs>,
                                    .infer = infer_same,
                                    .cpu_kernel = copy_inputs,
                                    .traits = kStateful | kInPlace | kStorage};
const OpDef kCollectiveReduceTo = {.name = "CollectiveReduceTo",
                                   .attrs = &attrs_type<CollectiveReduceToAttrs>,
                                   .infer = infer_same,
                                   .cpu_kernel = copy_inputs,
                                   .traits = kStateful | kInPlace};
const OpDef kCollectiveGather = {.name = "CollectiveGather",
                                 .attrs = &attrs_type<CollectiveGatherAttrs>,
                                 .infer = infer_gather,
                                 .cpu_kernel = copy_own,
                                 .traits = kStateful | kStorage};
const OpDef kCollectiveReduceScatter = {.name = "CollectiveReduceScatter",
                                        .attrs = &attrs_type<CollectiveReduceAttrs>,
                                        .infer = infer_same,
                                        .cpu_kernel = copy_inputs,
                                        .traits = kStateful | kInPlace};
const OpDef kCollectiveAllToAll = {.name = "CollectiveAllToAll",
                                   .infer = infer_all_to_all,
                                   .cpu_kernel = copy_inputs,
                                   .traits = kStateful | kStorage};
const OpDef kCollectiveSend = {.name = "CollectiveSend",
                               .attrs = &attrs_type<CollectiveSendAttrs>,
                               .infer = infer_same,
                               .cpu_kernel = copy_inputs,
                               .traits = kStateful | kInPlace | kStorage};
const OpDef kCollectiveReceive = {.name = "CollectiveReceive",
                                  .attrs = &attrs_type<CollectiveReceiveAttrs>,
                                  .infer = infer_receive,
                                  .cpu_kernel = nothing,
                                  .traits = kStateful | kStorage};
const OpDef kCollectiveBarrier = {
    .name = "CollectiveBarrier",
    .infer = [](InferContext& c) { c.add_output(uint8, Shape::scalar()); },
    .cpu_kernel = nothing,
    .traits = kStateful};
const OpDef kCollectiveWait = {.name = "_CollectiveWait", .traits = kStateful};

namespace {

struct Named {
  const OpDef* op;
  std::string_view name;
};
constexpr std::array kNamed = {Named{&kCollectiveReduce, "all_reduce"},
                               Named{&kCollectiveBroadcast, "broadcast"},
                               Named{&kCollectiveReduceTo, "reduce"},
                               Named{&kCollectiveGather, "all_gather"},
                               Named{&kCollectiveReduceScatter, "reduce_scatter"},
                               Named{&kCollectiveAllToAll, "all_to_all"},
                               Named{&kCollectiveSend, "send"},
                               Named{&kCollectiveReceive, "recv"},
                               Named{&kCollectiveBarrier, "barrier"}};

}  // namespace

std::span<const OpDef* const> collective_ops() {
  static constexpr auto kOps = [] {
    std::array<const OpDef*, kNamed.size()> ops{};
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = kNamed[i].op;
    return ops;
  }();
  return kOps;
}

std::string_view user_name_of(const OpDef& collective) {
  for (const Named& named : kNamed)
    if (named.op == &collective) return named.name;
  return collective.name;
}

ReduceOp weigh(const KernelContext& context, int rank) {
  const auto& attrs = context.attrs<CollectiveReduceAttrs>();
  if (!attrs.by_examples) return attrs.op;
  const TensorView& view = context.inputs[context.inputs.size() - 1];
  const std::span counts(static_cast<const float*>(view.data),
                         static_cast<std::size_t>(view.size()));
  if (std::equal(counts.begin() + 1, counts.end(), counts.begin())) return ReduceOp::kMean;
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double share = static_cast<double>(counts[static_cast<std::size_t>(rank)]) / all;
  for (const TensorView& output : context.outputs)
    copy_scaled(output.data, output.dtype, output.data, output.dtype, output.size(), share);
  return ReduceOp::kSum;
}

std::shared_ptr<CollectiveWork> start_collective(const OpDef& op, const void* attrs,
                                                 Communicator& communicator,
                                                 std::span<const Buffer> outputs) {
  const auto as = [attrs]<class A>(const A&) -> const A& { return *static_cast<const A*>(attrs); };
  const auto mine = static_cast<std::size_t>(communicator.rank());
  if (&op == &kCollectiveBroadcast)
    return communicator.broadcast(outputs, static_cast<int>(as(CollectiveBroadcastAttrs()).root));
  if (&op == &kCollectiveReduceTo) {
    const auto& how = as(CollectiveReduceToAttrs());
    return communicator.reduce(outputs, how.op, static_cast<int>(how.root));
  }
  if (&op == &kCollectiveGather) return communicator.all_gather(outputs[mine], outputs);
  if (&op == &kCollectiveReduceScatter)
    return communicator.reduce_scatter(outputs, outputs[mine], as(CollectiveReduceAttrs()).op);
  if (&op == &kCollectiveAllToAll) {
    const std::size_t ranks = outputs.size() / 2;
    return communicator.all_to_all(outputs.first(ranks), outputs.last(ranks));
  }
  if (&op == &kCollectiveSend)
    return communicator.send(outputs[0], static_cast<int>(as(CollectiveSendAttrs()).peer));
  if (&op == &kCollectiveReceive)
    return communicator.recv(outputs[0], static_cast<int>(as(CollectiveReceiveAttrs()).peer));
  TANDEM_ASSERT(&op == &kCollectiveBarrier);
  return communicator.barrier();
}

}  // namespace tandem
