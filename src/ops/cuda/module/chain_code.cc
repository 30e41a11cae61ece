#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "ops/cuda/chain.h"
#include "ops/math/scalar_attrs.h"
#include "ops/nn/activation.h"

namespace tandem::cuda {
namespace {

// How an operation becomes steps.
enum class Form {
  kPlain,        // its inputs are the operands
  kNumberRight,  // ScalarAttrs are operand 1
  kNumberLeft,   // or operand 0
  kActivation,   // ActivationAttrs are the step's number
  kCast,
  kClip,
  kSum,  // of all inputs, rounded at the end
};
struct Entry {
  ChainOp op;
  Form form = Form::kPlain;
  bool within = true;  // may be in a chain within another kernel
};

// clang-format off
#define TANDEM_FEW(Name) {#Name, {k##Name}},
#define TANDEM_MORE(Name) {#Name, {k##Name, kPlain, false}},
#define TANDEM_FEW_ACTIVATIONS(Name) \
  {#Name, {k##Name, kActivation}}, {#Name "Grad", {k##Name##Grad, kActivation}},
#define TANDEM_MORE_ACTIVATIONS(Name) \
  {#Name, {k##Name, kActivation, false}}, {#Name "Grad", {k##Name##Grad, kActivation, false}},
const Entry* entry_of(std::string_view name) {
  using enum ChainOp;
  using enum Form;
  static const std::unordered_map<std::string_view, Entry> entries = {
      TANDEM_CHAIN_UNARY_FEW(TANDEM_FEW)
      TANDEM_CHAIN_UNARY_MORE(TANDEM_MORE)
      TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_FEW_ACTIVATIONS)
      TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_MORE_ACTIVATIONS)
      {"AddV2", {kAdd}},
      {"Sub", {kSub}},
      {"Mul", {kMul}},
      {"RealDiv", {kDiv}},
      {"Maximum", {kMaximum}},
      {"Minimum", {kMinimum}},
      {"SquaredDifference", {kSquaredDifference}},
      {"TanhGrad", {kTanhGrad}},
      {"SigmoidGrad", {kSigmoidGrad}},
      {"Equal", {kEqual}},
      {"NotEqual", {kNotEqual}},
      {"Less", {kLess}},
      {"LessEqual", {kLessEqual}},
      {"Greater", {kGreater}},
      {"GreaterEqual", {kGreaterEqual}},
      {"LogicalAnd", {kLogicalAnd}},
      {"LogicalOr", {kLogicalOr}},
      {"SelectV2", {kSelect}},
      {"SigmoidCrossEntropyWithLogits", {kSigmoidCrossEntropy, kPlain, false}},
      {"AddScalar", {kAdd, kNumberRight}},
      {"SubScalar", {kSub, kNumberRight}},
      {"ScalarSub", {kSub, kNumberLeft}},
      {"MulScalar", {kMul, kNumberRight}},
      {"DivScalar", {kDiv, kNumberRight}},
      {"ScalarDiv", {kDiv, kNumberLeft}},
      {"MaximumScalar", {kMaximum, kNumberRight}},
      {"MinimumScalar", {kMinimum, kNumberRight}},
      {"EqualScalar", {kEqual, kNumberRight}},
      {"LessScalar", {kLess, kNumberRight}},
      {"LessEqualScalar", {kLessEqual, kNumberRight}},
      {"GreaterScalar", {kGreater, kNumberRight}},
      {"GreaterEqualScalar", {kGreaterEqual, kNumberRight}},
      {"Cast", {kMove, kCast}},
      {"ClipByValue", {kAtLeast, kClip}},
      {"AddN", {kAdd, kSum}}};
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}
#undef TANDEM_FEW
#undef TANDEM_MORE
#undef TANDEM_FEW_ACTIVATIONS
#undef TANDEM_MORE_ACTIVATIONS
// clang-format on

// A number beside elements of a dtype, as the operations' own kernels take it.
float rounded_to(DType dtype, double number) {
  const auto wide = static_cast<float>(number);
  if (dtype == DType::kFloat16) return static_cast<float>(Half(wide));
  if (dtype == DType::kBFloat16) return static_cast<float>(BFloat16(wide));
  return wide;
}

class Translation {
 public:
  Translation(const ElementChain& chain, std::span<const DType> dtypes)
      : members_(chain.members()), dtypes_(dtypes), slots_(members_.size(), kNowhere) {}

  std::optional<Chain> run(bool within) {
    if (dtypes_.size() > static_cast<std::size_t>(within ? kTileInputs : kChainInputs)) return {};
    find_slots();
    for (std::size_t i = 0; i < members_.size() && fits_; ++i) {
      const Entry* entry = entry_of(members_[i].op->name);
      if (!entry || (within && !entry->within)) return {};
      translate(i, *entry);
    }
    if (!fits_) return {};
    return code_;
  }

 private:
  using Operands = std::vector<ElementChain::Operand>;

  // A result is kept where the next step does not take it, until its one user has.
  void find_slots() {
    std::vector<bool> needed(members_.size(), false);
    for (std::size_t i = 0; i < members_.size(); ++i)
      for_results(i, [&](std::size_t maker, std::size_t operand) {
        needed[maker] = maker + 1 != i || operand >= 2;  // the first step of a sum takes two
      });
    bool taken[kChainSlots] = {};
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for_results(i, [&](std::size_t maker, std::size_t) {
        if (slots_[maker] != kNowhere) taken[slots_[maker] - kSlot] = false;
      });
      if (!needed[i]) continue;
      const auto free = std::find(std::begin(taken), std::end(taken), false);
      fits_ = fits_ && free != std::end(taken);
      if (!fits_) return;
      *free = true;
      slots_[i] = static_cast<std::uint8_t>(kSlot + (free - std::begin(taken)));
    }
  }
  // f(maker, operand) for each operand of member `i` that an earlier member made.
  template <class F>
  void for_results(std::size_t i, const F& f) const {
    const Operands& operands = members_[i].inputs;
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (!operands[k].external) f(static_cast<std::size_t>(operands[k].index), k);
  }

