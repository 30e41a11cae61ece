#include <algorithm>
#include <optional>
#include <vector>

#include "core/status.h"
#include "ops/cuda/chain.h"
#include "ops/math/scalar_attrs.h"
#include "ops/nn/activation.h"

namespace tandem::cuda {
namespace {

// A scalar operand, rounded as in the operations' own kernels.
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
      const ChainRole& role = members_[i].op->chain;
      if (role.op == ChainOp::kNone || (within && role.op > ChainOp::kEndOfFew)) return {};
      translate(i, role);
    }
    if (!fits_) return {};
    return code_;
  }

 private:
  using Operands = std::vector<ElementChain::Operand>;

  // A result that the next step does not use is kept in a slot until its only user runs.
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
  // Calls f(maker, operand) for each operand of member `i` that is the result of an earlier member.
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

  void translate(std::size_t i, const ChainRole& role) {
    const auto& member = members_[i];
    const auto number_of = [&] {
      return rounded_to(dtype_of(member.inputs[0]),
                        static_cast<const ScalarAttrs*>(member.attrs.get())->scalar);
    };
    const auto place = [&](std::size_t operand) { return place_of(i, operand); };
    switch (role.form) {
      case ChainForm::kPlain:
        add({role.op,
             {place(0), member.inputs.size() > 1 ? place(1) : std::uint8_t{kNowhere},
              member.inputs.size() > 2 ? place(2) : std::uint8_t{kNowhere}}});
        break;
      case ChainForm::kNumberRight:
        add({.op = role.op, .operands = {place(0), kNumber, kNowhere}, .number = number_of()});
        break;
      case ChainForm::kNumberLeft:
        add({.op = role.op, .operands = {kNumber, place(0), kNowhere}, .number = number_of()});
        break;
      case ChainForm::kActivation: {
        const auto& attrs = *static_cast<const ActivationAttrs*>(member.attrs.get());
        add({.op = role.op,
             .operands = {place(0), member.inputs.size() > 1 ? place(1) : std::uint8_t{kNowhere},
                          kNowhere},
             .number = static_cast<float>(attrs.alpha)});
        break;
      }
      case ChainForm::kCast:
        if (member.dtype == DType::kBool)
          add({.op = ChainOp::kNotEqual, .operands = {place(0), kNumber, kNowhere}});
        else
          add({.op = ChainOp::kMove, .operands = {place(0), kNowhere, kNowhere}});
        break;
      case ChainForm::kClip: add_clip(i); break;
      case ChainForm::kSum: add_sum(i, role.op); break;
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
  std::vector<std::uint8_t> slots_;  // per member: the slot of its result
  Chain code_;
  bool fits_ = true;
};

}  // namespace

bool takes(const BlockOperation& operation) {
  const auto suits = [](const Value* value) { return in_chains(value->spec.dtype); };
  return operation.op->chain.op != ChainOp::kNone && suits(operation.outputs[0]) &&
         std::all_of(operation.inputs.begin(), operation.inputs.end(), suits);
}

bool fits(const ElementChain& chain, std::size_t externals, bool within) {
  // The dtypes of the external inputs do not matter here.
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
