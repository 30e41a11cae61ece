#include "graph/size_trials.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/status.h"

namespace tandem {
namespace {

// Trial sizes: the first one and the distance to the next. Some have many divisors, so that strides
// and groups divide them; some are odd, to expose rounding; some are small, because rules have
// bounds.
struct Family {
  std::int64_t first, step;
};
constexpr Family kFamilies[] = {{2520, 2520}, {3001, 2}, {24, 24}, {37, 10}};
constexpr std::size_t kMaxKnown = 8;
constexpr int kMaxCombinations = 256;
constexpr std::size_t kMaxPairs = 16;

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// The values of the unknown sizes in one trial.
class Trial {
 public:
  Trial(const SymbolicSizes& sizes, std::map<std::int64_t, std::int64_t> chosen)
      : sizes_(sizes), values_(std::move(chosen)) {}

  std::vector<TensorType> infer(const OpDef& op, AttrsRef attrs,
                                std::span<const TensorType* const> inputs) {
    std::vector<TensorType> specs;
    specs.reserve(inputs.size());
    for (const TensorType* input : inputs) {
      TensorType& spec = specs.emplace_back(*input);
      for (int axis = 0; axis < spec.shape.rank(); ++axis)
        if (is_unknown_size(spec.shape[axis])) spec.shape.set(axis, size(spec.shape[axis]));
    }
    const auto filled = with_sizes(*attrs.type, attrs.data, [&](std::int64_t number) {
      if (!names_unknown_size(number))
        fail<InvalidArgumentError>(
            "[{}] an attribute was computed from a size that is not known before the graph runs",
            op.name);
      return size(number);
    });
    InferContext context(op, {attrs.type, filled ? filled.get() : attrs.data});
    for (const TensorType& spec : specs) context.inputs.push_back(&spec);
    op.infer(context);
    return {context.outputs.begin(), context.outputs.end()};
  }

  std::int64_t size(std::int64_t unknown) {
    if (const auto known = values_.find(unknown); known != values_.end()) return known->second;
    const SizeRule* rule = sizes_.rule_of(unknown);
    TANDEM_ASSERT(rule);
    const AskedRule& asked = *rule->asked;
    std::vector<const TensorType*> inputs;
    for (const TensorType& input : asked.inputs) inputs.push_back(&input);
    const auto outputs = infer(*asked.op, {&asked.op->attrs(), asked.attrs.get()}, inputs);
    const auto output = static_cast<std::size_t>(rule->output);
    if (output >= outputs.size() || rule->axis >= outputs[output].shape.rank())
      fail<InvalidArgumentError>("[{}] the number or rank of the results depends on sizes",
                                 asked.op->name);
    return values_[unknown] = outputs[output].shape[rule->axis];
  }

  std::map<std::int64_t, std::int64_t> take_values() { return std::move(values_); }

 private:
  const SymbolicSizes& sizes_;
  std::map<std::int64_t, std::int64_t> values_;
};

// The trials for one call of a rule.
class SizeTrials {
 public:
  struct Answer {
    std::map<std::int64_t, std::int64_t> sizes;  // the trial value of each unknown size
    std::vector<TensorType> outputs;
  };

  SizeTrials(const SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
             std::span<const TensorType* const> inputs);

  // The answers to all accepted trials; at least one. Throws what the rule throws if it accepts no
  // trial, and InvalidArgumentError if the number, ranks or dtypes of the results depend on sizes.
  const std::vector<Answer>& run();

  // The unknown sizes of the attributes, then those of the inputs. Attributes come first because
  // they were given explicitly.
  const std::vector<std::int64_t>& sizes() const { return mentioned_; }

 private:
  using Values = std::vector<std::int64_t>;  // of free_, in order
  using Members = std::vector<std::size_t>;  // indices of free_

  void note(AttrsRef attrs, std::span<const TensorType* const> inputs, bool outer);
  void note_size(std::int64_t size, bool outer);
  bool ask(const Values& values);
  Values uniform(std::int64_t value) const { return Values(free_.size(), value); }
  void ask_about_distinct_sizes();
  std::optional<Values> find_start();
  bool move(Values& values, const Members& members);
  void vary_from(Values values);
  void vary_pinned();
  void check_answers() const;