  std::uint8_t place_of(std::size_t member, std::size_t operand) const {
    const ElementChain::Operand& from = members_[member].inputs[operand];
    if (from.external) return static_cast<std::uint8_t>(kInput + from.index);
    const auto maker = static_cast<std::size_t>(from.index);
    return slots_[maker] != kNowhere ? slots_[maker] : std::uint8_t{kLast};
  }
  DType dtype_of(const ElementChain::Operand& operand) const {
    const auto index = static_cast<std::size_t>(operand.index);
    return operand.external ? dtypes_[index] : members_[index].dtype;
  }

  void add_clip(std::size_t i) {
    const auto& member = members_[i];
    const auto& attrs = *static_cast<const ClipAttrs*>(member.attrs.get());
    add({.op = ChainOp::kAtLeast,
         .operands = {place_of(i, 0), kNumber, kNowhere},
         .number = rounded_to(member.dtype, attrs.low)});
    add({.op = ChainOp::kAtMost,
         .operands = {kLast, kNumber, kNowhere},
         .number = rounded_to(member.dtype, attrs.high)});
  }

  void add_sum(std::size_t i, ChainOp op) {
    const std::size_t count = members_[i].inputs.size();
    if (count == 1)
      add({.op = ChainOp::kMove, .operands = {place_of(i, 0), kNowhere, kNowhere}});
    else
      add({.op = op, .operands = {place_of(i, 0), place_of(i, 1), kNowhere}});
    for (std::size_t k = 2; k < count; ++k)
      add({.op = op, .operands = {kLast, place_of(i, k), kNowhere}});
  }

  void translate(std::size_t i, const Entry& entry) {
    const auto& member = members_[i];
    const auto number_of = [&] {
      return rounded_to(dtype_of(member.inputs[0]),
                        static_cast<const ScalarAttrs*>(member.attrs.get())->scalar);
    };
    const auto place = [&](std::size_t operand) { return place_of(i, operand); };
    switch (entry.form) {
      case Form::kPlain:
        add({entry.op,
             {place(0), member.inputs.size() > 1 ? place(1) : std::uint8_t{kNowhere},
              member.inputs.size() > 2 ? place(2) : std::uint8_t{kNowhere}}});
        break;
      case Form::kNumberRight:
        add({.op = entry.op, .operands = {place(0), kNumber, kNowhere}, .number = number_of()});
        break;
      case Form::kNumberLeft:
        add({.op = entry.op, .operands = {kNumber, place(0), kNowhere}, .number = number_of()});
        break;
      case Form::kActivation: {
        const auto& attrs = *static_cast<const ActivationAttrs*>(member.attrs.get());
        add({.op = entry.op,
             .operands = {place(0), member.inputs.size() > 1 ? place(1) : std::uint8_t{kNowhere},
                          kNowhere},
             .number = static_cast<float>(attrs.alpha)});
        break;
      }
      case Form::kCast:
        if (member.dtype == DType::kBool)
          add({.op = ChainOp::kNotEqual, .operands = {place(0), kNumber, kNowhere}});
        else
          add({.op = ChainOp::kMove, .operands = {place(0), kNowhere, kNowhere}});
        break;
      case Form::kClip: add_clip(i); break;
      case Form::kSum: add_sum(i, entry.op); break;
    }
    if (!fits_) return;
    ChainStep& last = code_.step[code_.steps - 1];
    last.rounded = member.dtype;
    last.slot = slots_[i];
  }

  void add(const ChainStep& step) {
    fits_ = fits_ && code_.steps < kChainSteps;
    if (fits_) code_.step[code_.steps++] = step;
  }

  std::span<const ElementChain::Member> members_;
  std::span<const DType> dtypes_;
  std::vector<std::uint8_t> slots_;  // of each member's result
  Chain code_;
  bool fits_ = true;
};

}  // namespace

bool takes(const Operation& operation) {
  const auto suits = [](const Value* value) { return in_chains(value->spec.dtype); };
  return entry_of(operation.op->name) && suits(operation.outputs[0]) &&
         std::all_of(operation.inputs.begin(), operation.inputs.end(), suits);
}

bool fits(const ElementChain& chain, std::size_t externals, bool within) {
  // What dtype an external is of makes no difference to that.
  const std::vector<DType> dtypes(externals, DType::kFloat32);
  return Translation(chain, dtypes).run(within).has_value();
}

Chain chain_of(const ElementChain& chain, const TensorView* given,
               std::span<const TensorView> externals, bool within) {
  std::vector<TensorView> views;
  if (given) views.push_back(*given);
  views.insert(views.end(), externals.begin(), externals.end());
  std::vector<DType> dtypes;
  for (const TensorView& view : views) dtypes.push_back(view.dtype);
  std::optional<Chain> result = Translation(chain, dtypes).run(within);
  TANDEM_ASSERT(result);
  for (const TensorView& view : views)
    result->input[result->inputs++] = {view.data, view.dtype, view.size() == 1};
  return *result;
}

}  // namespace tandem::cuda
