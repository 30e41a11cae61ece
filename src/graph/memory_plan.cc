#include "graph/memory_plan.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "core/joined.h"
#include "core/status.h"
#include "device/allocator.h"
#include "device/memory_report.h"
#include "graph/collective.h"

namespace tandem {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostDescribed = 4;  // values, in a message
constexpr int kForever = std::numeric_limits<int>::max();

struct Life {
  int begin = 0;
  int end = 0;  // the last operation that reads it
};

class Planner {
 public:
  explicit Planner(Block& block) : block_(block) {
    for (const Value* fetch : block.fetches) leaves_.insert(&fetch->root());
    find_lives();
  }

  MemoryPlan run() {
    share_in_place();
    pack();
    place();
    return std::move(plan_);
  }

 private:
  // Operations of one device run one after another, those of different devices in parallel. So a
  // value that another device reads is live until the end of the run. No other operation runs
  // while one runs alone.
  void find_lives() {
    for (std::size_t i = 0; i < block_.operations.size(); ++i) {
      const BlockOperation& operation = *block_.operations[i];
      const int now = static_cast<int>(i);
      for (const Value* input : operation.inputs) {
        Life& life = lives_[&input->root()];
        const bool in_order = input->device == operation.device || operation.runs_alone();
        life.end = in_order ? std::max(life.end, now) : kForever;
      }
      for (const Value* output : operation.outputs) lives_[output] = {now, now};
    }
    for (const Value* root : leaves_) lives_[root].end = kForever;
  }

  bool dies_at(const Value& value, int now) const {
    return value.kind == Value::Kind::kComputed && lives_.at(&value).end == now;
  }

  void share_in_place() {
    for (std::size_t i = 0; i < block_.operations.size(); ++i) {
      const BlockOperation& operation = *block_.operations[i];
      if (!operation.has(kInPlace)) continue;
      // Collectives: each result shares the memory of its input.
      const std::size_t pairs = operation.member ? operation.outputs.size() : 1;
      for (std::size_t k = 0; k < pairs; ++k) share(operation, k, static_cast<int>(i));
    }
  }

  void share(const BlockOperation& operation, std::size_t k, int now) {
    Value& output = *operation.outputs[k];
    const Value& input = *operation.inputs[k];
    Value& root = const_cast<Value&>(input.root());
    if (!dies_at(root, now) || input.bytes() != output.bytes() || root.bytes() != output.bytes() ||
        input.spec.dtype != output.spec.dtype || leaves_.count(&output) > 0 ||
        appears_again(operation, k, root))
      return;
    become_view(output, root);
  }

  // Whether another input of the operation is the same memory.
  static bool appears_again(const BlockOperation& operation, std::size_t input, const Value& root) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      if (i != input && &operation.inputs[i]->root() == &root) return true;
    return false;
  }

  void become_view(Value& output, Value& root) {
    lives_[&root].end = lives_[&output].end;
    lives_.erase(&output);
    for (const auto& value : block_.values)
      if (value->base == &output) value->base = &root;
    output.kind = Value::Kind::kView;
    output.base = &root;
    output.offset = 0;
  }

  void pack() {
    for (const auto& operation : block_.operations) {
      if (!packs(*operation)) continue;
      for (std::size_t k = 0; k < operation->outputs.size(); ++k) {
        const Value& output = *operation->outputs[k];
        const Value& root = output.root();
        if (root.kind == Value::Kind::kComputed && leaves_.count(&root) == 0 &&
            root.bytes() == output.bytes())
          plan_.packed.try_emplace(&root, MemoryPlan::Packed{operation.get(), k});
      }
    }
  }

  // Largest first, each at the lowest offset without an overlap with values that are live
  // meanwhile.
  void place() {
    std::unordered_map<DeviceImpl*, std::vector<const Value*>> by_device;
    for (const auto& value : block_.values)
      if (value->kind == Value::Kind::kComputed && leaves_.count(value.get()) == 0 &&
          plan_.packed.count(value.get()) == 0 && lives_.count(value.get()) > 0)
        by_device[value->device].push_back(value.get());
    for (auto& [device, values] : by_device) place_on(*device, values);
  }

