#include "graph/symbolic_shape.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kFirst = -(std::int64_t{1} << 40);
constexpr std::int64_t kDistance = 1 << 12;

bool is_unknown(std::int64_t number) { return number <= kFirst / 2; }

// Which unknown size the number is; -1 when something was computed with one.
std::int64_t index_of(std::int64_t number) {
  const std::int64_t behind = kFirst - number;
  return behind >= 0 && behind % kDistance == 0 ? behind / kDistance : -1;
}

template <class F>
void visit_integers(const AttrsType& type, void* attrs, const F& visit) {
  type.visit_integers(
      attrs, [](void* user, std::int64_t& number) { (*static_cast<const F*>(user))(number); },
      const_cast<F*>(&visit));
}

// `attrs` copied, with each unknown size replaced by replacement(size).
template <class F>
std::shared_ptr<const void> replaced(const AttrsType& type, const void* attrs,
                                     const F& replacement) {
  std::shared_ptr<const void> copy = type.copy(attrs);
  if (!copy) return copy;
  // The copy is ours alone until it is returned.
  visit_integers(type, const_cast<void*>(copy.get()), [&](std::int64_t& number) {
    if (is_unknown(number)) number = replacement(number);
  });
  return copy;
}

// One way of choosing trial sizes for unknown ones: what is known to be a sum is one here, too.
class Trial {
 public:
  Trial(const SymbolicSizes& sizes, std::int64_t first, std::int64_t step)
      : known_(sizes), first_(first), step_(step) {}

  std::int64_t size(std::int64_t unknown) {
    if (const SizeSum* sum = known_.sum_of(unknown)) {
      std::int64_t total = sum->constant;
      for (const auto& [part, times] : sum->parts) total += times * size(part);
      if (total > 0 && total <= kMaxSum) {
        unknown_of_.try_emplace(total, unknown);
        return total;
      }
    }
    const auto [at, added] = sizes_.try_emplace(unknown, first_);
    if (added) {
      unknown_of_.try_emplace(first_, unknown);
      first_ += step_;
    }
    return at->second;
  }
  // The sizes that were chosen freely.
  const std::map<std::int64_t, std::int64_t>& chosen() const { return sizes_; }
  void raise(std::int64_t unknown, std::int64_t by) { sizes_.at(unknown) += by; }
  // The unknown size that this trial size stands for; 0: none.
  std::int64_t unknown(std::int64_t size) const {
    const auto at = unknown_of_.find(size);
    return at == unknown_of_.end() ? 0 : at->second;
  }

 private:
  static constexpr std::int64_t kMaxSum = std::int64_t{1} << 22;

  const SymbolicSizes& known_;
  std::int64_t first_, step_;
  std::map<std::int64_t, std::int64_t> sizes_, unknown_of_;
};

std::vector<TensorSpec> infer_with(Trial& trial, const OpDef& op, AttrsRef attrs,
                                   std::span<const TensorSpec* const> inputs) {
  std::vector<TensorSpec> specs;
  specs.reserve(inputs.size());
  for (const TensorSpec* input : inputs) {
    TensorSpec& spec = specs.emplace_back(*input);
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      if (spec.shape[axis] < 0) spec.shape.set(axis, trial.size(spec.shape[axis]));
  }
  const auto filled = replaced(*attrs.type, attrs.data, [&](std::int64_t unknown) {
    if (index_of(unknown) < 0)
      fail<InvalidArgumentError>(
          "[{}] an attribute was computed from a size that is not known before the graph runs",
          op.name);
    return trial.size(unknown);
  });
  InferContext context(op, {attrs.type, filled ? filled.get() : attrs.data});
  for (const TensorSpec& spec : specs) context.inputs.push_back(&spec);
  op.infer(context);
  return {context.outputs.begin(), context.outputs.end()};
}

// Whether output `index` of `op` has along `axis` a sum of the sizes that the trials chose.
std::optional<SizeSum> find_sum(const Trial& first, const Trial& second, std::int64_t in_first,
                                std::int64_t in_second, std::size_t index, int axis,
                                const OpDef& op, AttrsRef attrs,
                                std::span<const TensorSpec* const> inputs) {
  // Many numbers divide it, so that strides and groups do not spoil the trial.
  constexpr std::int64_t kRaise = 840, kMaxTimes = 32;
  SizeSum sum{.constant = in_first};
  std::int64_t check = 0;
  for (const auto& [size, chosen] : first.chosen()) {
    Trial raised = first;
    raised.raise(size, kRaise);
    std::int64_t change = 0;
    try {
      change = infer_with(raised, op, attrs, inputs)[index].shape[axis] - in_first;
    } catch (const InvalidArgumentError&) {
      return std::nullopt;
    }
    if (change == 0) continue;
    const std::int64_t times = change / kRaise;
    if (change % kRaise != 0 || times < -kMaxTimes || times > kMaxTimes) return std::nullopt;
    sum.parts.emplace_back(size, times);
    sum.constant -= times * chosen;
    const auto other = second.chosen().find(size);
    if (other == second.chosen().end()) return std::nullopt;
    check += times * other->second;
  }
  if (sum.parts.empty() || sum.constant + check != in_second) return std::nullopt;
  return sum;
}

