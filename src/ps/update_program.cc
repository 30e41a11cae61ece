#include "ps/update_program.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/status.h"
#include "graph/structural_ops.h"
#include "ops/nn/update.h"
#include "ps/rows.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::ps {

UpdateProgram::UpdateProgram(const proto::Part& part, const ResourceOf& resource_of)
    : program_(part, resource_of), sparse_(program_.num_inputs()) {
  for (const std::uint32_t feed : part.sparse_feeds()) {
    if (feed >= sparse_.size() || sparse_[feed])
      fail<InvalidArgumentError>("[{}] feed {} of {} cannot be sparse", program_.name(), feed,
                                 sparse_.size());
    const Shape& shape = program_.feed(feed).outputs[0].shape;
    if (shape.rank() == 0 || !shape.fully_defined())
      fail<InvalidArgumentError>("[{}] a feed of shape {} cannot be sparse", program_.name(),
                                 shape.to_string());
    sparse_[feed] = true;
  }
  find_update();
}

// An update of the optimizers: variable, slots, and the gradient last.
void UpdateProgram::find_update() {
  if (sparse_.size() != 1 || !sparse_[0]) return;
  const Node& gradient = program_.feed(0);
  const auto is_variable = [&](const Node::Input& input) {
    return input.node->op == &kVarHandle &&
           input.node->outputs[0].shape == gradient.outputs[0].shape;
  };
  for (const auto& node : gradient.graph->nodes()) {
    if (is_source(*node->op)) continue;
    const std::vector<Node::Input>& inputs = node->inputs;
    const bool only = !update_ && !inputs.empty() && inputs.back().node == &gradient &&
                      std::all_of(inputs.begin(), inputs.end() - 1, is_variable);
    update_ = only ? node.get() : nullptr;
    if (!only) return;
  }
}

void UpdateProgram::check_count(std::span<const Tensor> inputs) const {
  const auto expected =
      sparse_.size() + static_cast<std::size_t>(std::count(sparse_.begin(), sparse_.end(), true));
  if (inputs.size() != expected)
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", program_.name(), expected,
                               inputs.size());
}

void UpdateProgram::check(std::span<const Tensor> inputs) const {
  check_count(inputs);
  std::size_t taken = 0;
  for (std::size_t feed = 0; feed < sparse_.size(); ++feed) {
    const Tensor& input = inputs[taken++];
    if (sparse_[feed]) {
      sparse_input(feed, input, inputs[taken++]);
      continue;
    }
    const TensorType& spec = program_.feed(feed).outputs[0];
    if (input.dtype() != spec.dtype || !spec.shape.matches(input.shape()))
      fail<InvalidArgumentError>("[{}] expected input {} of shape {} and dtype {}, got {} and {}",
                                 program_.name(), feed, spec.shape.to_string(), name_of(spec.dtype),
                                 input.shape().to_string(), name_of(input.dtype()));
  }
}

std::vector<Tensor> UpdateProgram::mean(std::span<const std::vector<Tensor>> inputs) const {
  const EagerOnHost eager;
  const auto count = static_cast<double>(inputs.size());
  std::vector<Tensor> result;
  for (std::size_t feed = 0; feed < sparse_.size(); ++feed) {
    const std::size_t at = result.size();
    if (sparse_[feed]) {
      std::vector<Tensor> numbers, rows;
      for (const auto& contribution : inputs) {
        numbers.push_back(contribution[at]);
        rows.push_back(contribution[at + 1]);
      }
      const TensorType& spec = program_.feed(feed).outputs[0];
      const LookedUp all = look_up(numbers, spec.shape.word(0));
      const auto num_rows = static_cast<std::int64_t>(all.rows.size());
      Tensor sum = zeros(shape_of({.rows = num_rows}, spec.shape), {.dtype = spec.dtype});
      for (std::size_t i = 0; i < rows.size(); ++i)
        put_rows(sum, row_numbers(cast(all.positions[i], int64), num_rows, program_.name()),
                 gather(sum, all.positions[i]) + rows[i]);
      result.push_back(constant(all.rows, {.dtype = int64}));
      result.push_back(sum / count);
      continue;
    }
    Tensor sum = inputs.front()[at];
    if (is_floating(sum.dtype())) {
      for (const auto& contribution : inputs.subspan(1)) sum = sum + contribution[at];
      sum = sum / count;
    }
    result.push_back(std::move(sum));
  }
  return result;
}

void UpdateProgram::run(std::span<const Tensor> inputs,
                        std::span<const proto::RunAttributes> attributes) {
  check_count(inputs);
  std::vector<Tensor> feeds;
  std::size_t taken = 0;
  for (std::size_t feed = 0; feed < sparse_.size(); ++feed) {
    const Tensor& first = inputs[taken++];
    if (!sparse_[feed]) {
      feeds.push_back(first);
      continue;
    }
    const SparseInput input = sparse_input(feed, first, inputs[taken++]);
    if (update_ && run_on_rows(input, first, attributes)) return;
    feeds.push_back(whole(feed, input));
  }
  std::vector<Tensor> none;
  program_.run(feeds, attributes, none);
}

UpdateProgram::SparseInput UpdateProgram::sparse_input(std::size_t feed, const Tensor& numbers,
                                                       const Tensor& rows) const {
  const TensorType& spec = program_.feed(feed).outputs[0];
  const SparseInput input{row_numbers(numbers, spec.shape.word(0), program_.name()), rows};
  if (std::adjacent_find(input.numbers.begin(), input.numbers.end(), std::greater_equal<>()) !=
      input.numbers.end())
    fail<InvalidArgumentError>("[{}] expected row numbers that ascend", program_.name());
  const Shape shape = shape_of({.rows = numbers.size()}, spec.shape);
  if (rows.dtype() != spec.dtype || rows.shape() != shape)
    fail<InvalidArgumentError>("[{}] expected rows of shape {} and dtype {}, got {} and {}",
                               program_.name(), shape.to_string(), name_of(spec.dtype),
                               rows.shape().to_string(), name_of(rows.dtype()));
  return input;
}

Tensor UpdateProgram::whole(std::size_t feed, const SparseInput& input) const {
  const TensorType& spec = program_.feed(feed).outputs[0];
  Tensor result = make_tensor(DeviceManager::get().host(), spec.shape, spec.dtype);
  if (impl_of(result).bytes() > 0) std::memset(impl_of(result).data(), 0, impl_of(result).bytes());
  put_rows(result, input.numbers, input.rows);
  return result;
}

// Returns false if the other rows change, too.
bool UpdateProgram::run_on_rows(const SparseInput& gradient, const Tensor& numbers,
                                std::span<const proto::RunAttributes> attributes) {
  const std::shared_ptr<const void> attrs = program_.attributes_of(*update_, attributes);
  if (!update::skips_zeros(*update_->op, attrs.get())) return false;
  if (gradient.numbers.empty()) return true;
  const EagerOnHost eager;
  std::vector<Tensor> memory, rows;
  std::vector<const Tensor*> inputs;
  for (const Node::Input& input : update_->inputs) {
    if (input.node->op != &kVarHandle) continue;
    memory.push_back(input.node->resource->writable());
    rows.push_back(gather(memory.back(), numbers));
  }
  for (const Tensor& tensor : rows) inputs.push_back(&tensor);
  inputs.push_back(&gradient.rows);
  run_update(*update_->op, inputs, AttrsRef(&update_->op->attrs(), attrs.get()));
  for (std::size_t i = 0; i < rows.size(); ++i) put_rows(memory[i], gradient.numbers, rows[i]);
  return true;
}

}  // namespace tandem::ps
