#include "ps/row_gradient.h"

#include "core/status.h"
#include "ops/array/array_ops.h"
#include "ps/rows.h"

namespace tandem::ps {

RowGradient::RowGradient(const proto::RowGradient& message, const proto::Part& worker)
    : function_(worker.name()), message_(message) {
  const auto check = [&](std::uint32_t fetch) {
    if (fetch >= static_cast<std::uint32_t>(worker.function().fetches_size()))
      fail<InvalidArgumentError>("[{}] a gradient uses result {}, which does not exist", function_,
                                 fetch);
  };
  for (const proto::RowGradient::Lookup& lookup : message.lookups()) {
    check(lookup.rows());
    check(lookup.indices());
  }
  for (const std::uint32_t operand : message.operands()) check(operand);
  if (message.has_formula()) {
    formula_.emplace(
        message.formula(), [&](std::span<const Shard>, const TensorType&) -> RefPtr<Resource> {
          fail<InvalidArgumentError>("[{}] a gradient depends on a variable", function_);
        });
    if (message.formula().function().fetches_size() != 1)
      fail<InvalidArgumentError>("[{}] expected a gradient of one tensor, got {}", function_,
                                 message.formula().function().fetches_size());
  }
  message_.mutable_formula()->clear_function();
  if (message.lookups().empty() || (!formula_ && message.lookups_size() != 1))
    fail<InvalidArgumentError>("[{}] a gradient of {} look-ups", function_, message.lookups_size());
}

RowGradient::Rows RowGradient::rows(std::span<const Tensor> results) {
  std::vector<Tensor> indices;
  std::int64_t total = 0;
  for (const proto::RowGradient::Lookup& lookup : message_.lookups())
    total += indices.emplace_back(results[lookup.indices()]).size();
  LookedUp found = look_up(indices, message_.rows());
  const auto distinct = static_cast<std::int64_t>(found.rows.size());
  const EagerOnHost eager;
  std::vector<Tensor> sums;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Tensor rows = copy_to_device(results[message_.lookups(static_cast<int>(i)).rows()],
                                       DeviceManager::get().host());
    if (rows.rank() < indices[i].rank())
      fail<InvalidArgumentError>("[{}] rows of shape {} for indices of shape {}", function_,
                                 rows.shape().to_string(), indices[i].shape().to_string());
    // A formula gets as many rows as there are indices, so that its program serves all runs.
    Dims sizes = {formula_ ? total : distinct};
    for (int axis = indices[i].rank(); axis < rows.rank(); ++axis)
      sizes.push_back(rows.size_word(axis));
    sums.push_back(add_to_rows(rows, found.positions[i], Shape(sizes)));
  }
  Tensor values = formula_ ? apply_formula(std::move(sums), results, distinct) : sums.front();
  return {std::move(found.rows), std::move(values)};
}

Tensor RowGradient::apply_formula(std::vector<Tensor> sums, std::span<const Tensor> results,
                                  std::int64_t count) {
  std::vector<Tensor> inputs = std::move(sums), outputs;
  for (const std::uint32_t operand : message_.operands()) inputs.push_back(results[operand]);
  formula_->run(inputs, {}, outputs);
  const Tensor rows = copy_to_device(outputs.front(), DeviceManager::get().host());
  if (rows.rank() == 0 || rows.size_word(0) < count)
    fail<InvalidArgumentError>("[{}] expected {} rows of a gradient, got shape {}", function_,
                               count, rows.shape().to_string());
  return view_rows(rows, 0, count);
}

}  // namespace tandem::ps