bool any_unknown(AttrsRef attrs, std::span<const TensorSpec* const> inputs) {
  for (const TensorSpec* input : inputs)
    if (!input->shape.fully_defined()) return true;
  bool found = false;
  // Visiting may write, and does not here.
  visit_integers(*attrs.type, const_cast<void*>(attrs.data),
                 [&](std::int64_t& number) { found = found || is_unknown(number); });
  return found;
}

}  // namespace

std::int64_t SymbolicSizes::fresh() { return kFirst - kDistance * count_++; }

void SymbolicSizes::set_count(int count) {
  count_ = count;
  std::erase_if(sums_, [count](const auto& sum) { return index_of(sum.first) >= count; });
}

const SizeSum* SymbolicSizes::sum_of(std::int64_t size) const {
  const auto found = sums_.find(size);
  return found == sums_.end() ? nullptr : &found->second;
}

void SymbolicSizes::take_over(std::int64_t stored, std::int64_t inferred) {
  const SizeSum* sum = sum_of(inferred);
  if (!sum || stored == inferred || sum_of(stored)) return;
  // A sum of what came before it: no size is a part of itself.
  for (const auto& [part, times] : sum->parts)
    if (index_of(part) >= index_of(stored)) return;
  sums_.emplace(stored, SizeSum(*sum));
}

bool SymbolicSizes::has(std::int64_t size) const {
  if (size >= 0) return true;
  const std::int64_t index = is_unknown(size) ? index_of(size) : -1;
  return index >= 0 && index < count_;
}

Shape SymbolicSizes::named(const Shape& shape) {
  Shape result = shape;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (result[axis] < 0 && !is_unknown(result[axis])) result.set(axis, fresh());
  return result;
}

void SymbolicSizes::infer(InferContext& context, const OpDef& op, AttrsRef attrs,
                          std::span<const TensorSpec* const> inputs) {
  for (const TensorSpec* input : inputs) context.inputs.push_back(input);
  if (!any_unknown(attrs, inputs)) {
    op.infer(context);
    return;
  }
  // Sizes of their own first; then all the same (axes that have to agree); then 1, which suits
  // whatever they are broadcast with; then each known size there is.
  const auto trial = [this](std::int64_t size, std::int64_t step) {
    return Trial(*this, size, step);
  };
  std::vector<std::array<Trial, 2>> trials = {{trial(7919, 2), trial(104729, 2)},
                                              {trial(7919, 0), trial(104729, 0)},
                                              {trial(1, 0), trial(1, 0)}};
  for (const TensorSpec* input : inputs)
    for (std::int64_t size : input->shape)
      if (size > 1) trials.push_back({trial(size, 0), trial(size, 0)});
  for (std::size_t i = 0; i < trials.size(); ++i) {
    auto& [first, second] = trials[i];
    std::vector<TensorSpec> outputs, others;
    try {
      outputs = infer_with(first, op, attrs, inputs);
      others = infer_with(second, op, attrs, inputs);
    } catch (const InvalidArgumentError&) {
      if (i + 1 == trials.size()) throw;
      continue;
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      Shape& shape = outputs[k].shape;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const std::int64_t size = shape[axis], other = others[k].shape[axis];
        if (size == other) continue;
        const std::int64_t stands_for = first.unknown(size);
        if (stands_for != 0 && stands_for == second.unknown(other)) {
          shape.set(axis, stands_for);
          continue;
        }
        shape.set(axis, fresh());
        if (i == 0)
          if (auto sum = find_sum(first, second, size, other, k, axis, op, attrs, inputs))
            sums_.emplace(shape[axis], std::move(*sum));
      }
      context.outputs.push_back(outputs[k]);
    }
    return;
  }
}

void KnownSizes::bind(const Shape& symbolic, const Shape& concrete, std::string_view what) {
  if (!symbolic.matches(concrete))
    fail<InvalidArgumentError>("[{}] expected shape {}, got {}", what, symbolic.to_string(),
                               concrete.to_string());
  for (int axis = 0; axis < symbolic.rank(); ++axis) {
    const std::int64_t index = is_unknown(symbolic[axis]) ? index_of(symbolic[axis]) : -1;
    if (index < 0) continue;
    std::int64_t& value = values_.at(static_cast<std::size_t>(index));
    if (value >= 0 && value != concrete[axis])
      fail<InvalidArgumentError>("[{}] expected a size of {} for axis {}, got shape {}", what,
                                 value, axis, concrete.to_string());
    value = concrete[axis];
  }
}

std::int64_t KnownSizes::operator()(std::int64_t size) const {
  if (!is_unknown(size)) return size;
  const std::int64_t index = index_of(size);
  if (index < 0 || index >= static_cast<std::int64_t>(values_.size()) ||
      values_[static_cast<std::size_t>(index)] < 0)
    fail<InvalidArgumentError>(
        "[Shape] something was computed from a size that was not known when the graph was made");
  return values_[static_cast<std::size_t>(index)];
}

Shape KnownSizes::operator()(Shape shape) const {
  for (int axis = 0; axis < shape.rank(); ++axis) shape.set(axis, (*this)(shape[axis]));
  return shape;
}

std::shared_ptr<const void> KnownSizes::fill_in(const OpDef& op,
                                                const std::shared_ptr<const void>& attrs) const {
  const AttrsType& type = op.attrs();
  bool any = false;
  if (attrs)
    visit_integers(type, const_cast<void*>(attrs.get()),
                   [&](std::int64_t& number) { any = any || is_unknown(number); });
  return any ? replaced(type, attrs.get(), *this) : attrs;
}

}  // namespace tandem
