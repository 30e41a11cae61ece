#include "core/parallel.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/tiles.h"

namespace tandem {
namespace {

// An operand of a member: an input of the whole, or what an earlier member left in a buffer.
struct Operand {
  bool external = true;
  int index = 0;
};

struct FusedAttrs {
  struct Member : MemberAttrs {
    std::vector<Operand> inputs;
    int buffer = 0;  // where the output goes; the last member's is the output of the whole
    DType dtype = float32;
  };
  std::vector<Member> members;
  int num_buffers = 0;

  template <class F>
  void fields(F&&) const {}
};

constexpr std::int64_t kBufferBytes = kTileElements * 8;

void run_tile(const FusedAttrs& attrs, const KernelContext& whole, std::int64_t begin,
              std::int64_t count, std::byte* buffers) {
  for (const FusedAttrs::Member& member : attrs.members) {
    KernelContext context;
    context.workspace = whole.workspace;
    for (const Operand& operand : member.inputs) {
      if (operand.external) {
        context.inputs.push_back(part_of(whole.inputs[operand.index], begin, count));
      } else {
        const auto& writer = attrs.members[static_cast<std::size_t>(operand.index)];
        context.inputs.push_back(
            {buffers + writer.buffer * kBufferBytes, writer.dtype, Shape({count})});
      }
    }
    if (&member == &attrs.members.back())
      context.outputs.push_back(part_of(whole.outputs[0], begin, count));
    else
      context.outputs.push_back(
          {buffers + member.buffer * kBufferBytes, member.dtype, Shape({count})});
    run_member(member, context);
  }
}

void fused_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<FusedAttrs>();
  const std::int64_t size = c.outputs[0].size();
  parallel_for(size, 8 * kTileElements, [&](std::int64_t begin, std::int64_t end) {
    thread_local std::vector<std::byte> buffers;
    buffers.resize(
        std::max(buffers.size(), static_cast<std::size_t>(attrs.num_buffers * kBufferBytes)));
    for (std::int64_t at = begin; at < end; at += kTileElements)
      run_tile(attrs, c, at, std::min(kTileElements, end - at), buffers.data());
  });
}

const OpDef kFused = {.name = "_FusedElementwise",
                      .attrs = &attrs_type<FusedAttrs>,
                      .cpu_kernel = fused_kernel,
                      .traits = kElementwise | kInPlace};

// Operations that will be one, in order; the last one's output is the result.
struct Group {
  std::vector<Operation*> members;
  std::size_t position = 0;  // of the last member in the block
};

class Fusion {
 public:
  explicit Fusion(Block& block) : block_(block), uses_(count_uses(block)) {}

  void run() {
    for (std::size_t i = 0; i < block_.operations.size(); ++i) visit(*block_.operations[i], i);
    std::unordered_set<const Operation*> gone;
    for (const auto& group : groups_) {
      if (!group || group->members.size() < 2) continue;
      fuse(*group);
      for (std::size_t i = 0; i + 1 < group->members.size(); ++i) gone.insert(group->members[i]);
    }
    erase_operations(block_, gone);
  }

 private:
  static bool suits(const Operation& operation) {
    if (!operation.has(kElementwise) || operation.op == &kFused || !is_pure(operation) ||
        operation.renewal || operation.outputs.size() != 1 || !operation.op->cpu_kernel ||
        operation.inputs.empty() || operation.device->backend() == DeviceBackend::kCuda)
      return false;
    const std::int64_t size = operation.outputs[0]->spec.shape.num_elements();
    for (const Value* input : operation.inputs) {
      const std::int64_t elements = input->spec.shape.num_elements();
      if (elements != size && elements != 1) return false;
    }
    return true;
  }

  void visit(Operation& operation, std::size_t position) {
    note_writes(operation, position);
    if (!suits(operation)) return;
    auto group = std::make_unique<Group>();
    for (Value* input : operation.inputs) {
      const auto at = group_of_.find(input->producer);
      if (input->kind != Value::Kind::kComputed || at == group_of_.end()) continue;
      std::unique_ptr<Group>& joined = groups_[at->second];
      if (!joined || !may_join(*joined, *input, operation)) continue;
      group->members.insert(group->members.end(), joined->members.begin(), joined->members.end());
      joined.reset();
    }
    // Groups that were joined are each in order, and what one hands to another it hands through
    // this operation alone.
    group->members.push_back(&operation);
    group->position = position;
    group_of_[&operation] = groups_.size();
    groups_.push_back(std::move(group));
  }

  // The group's result is used by `operation` alone, on its device, for each of its elements, and
  // nothing that the group reads changes before the operation's turn.
  bool may_join(const Group& group, const Value& result, const Operation& operation) {
    if (uses_[&result] != 1 || result.producer->device != operation.device ||
        result.spec.shape.num_elements() != operation.outputs[0]->spec.shape.num_elements())
      return false;
    for (const Operation* member : group.members)
      for (const Value* input : member->inputs)
        if (const auto at = written_.find(&input->root());
            at != written_.end() && at->second > group.position)
          return false;
    return true;
  }
  void note_writes(const Operation& operation, std::size_t position) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      if (operation.mutates(i)) written_[&operation.inputs[i]->root()] = position;
  }

  void fuse(const Group& group) {
    FusedAttrs attrs;
    std::vector<Value*> externals;
    std::unordered_map<const Value*, int> member_of;
    for (Operation* operation : group.members) {
      FusedAttrs::Member& member = attrs.members.emplace_back();
      member.op = operation->op;
      member.attrs = operation->attrs;
      member.dtype = operation->outputs[0]->spec.dtype;
      member.buffer = attrs.num_buffers++;
      for (Value* input : operation->inputs) {
        if (const auto at = member_of.find(input); at != member_of.end()) {
          member.inputs.push_back({false, at->second});
          continue;
        }
        auto at = std::find(externals.begin(), externals.end(), input);
        if (at == externals.end()) at = externals.insert(externals.end(), input);
        member.inputs.push_back({true, static_cast<int>(at - externals.begin())});
      }
      member_of[operation->outputs[0]] = static_cast<int>(attrs.members.size()) - 1;
    }
    put_shareable_first(attrs, externals, *group.members.back()->outputs[0]);
    Operation& fused = *group.members.back();
    fused.op = &kFused;
    fused.attrs = std::make_shared<const FusedAttrs>(std::move(attrs));
    fused.inputs = std::move(externals);
  }

  // Memory is shared with the first input only: one that is as large as the output.
  static void put_shareable_first(FusedAttrs& attrs, std::vector<Value*>& externals,
                                  const Value& output) {
    const auto at = std::find_if(externals.begin(), externals.end(), [&](const Value* value) {
      return value->kind != Value::Kind::kConstant && value->spec.dtype == output.spec.dtype &&
             value->bytes() == output.bytes();
    });
    if (at == externals.end() || at == externals.begin()) return;
    const int place = static_cast<int>(at - externals.begin());
    std::swap(externals.front(), *at);
    for (FusedAttrs::Member& member : attrs.members)
      for (Operand& operand : member.inputs) {
        if (!operand.external) continue;
        if (operand.index == 0)
          operand.index = place;
        else if (operand.index == place)
          operand.index = 0;
      }
  }

  Block& block_;
  std::unordered_map<const Value*, int> uses_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<const Operation*, std::size_t> group_of_;
  std::unordered_map<const Value*, std::size_t> written_;  // when each memory was last written
};

}  // namespace

void fuse_elementwise(Block& block) { Fusion(block).run(); }

}  // namespace tandem