  void place_on(DeviceImpl& device, std::vector<const Value*>& values) {
    std::stable_sort(values.begin(), values.end(),
                     [](const Value* a, const Value* b) { return a->bytes() > b->bytes(); });
    struct Placed {
      Life life;
      MemoryPlan::Allocation at;
    };
    std::vector<Placed> placed;  // by offset
    std::size_t total = 0;
    for (const Value* value : values) {
      const std::size_t bytes = (value->bytes() + kAlignment - 1) / kAlignment * kAlignment;
      const Life life = lives_.at(value);
      std::size_t offset = 0;
      for (const Placed& other : placed) {
        if (other.life.end < life.begin || life.end < other.life.begin) continue;
        if (other.at.offset >= offset + bytes) break;
        offset = std::max(offset, other.at.offset + other.at.bytes);
      }
      const Placed here{life, {offset, bytes}};
      placed.insert(std::upper_bound(
                        placed.begin(), placed.end(), here,
                        [](const Placed& a, const Placed& b) { return a.at.offset < b.at.offset; }),
                    here);
      plan_.allocations[value] = here.at;
      total = std::max(total, offset + bytes);
      plan_.unshared_bytes[&device] += bytes;
    }
    plan_.arena_bytes[&device] = total;
  }

  Block& block_;
  std::unordered_set<const Value*> leaves_;
  std::unordered_map<const Value*, Life> lives_;  // of roots
  MemoryPlan plan_;
};

// "(axis 0 of 'x' = 64, 10)": unknown sizes of the graph with the name that it has for them.
std::string shape_text(const Value& value) {
  const Shape &shape = value.spec.shape, &symbolic = value.symbolic;
  if (!symbolic.known()) return shape.to_string();
  std::vector<std::string> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool unknown = dim::is_unknown(symbolic.word(axis));
    sizes.push_back((unknown ? dim::text(symbolic.word(axis)) + " = " : "") +
                    std::to_string(shape.word(axis)));
  }
  return fmt::format("({}{})", joined(sizes, ", "), sizes.size() == 1 ? "," : "");
}

// The shapes of the feeds, and the largest values that are allocated on the device.
std::string describe_values(const Block& block, const MemoryPlan& plan, const DeviceImpl& device) {
  std::vector<const Value*> feeds, placed;
  for (const auto& value : block.values) {
    if (value->kind == Value::Kind::kFeed) feeds.push_back(value.get());
    if (value->device == &device && plan.allocations.count(value.get()) > 0)
      placed.push_back(value.get());
  }
  std::stable_sort(feeds.begin(), feeds.end(),
                   [](const Value* a, const Value* b) { return a->index < b->index; });
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Value* a, const Value* b) { return a->bytes() > b->bytes(); });
  feeds.resize(std::min(feeds.size(), kMostDescribed));
  placed.resize(std::min(placed.size(), kMostDescribed));
  std::vector<std::string> shapes, largest;
  for (const Value* feed : feeds) shapes.push_back(shape_text(*feed));
  for (const Value* value : placed)
    largest.push_back(fmt::format("{} {} {} of {}", value->producer->op->name, shape_text(*value),
                                  name_of(value->spec.dtype),
                                  mebibytes(static_cast<std::int64_t>(value->bytes()))));
  return fmt::format("with inputs of shapes {} (largest values: {})",
                     shapes.empty() ? "none" : joined(shapes, ", "),
                     largest.empty() ? "none" : joined(largest, ", "));
}

}  // namespace

bool packs(const BlockOperation& operation) {
  if (operation.op != &kCollectiveReduce || operation.outputs.empty()) return false;
  for (const Value* output : operation.outputs)
    if (output->spec.dtype != operation.outputs[0]->spec.dtype) return false;
  return operation.member->group->packs(operation.member->rank);
}

Buckets make_buckets(const Block& block) {
  Buckets buckets;
  std::vector<std::int64_t> counts;
  for (const auto& operation : block.operations) {
    if (!packs(*operation)) continue;
    counts.clear();
    for (const Value* output : operation->outputs)
      counts.push_back(output->spec.shape.num_elements());
    const CollectiveMember& member = *operation->member;
    buckets.emplace(operation.get(), member.group->make_bucket(member.rank, counts,
                                                               operation->outputs[0]->spec.dtype));
  }
  return buckets;
}

MemoryPlan plan_memory(Block& block) { return Planner(block).run(); }

void throw_no_room(const std::string& name, const Block& block, const MemoryPlan& plan,
                   DeviceImpl& device, std::size_t bytes) {
  throw_out_of_memory(device, {.what = fmt::format("the values of a run of {} {}",
                                                   name.empty() ? "a program" : name,
                                                   describe_values(block, plan, device)),
                               .op = {},
                               .bytes = bytes});
}

}  // namespace tandem
