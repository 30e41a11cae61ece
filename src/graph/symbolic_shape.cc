#include "graph/symbolic_shape.h"

#include <algorithm>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kFirst = -(std::int64_t{1} << 40);
constexpr std::int64_t kDistance = 1 << 12;
// A size that depends on more sizes is treated as independent. This bounds the time for untrusted
// graphs.
constexpr std::size_t kMaxDerived = 128;

// The index of the unknown size; -1 if the number was computed from one.
std::int64_t index_of(std::int64_t number) {
  const std::int64_t distance = kFirst - number;
  return distance >= 0 && distance % kDistance == 0 ? distance / kDistance : -1;
}

// Calls visit(size) for each unknown size of the call.
template <class F>
void visit_sizes(const AskedRule& asked, const F& visit) {
  if (asked.attrs)
    asked.op->attrs().visit_integers(const_cast<void*>(asked.attrs.get()),
                                     [&](std::int64_t& number) {
                                       if (is_unknown_size(number)) visit(number);
                                     });
  for (const TensorType& input : asked.inputs)
    for (std::int64_t size : input.shape)
      if (is_unknown_size(size)) visit(size);
}

}  // namespace

bool is_unknown_size(std::int64_t number) { return number <= kFirst / 2; }

bool names_unknown_size(std::int64_t number) {
  return is_unknown_size(number) && index_of(number) >= 0;
}

std::int64_t SymbolicSizes::fresh() { return kFirst - kDistance * count_++; }

void SymbolicSizes::set_count(int count) {
  count_ = count;
  std::erase_if(rules_, [count](const auto& rule) { return index_of(rule.first) >= count; });
}

const SizeRule* SymbolicSizes::rule_of(std::int64_t size) const {
  const auto found = rules_.find(size);
  return found == rules_.end() ? nullptr : &found->second;
}

void SymbolicSizes::take_over(std::int64_t stored, std::int64_t inferred) {
  const SizeRule* rule = rule_of(inferred);
  if (!rule || stored == inferred || rule_of(stored)) return;
  // It depends on earlier sizes only, so no size depends on itself.
  bool in_order = true;
  visit_sizes(*rule->asked,
              [&](std::int64_t size) { in_order = in_order && index_of(size) < index_of(stored); });
  if (!in_order) return;
  SizeRule taken = *rule;
  std::replace(taken.derived.begin(), taken.derived.end(), inferred, stored);
  rules_.emplace(stored, std::move(taken));
}

bool SymbolicSizes::has(std::int64_t size) const {
  if (size >= 0) return true;
  const std::int64_t index = is_unknown_size(size) ? index_of(size) : -1;
  return index >= 0 && index < count_;
}

Shape SymbolicSizes::named(const Shape& shape) {
  Shape result = shape;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (result[axis] < 0 && !is_unknown_size(result[axis])) result.set(axis, fresh());
  return result;
}

std::int64_t SymbolicSizes::derived(const std::shared_ptr<const AskedRule>& asked, int output,
                                    int axis) {
  SizeRule rule{.asked = asked, .output = output, .axis = axis, .derived = {}};
  visit_sizes(*asked, [&](std::int64_t size) {
    if (const SizeRule* other = rule_of(size))
      for (std::int64_t each : other->derived)
        if (std::find(rule.derived.begin(), rule.derived.end(), each) == rule.derived.end())
          rule.derived.push_back(each);
  });
  const std::int64_t size = fresh();
  if (rule.derived.size() < kMaxDerived) {
    rule.derived.push_back(size);
    rules_.emplace(size, std::move(rule));
  }
  return size;
}

void KnownSizes::bind(const Shape& symbolic, const Shape& concrete, std::string_view what) {
  if (!symbolic.matches(concrete) || !concrete.fully_defined())
    fail<InvalidArgumentError>("[{}] expected shape {}, got {}", what, symbolic.to_string(),
                               concrete.to_string());
  for (int axis = 0; axis < symbolic.rank(); ++axis) {
    const std::int64_t index = is_unknown_size(symbolic[axis]) ? index_of(symbolic[axis]) : -1;
    if (index < 0) continue;
    std::int64_t& value = values_.at(static_cast<std::size_t>(index));
    if (value >= 0 && value != concrete[axis])
      fail<InvalidArgumentError>("[{}] expected a size of {} for axis {}, got shape {}", what,
                                 value, axis, concrete.to_string());
    value = concrete[axis];
  }
}

std::int64_t KnownSizes::operator()(std::int64_t size) const {
  if (!is_unknown_size(size)) return size;
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
    type.visit_integers(const_cast<void*>(attrs.get()),
                        [&](std::int64_t& number) { any = any || is_unknown_size(number); });
  return any ? with_sizes(type, attrs.get(), *this) : attrs;
}

}  // namespace tandem