  const SymbolicSizes& sizes_;
  const OpDef& op_;
  AttrsRef attrs_;
  std::span<const TensorType* const> inputs_;
  std::vector<std::int64_t> mentioned_;
  std::vector<std::int64_t> free_;   // the unknown sizes that do not depend on others
  std::vector<std::int64_t> seen_;   // all unknown sizes
  std::vector<std::int64_t> known_;  // the known sizes above 1
  std::vector<Members> groups_;      // sizes of one axis, which may have to agree
  std::vector<Answer> answers_;
  std::int64_t next_value_ = 0;
  std::exception_ptr refusal_;
};

SizeTrials::SizeTrials(const SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
                       std::span<const TensorType* const> inputs)
    : sizes_(sizes), op_(op), attrs_(attrs), inputs_(inputs) {
  note(attrs, inputs, true);
}

// Collects the sizes of a call of a rule. `outer`: of the call that is answered.
void SizeTrials::note(AttrsRef attrs, std::span<const TensorType* const> inputs, bool outer) {
  const auto visit_attrs = [&](const auto& visit) {
    // The cast is safe: this visitor does not write.
    if (attrs.data) attrs.type->visit_integers(const_cast<void*>(attrs.data), visit);
  };
  const auto add_known = [&](std::int64_t number) {
    if (number > 1 && known_.size() < kMaxKnown && !contains(known_, number))
      known_.push_back(number);
  };
  visit_attrs([&](std::int64_t& number) {
    if (names_unknown_size(number)) note_size(number, outer);
  });
  for (const TensorType* input : inputs)
    for (std::int64_t size : input->shape)
      if (names_unknown_size(size)) note_size(size, outer);
  for (const TensorType* input : inputs)
    for (std::int64_t size : input->shape) add_known(size);
  visit_attrs([&](std::int64_t& number) { add_known(number); });
  // Axes are matched from the first one on or, where operands broadcast, from the last.
  for (const bool from_end : {false, true})
    for (int axis = 0; axis < kMaxRank; ++axis) {
      Members group;
      for (const TensorType* input : inputs) {
        const Shape& shape = input->shape;
        if (axis >= shape.rank()) continue;
        const std::int64_t size = shape[from_end ? shape.rank() - 1 - axis : axis];
        const auto at = std::find(free_.begin(), free_.end(), size);
        const auto index = static_cast<std::size_t>(at - free_.begin());
        if (at != free_.end() && !contains(group, index)) group.push_back(index);
      }
      if (group.size() > 1 && !contains(groups_, group)) groups_.push_back(std::move(group));
    }
}

void SizeTrials::note_size(std::int64_t size, bool outer) {
  if (outer && !contains(mentioned_, size)) mentioned_.push_back(size);
  if (contains(seen_, size)) return;
  seen_.push_back(size);
  const SizeRule* rule = sizes_.rule_of(size);
  if (!rule) {
    free_.push_back(size);
    return;
  }
  const AskedRule& asked = *rule->asked;
  std::vector<const TensorType*> inputs;
  for (const TensorType& input : asked.inputs) inputs.push_back(&input);
  note({&asked.op->attrs(), asked.attrs.get()}, inputs, false);
}

bool SizeTrials::ask(const Values& values) {
  std::map<std::int64_t, std::int64_t> chosen;
  for (std::size_t i = 0; i < values.size(); ++i) chosen.emplace(free_[i], values[i]);
  Trial trial(sizes_, std::move(chosen));
  try {
    Answer answer;
    answer.outputs = trial.infer(op_, attrs_, inputs_);
    answer.sizes = trial.take_values();
    answers_.push_back(std::move(answer));
    return true;
  } catch (const InvalidArgumentError&) {
    refusal_ = std::current_exception();
    return false;
  }
}

void SizeTrials::ask_about_distinct_sizes() {
  for (const Family& family : kFamilies) {
    Values values;
    for (std::size_t i = 0; i < free_.size(); ++i)
      values.push_back(family.first + family.step * static_cast<std::int64_t>(i));
    ask(values);
  }
}

// Finds accepted sizes. Tries all equal, all equal to a known size, and each equal, 1 or known.
std::optional<SizeTrials::Values> SizeTrials::find_start() {
  for (const Family& family : kFamilies)
    if (ask(uniform(family.first))) return uniform(family.first);
  if (ask(uniform(1))) return uniform(1);
  for (std::int64_t size : known_)
    if (ask(uniform(size))) return uniform(size);
  Values domain = {kFamilies[0].first, 1};
  domain.insert(domain.end(), known_.begin(), known_.end());
  std::vector<std::size_t> at(free_.size(), 0);
  for (int i = 0; i < kMaxCombinations; ++i) {
    Values values;
    for (std::size_t index : at) values.push_back(domain[index]);
    if (ask(values)) return values;
    std::size_t axis = 0;
    while (axis < at.size() && ++at[axis] == domain.size()) at[axis++] = 0;
    if (axis == at.size()) break;
  }
  return std::nullopt;
}

// Sets `members` to another common size that the rule accepts. Returns whether there is one.
bool SizeTrials::move(Values& values, const Members& members) {
  ++next_value_;
  for (const Family& family : kFamilies) {
    Values moved = values;
    for (std::size_t member : members)
      moved[member] = family.first + family.step * (50 + next_value_);
    if (!ask(moved)) continue;
    values = std::move(moved);
    return true;
  }
  return false;
}

// Starting from accepted sizes, varies each size alone, together with those of its axis, or with
// one other.
void SizeTrials::vary_from(Values values) {
  Members together;  // not distinguished yet
  const auto settle = [&](const Members& members) {
    std::erase_if(together, [&](std::size_t member) { return contains(members, member); });
  };
  for (std::size_t i = 0; i < free_.size(); ++i)
    if (!move(values, {i})) together.push_back(i);
  const auto move_groups = [&] {
    for (const Members& group : groups_) {
      Members rest;
      for (std::size_t member : group)
        if (contains(together, member)) rest.push_back(member);
      if (rest.size() > 1 && move(values, rest)) settle(rest);
    }
  };
  const Members joined = together;
  move_groups();
  if (together.size() <= kMaxPairs)
    for (std::size_t i = 0; i + 1 < together.size(); ++i)
      for (std::size_t j = i + 1; j < together.size(); ++j) {
        const Members pair = {together[i], together[j]};
        if (!move(values, pair)) continue;
        settle(pair);
        i = static_cast<std::size_t>(-1);  // from the start
        break;
      }
  move_groups();
  // A size that agrees with others by broadcasting may be 1.
  for (std::size_t member : joined) {
    Values one = values;
    one[member] = 1;
    ask(one);
  }
}

// Tries other values for sizes that were the same in all trials.
void SizeTrials::vary_pinned() {
  for (std::size_t i = 0; i < free_.size(); ++i) {
    const auto value_in = [&](const Answer& answer) { return answer.sizes.at(free_[i]); };
    const std::int64_t value = value_in(answers_.front());
    if (std::any_of(answers_.begin(), answers_.end(),
                    [&](const Answer& answer) { return value_in(answer) != value; }))
      continue;
    Values base;
    for (std::int64_t size : free_) base.push_back(answers_.front().sizes.at(size));
    Values others = {0, 1, value - 1, value + 1, 2 * value};
    others.insert(others.end(), known_.begin(), known_.end());
    for (std::int64_t other : others) {
      if (other < 0 || other == value) continue;
      base[i] = other;
      if (ask(base)) break;
    }
  }
}

void SizeTrials::check_answers() const {
  const auto alike = [](const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.shape.rank() == b.shape.rank();
  };
  const auto& first = answers_.front().outputs;
  for (const Answer& answer : answers_)
    if (!std::equal(first.begin(), first.end(), answer.outputs.begin(), answer.outputs.end(),
                    alike))
      fail<InvalidArgumentError>(
          "[{}] expected sizes that are known while the graph is built: how many results there "
          "are, "
          "or axes of them, depends on them",
          op_.name);
}

const std::vector<SizeTrials::Answer>& SizeTrials::run() {
  ask_about_distinct_sizes();
  if (answers_.empty()) {
    const auto start = find_start();
    if (!start) std::rethrow_exception(refusal_);
    vary_from(*start);
  }
  vary_pinned();
  check_answers();
  return answers_;
}

bool any_unknown(AttrsRef attrs, std::span<const TensorType* const> inputs) {
  for (const TensorType* input : inputs)
    if (!input->shape.fully_defined()) return true;
  bool found = false;
  // The cast is safe: this visitor does not write.
  attrs.type->visit_integers(const_cast<void*>(attrs.data), [&](std::int64_t& number) {
    found = found || is_unknown_size(number);
  });
  return found;
}

// The size of an output that matches all trials: a known size, or one of the unknown sizes; nothing
// if it is a new one. If a known and an unknown size both match, the unknown size is chosen,
// because the trials may have missed its other values.
std::optional<std::int64_t> common_size(const SizeTrials& trials,
                                        const std::vector<SizeTrials::Answer>& answers,
                                        std::size_t output, int axis) {
  const auto size_in = [&](const SizeTrials::Answer& answer) {
    return answer.outputs[output].shape[axis];
  };
  for (std::int64_t unknown : trials.sizes())
    if (std::all_of(answers.begin(), answers.end(), [&](const SizeTrials::Answer& answer) {
          return answer.sizes.at(unknown) == size_in(answer);
        }))
      return unknown;
  const std::int64_t size = size_in(answers.front());
  if (std::all_of(answers.begin(), answers.end(),
                  [&](const SizeTrials::Answer& answer) { return size_in(answer) == size; }))
    return size;
  return std::nullopt;
}

}  // namespace

void infer_outputs(InferContext& context, SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
                   std::span<const TensorType* const> inputs) {
  for (const TensorType* input : inputs) context.inputs.push_back(input);
  if (!any_unknown(attrs, inputs)) {
    op.infer(context);
    return;
  }
  SizeTrials trials(sizes, op, attrs, inputs);
  const auto& answers = trials.run();
  std::shared_ptr<AskedRule> asked;
  const auto& outputs = answers.front().outputs;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    TensorType spec = outputs[k];
    for (int axis = 0; axis < spec.shape.rank(); ++axis) {
      if (const auto size = common_size(trials, answers, k, axis)) {
        spec.shape.set(axis, *size);
        continue;
      }
      if (!asked) {
        asked = std::make_shared<AskedRule>(AskedRule{&op, attrs.type->copy(attrs.data), {}});
        for (const TensorType* input : inputs) asked->inputs.push_back(*input);
      }
      spec.shape.set(axis, sizes.derived(asked, static_cast<int>(k), axis));
    }
    context.outputs.push_back(spec);
  }
}

}  // namespace tandem
