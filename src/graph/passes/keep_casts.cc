#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

struct OperationOfBlock {
  Block* block;
  BlockOperation* operation;
};

// The uses of one variable in a program.
struct VariableUses {
  std::vector<std::pair<Block*, Value*>> memory;  // in each block that knows the variable
  std::vector<OperationOfBlock> casts;    // of its elements, which may read the copy instead
  std::vector<OperationOfBlock> updates;  // that can write the copy
  std::vector<BlockOperation*> controls;  // control flow whose bodies write the variable
  bool written_otherwise = false;
  Resource::WithCast resources;  // set if the variable has a copy
  DType dtype = float32;         // of the copy
};

bool is_16_bit(DType dtype) { return dtype == bfloat16 || dtype == float16; }

bool is_weight_cast(const BlockOperation& operation) {
  if (operation.op->name != "Cast") return false;
  const Value &from = *operation.inputs[0], &to = *operation.outputs[0];
  return from.root().kind == Value::Kind::kVariable && from.root().spec.dtype == float32 &&
         from.bytes() == from.root().bytes() && is_16_bit(to.spec.dtype) &&
         operation.device == from.root().device;
}

bool can_write_cast(const BlockOperation& operation, std::size_t input) {
  return input == 0 && operation.has(kWritesCast);
}

class KeepCasts {
 public:
  std::vector<RefPtr<Resource>> run(Block& block) {
    collect(block);
    std::vector<RefPtr<Resource>> copies;
    for (auto& [identity, uses] : variables_) {
      if (!prepare(uses)) continue;
      rewrite(uses);
      copies.push_back(uses.resources.copy);
    }
    return copies;
  }

 private:
  void collect(Block& block) {
    for (const auto& value : block.values)
      if (value->kind == Value::Kind::kVariable)
        uses_of(*value).memory.emplace_back(&block, value.get());
    for (const auto& operation : block.operations) {
      collect_writes(block, *operation);
      if (is_weight_cast(*operation) && can_read_copy(block, *operation))
        uses_of(operation->inputs[0]->root()).casts.push_back({&block, operation.get()});
      if (operation->control)
        for (BodyBlock& body : operation->control->bodies) collect(body.block);
    }
  }

  void collect_writes(Block& block, BlockOperation& operation) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Value& root = operation.inputs[i]->root();
      if (root.kind != Value::Kind::kVariable || !operation.mutates(i)) continue;
      VariableUses& uses = uses_of(root);
      // A body that is lowered during the run is not known here.
      if (operation.control && !operation.control->body_for)
        uses.controls.push_back(&operation);
      else if (!operation.control && can_write_cast(operation, i))
        uses.updates.push_back({&block, &operation});
      else
        uses.written_otherwise = true;
    }
  }

  // Whether all users of the cast run before the next write of the variable. A fetch is used after
  // the run, and a collective reads its inputs while later operations run.
  static bool can_read_copy(const Block& block, const BlockOperation& cast) {
    const Value &result = *cast.outputs[0], &variable = cast.inputs[0]->root();
    for (const Value* fetch : block.fetches)
      if (&fetch->root() == &result) return false;
    bool after_cast = false, written = false;
    for (const auto& operation : block.operations) {
      if (operation.get() == &cast) after_cast = true;
      if (!after_cast) continue;
      for (std::size_t i = 0; i < operation->inputs.size(); ++i)
        written |= operation->mutates(i) && &operation->inputs[i]->root() == &variable;
      for (const Value* input : operation->inputs)
        if (&input->root() == &result && (written || operation->member)) return false;
    }
    return true;
  }

  // Chooses the copy's dtype; false if the variable cannot have a copy.
  static bool prepare(VariableUses& uses) {
    if (uses.written_otherwise || uses.casts.empty()) return false;
    uses.dtype = uses.casts[0].operation->outputs[0]->spec.dtype;
    std::erase_if(uses.casts, [&](const OperationOfBlock& cast) {
      return cast.operation->outputs[0]->spec.dtype != uses.dtype;
    });
    uses.resources = uses.memory[0].second->resource->with_cast(uses.dtype);
    return static_cast<bool>(uses.resources.copy);
  }

  static void rewrite(VariableUses& uses) {
    std::unordered_map<const Value*, Value*> copies;  // of the variable in each block
    for (const auto& [block, memory] : uses.memory) {
      memory->resource = uses.resources.memory;
      Value& copy =
          block->add_value(uses.resources.copy->spec(), *memory->device, Value::Kind::kVariable);
      copy.resource = uses.resources.copy;
      copies[memory] = &copy;
    }
    for (const OperationOfBlock& cast : uses.casts) {
      const Value& result = *cast.operation->outputs[0];
      Value& read = cast.block->add_value(result.spec, *result.device, Value::Kind::kView);
      read.base = copies.at(&cast.operation->inputs[0]->root());
      replace_value(*cast.block, *cast.operation->outputs[0], read);
      erase_operations(*cast.block, {cast.operation});
    }
    for (const OperationOfBlock& update : uses.updates) {
      take_narrow_gradient(update, uses.dtype);
      update.operation->inputs.push_back(copies.at(&update.operation->inputs[0]->root()));
    }
    for (BlockOperation* operation : uses.controls) write_in(*operation, copies);
  }

  // If the gradient is the cast of one in the copy's dtype, and nothing else uses the cast, the
  // update reads the original.
  static void take_narrow_gradient(const OperationOfBlock& update, DType dtype) {
    Value*& gradient = update.operation->inputs.back();
    BlockOperation* cast = gradient->kind == Value::Kind::kComputed ? gradient->producer : nullptr;
    if (!cast || cast->op->name != "Cast" || cast->device != update.operation->device) return;
    Value& original = *cast->inputs[0];
    if (original.spec.dtype != dtype || original.root().kind != Value::Kind::kComputed ||
        count_uses(*update.block).at(gradient) != 1)
      return;
    gradient = &original;
    erase_operations(*update.block, {cast});
  }

  // The memory of the copy becomes an input of control flow that writes it, so that operations that
  // read the copy keep their order.
  static void write_in(BlockOperation& operation,
                       const std::unordered_map<const Value*, Value*>& copies) {
    for (std::size_t i = 0, count = operation.inputs.size(); i < count; ++i) {
      const auto copy = copies.find(&operation.inputs[i]->root());
      if (copy == copies.end() || !operation.mutates(i)) continue;
      operation.inputs.push_back(copy->second);
      operation.control->writes.push_back(true);
    }
  }

  VariableUses& uses_of(const Value& variable) { return variables_[variable.resource->identity()]; }

  std::unordered_map<const void*, VariableUses> variables_;
};

}  // namespace

std::vector<RefPtr<Resource>> keep_casts(Block& block) { return KeepCasts().run(block); }

}  // namespace tandem
