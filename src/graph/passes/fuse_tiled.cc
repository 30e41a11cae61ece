#include "graph/passes/fused_tiled.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

class Chains final : public TileHooks {
 public:
  Chains(const TiledAttrs& attrs, const KernelContext& whole) : attrs_(attrs), whole_(whole) {
    after_externals_.push_back(whole.outputs[0]);
    for (int i = whole.inputs.size() - attrs.after_inputs; i < whole.inputs.size(); ++i)
      after_externals_.push_back(whole.inputs[i]);
  }
  void before(std::int64_t begin, std::int64_t count) const override {
    if (!attrs_.before.empty())
      attrs_.before.run({whole_.inputs.begin(), whole_.inputs.end()}, whole_.outputs[0],
                        whole_.workspace, begin, count);
  }
  void after(std::int64_t begin, std::int64_t count) const override {
    if (!attrs_.after.empty())
      attrs_.after.run({after_externals_.begin(), after_externals_.end()}, whole_.outputs[0],
                       whole_.workspace, begin, count);
  }

 private:
  const TiledAttrs& attrs_;
  const KernelContext& whole_;
  InlineList<TensorView> after_externals_;
};

void tiled_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<TiledAttrs>();
  KernelContext inner;
  inner.op = attrs.inner.op;
  inner.attrs_data = attrs.inner.attrs.get();
  inner.workspace = c.workspace;
  inner.kept = c.kept;
  if (!attrs.before.empty()) inner.inputs.push_back(c.outputs[0]);
  for (int i = attrs.before_inputs; i < c.inputs.size() - attrs.after_inputs; ++i)
    inner.inputs.push_back(c.inputs[i]);
  inner.outputs = c.outputs;
  attrs.inner.op->tiled_kernel(inner, Chains(attrs, c));
}

// On CUDA, chains without a kernel are not fused. CPU kernels convert whole float16 tensors, so
// that chains could not run in between.
bool takes_chains(const BlockOperation& operation) {
  if (!operation.op->tiled_kernel || !is_pure(operation) || operation.attr_update) return false;
  return operation.device->backend() != DeviceBackend::kCuda
             ? operation.outputs[0]->spec.dtype != float16
             : cuda_chains() && cuda_chains()->tiles(operation);
}
bool fits(const BlockOperation& chain) {
  return chain.device->backend() != DeviceBackend::kCuda ||
         cuda_chains()->fits(ElementChain::of(chain), chain.inputs.size(), true);
}

class TiledFusion {
 public:
  explicit TiledFusion(Block& block) : block_(block), uses_(count_uses(block)) {
    for (std::size_t i = 0; i < block.operations.size(); ++i) {
      const BlockOperation& operation = *block.operations[i];
      position_[&operation] = i;
      for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
        const Value* input = operation.inputs[k];
        user_[input] = &operation;
        if (operation.mutates(k)) writes_[&input->root()].push_back(i);
      }
    }
  }

  void run() {
    for (const auto& operation : block_.operations)
      if (takes_chains(*operation)) fuse(*operation);
    erase_operations(block_, gone_);
  }

 private:
  bool written_between(const Value& value, std::size_t from, std::size_t to) const {
    const auto writes = writes_.find(&value.root());
    return writes != writes_.end() &&
           std::any_of(writes->second.begin(), writes->second.end(),
                       [&](std::size_t at) { return from < at && at < to; });
  }
  bool used_once(const Value& value) const { return uses_.at(&value) == 1; }

  // The chain that computes input 0, has no other user, and can run as late as the operation.
  const BlockOperation* chain_before(const BlockOperation& operation) const {
    const Value& made = *operation.inputs[0];
    const TensorType& output = operation.outputs[0]->spec;
    if (!operation.has(kInPlace) || made.kind != Value::Kind::kComputed || !used_once(made) ||
        made.spec.dtype != output.dtype || !(made.spec.shape == output.shape))
      return nullptr;
    const BlockOperation& maker = *made.producer;
    if (!is_chain(maker) || maker.device != operation.device || !fits(maker)) return nullptr;
    for (const Value* input : maker.inputs)
      if (written_between(*input, position_.at(&maker), position_.at(&operation))) return nullptr;
    return &maker;
  }

  // The chain that is the only user of output 0 and can run as early as the operation.
  const BlockOperation* chain_after(const BlockOperation& operation) const {
    const Value& output = *operation.outputs[0];
    const auto user = user_.find(&output);
    if (user == user_.end() || !used_once(output)) return nullptr;
    const BlockOperation& taker = *user->second;
    const TensorType& result = taker.outputs[0]->spec;
    if (!is_chain(taker) || taker.device != operation.device ||
        taker.inputs.size() > kMaxInlineTensors || result.dtype != output.spec.dtype ||
        !(result.shape == output.spec.shape) || !fits(taker))
      return nullptr;
    const std::size_t here = position_.at(&operation);
    for (const Value* input : taker.inputs) {
      if (input == &output) continue;
      const Value& root = input->root();
      const bool late = root.kind == Value::Kind::kComputed && position_.at(root.producer) >= here;
      if (late || written_between(root, here, position_.at(&taker))) return nullptr;
    }
    return &taker;
  }

  void fuse(BlockOperation& operation) {
    const BlockOperation *before = chain_before(operation), *after = chain_after(operation);
    if (!before && !after) return;
    TiledAttrs attrs;
    attrs.inner.op = operation.op;
    attrs.inner.attrs = operation.attrs;
    std::vector<Value*> inputs = operation.inputs;
    if (before) {
      attrs.before = ElementChain::of(*before);
      attrs.before_inputs = static_cast<int>(before->inputs.size());
      inputs.erase(inputs.begin());
      inputs.insert(inputs.begin(), before->inputs.begin(), before->inputs.end());
      gone_.insert(before);
    }
    if (after) {
      attrs.after = ElementChain::of(*after);
      std::vector<int> place_of;
      for (Value* input : after->inputs) {
        place_of.push_back(input == operation.outputs[0] ? 0 : ++attrs.after_inputs);
        if (place_of.back() > 0) inputs.push_back(input);
      }
      attrs.after.renumber(place_of);
      take_over(operation, *after);
    }
    operation.op = operation.has(kInPlace) ? &kFusedTiledInPlace : &kFusedTiled;
    operation.attrs = std::make_shared<const TiledAttrs>(std::move(attrs));
    operation.inputs = std::move(inputs);
  }

  // Output 0 of `operation` becomes the result of `after`.
  void take_over(BlockOperation& operation, const BlockOperation& after) {
    Value* result = after.outputs[0];
    operation.outputs[0] = result;
    result->producer = &operation;
    result->index = 0;
    for (const auto& each : block_.operations)
      if (each->copied_from == &after) each->copied_from = &operation;
    gone_.insert(&after);
  }

  Block& block_;
  std::unordered_map<const Value*, int> uses_;
  std::unordered_map<const Value*, const BlockOperation*> user_;  // the last one
  std::unordered_map<const BlockOperation*, std::size_t> position_;
  std::unordered_map<const Value*, std::vector<std::size_t>> writes_;
  std::unordered_set<const BlockOperation*> gone_;
};

}  // namespace

const OpDef kFusedTiled = {
    .name = "_FusedTiled", .attrs = &attrs_type<TiledAttrs>, .cpu_kernel = tiled_kernel};
const OpDef kFusedTiledInPlace = {.name = "_FusedTiled",
                                  .attrs = &attrs_type<TiledAttrs>,
                                  .cpu_kernel = tiled_kernel,
                                  .traits = kInPlace};

void fuse_tiled(Block& block) { TiledFusion(block).run(); }

}  // namespace tandem
