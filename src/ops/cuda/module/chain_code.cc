#include <algorithm>
#include <optional>
#include <vector>

#include "core/status.h"
#include "ops/cuda/chain.h"
#include "ops/math/scalar_attrs.h"
#include "ops/nn/activation.h"

namespace tandem::cuda {
namespace {

// A scalar operand, as an element of this dtype holds it.
double rounded_to(DType dtype, double number) {
  const auto wide = static_cast<float>(number);
  switch (dtype) {
    case DType::kFloat32: return wide;
    case DType::kFloat16: return static_cast<float>(Half(wide));
    case DType::kBFloat16: return static_cast<float>(BFloat16(wide));
    default: return number;  // the shape rule has checked that integers hold it
  }
}

// The number of inputs of an operation whose form is not kSum. Files may give it more.
int inputs_of(const ChainRole& role) {
  if (role.form != ChainForm::kPlain && role.form != ChainForm::kActivation) return 1;
  switch (role.op) {
#define TANDEM_CASE(Name) case ChainOp::k##Name:
    TANDEM_CHAIN_UNARY_FEW(TANDEM_CASE)
    TANDEM_CHAIN_UNARY_MORE(TANDEM_CASE)
    TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_CASE)
    TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_CASE)
#undef TANDEM_CASE
    return 1;
    case ChainOp::kSelect:
    case ChainOp::kSigmoidCrossEntropyGrad: return 3;
    default: return 2;
  }
}

// The step of an operation on operands of one dtype in these places. REQUIRES: its form is not
// kSum.
ChainStep step_of(const ChainRole& role, const void* attrs, DType dtype, DType result,
                  std::span<const std::uint8_t> places) {
  ChainStep step = {.op = role.op};
  std::copy(places.begin(), places.end(), step.operands);
  int numbers = 0;
  const auto set_operand = [&](int operand, double number) {
    step.operands[operand] = static_cast<std::uint8_t>(kNumber + numbers);
    step.numbers[numbers++] = rounded_to(dtype, number);
  };
  const auto scalar = [&] { return static_cast<const ScalarAttrs*>(attrs)->scalar; };
  switch (role.form) {
    case ChainForm::kPlain:
    case ChainForm::kSum: break;
    case ChainForm::kNumberRight: set_operand(1, scalar()); break;
    case ChainForm::kNumberLeft:
      step.operands[1] = step.operands[0];
      set_operand(0, scalar());
      break;
    case ChainForm::kActivation:
      step.numbers[0] = static_cast<const ActivationAttrs*>(attrs)->alpha;
      break;
    case ChainForm::kCast:
      if (result != DType::kBool) break;
      step.op = ChainOp::kNotEqual;
      set_operand(1, 0.0);
      break;
    case ChainForm::kClip:
      set_operand(1, static_cast<const ClipAttrs*>(attrs)->low);
      set_operand(2, static_cast<const ClipAttrs*>(attrs)->high);
      break;
    case ChainForm::kPower:
      if (scalar() == 2.0)
        step.op = ChainOp::kSquare;
      else if (scalar() == 3.0)
        step.op = ChainOp::kCube;
      else
        set_operand(1, scalar());
      break;
  }
  return step;
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
    if (role.form == ChainForm::kSum) {
      add_sum(i, role.op);
    } else {
      std::uint8_t places[3];
      const auto count = static_cast<std::size_t>(inputs_of(role));
      for (std::size_t k = 0; k < count; ++k) places[k] = place_of(i, k);
      add(step_of(role, member.attrs.get(), dtype_of(member.inputs[0]), member.dtype,
                  {places, count}));
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

Chain chain_of(const KernelContext& c) {
  Chain result{.steps = 1, .inputs = inputs_of(c.op->chain)};
  std::uint8_t places[3];
  for (int n = 0; n < result.inputs; ++n) {
    const TensorView& view = c.inputs[n];
    places[n] = static_cast<std::uint8_t>(kInput + n);
    result.input[n] = {view.data, view.dtype, view.size() == 1};
  }
  result.step[0] = step_of(c.op->chain, c.attrs_data, c.inputs[0].dtype, c.outputs[0].dtype,
                           {places, static_cast<std::size_t>(result.inputs)});
  return result;
}

}  // namespace tandem::cuda
