#include <cmath>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "op/kept_copies.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

// Memory of a host program may change.
bool is_constant_in_float32(const Value* value) {
  return value->root().kind == Value::Kind::kConstant && value->spec.dtype == float32 &&
         impl_of(value->root().constant).storage->own();
}

std::vector<float> numbers_of(const Value& constant) {
  std::vector<float> numbers(static_cast<std::size_t>(constant.spec.shape.num_elements()));
  to_host(make_view(constant.root().constant, constant.spec.shape, constant.offset),
          numbers.data());
  return numbers;
}

// A normalisation and the product that it reads: x . kernel + bias, with a number per column.
class BatchNormFold {
 public:
  BatchNormFold(Block& block, BlockOperation& norm)
      : block_(block), norm_(norm), product_(*norm.inputs[0]->root().producer) {}

  // Whether `norm` normalises by constants the result of such a product of constants, which nothing
  // else uses. GPUs compute as eager calls do.
  static bool may_fold(const BlockOperation& norm,
                       const std::unordered_map<const Value*, int>& uses) {
    if (norm.op->name != "BatchNormInference" || norm.inputs[0]->spec.dtype != float32 ||
        norm.device->backend() == DeviceBackend::kCuda)
      return false;
    const Value& made = norm.inputs[0]->root();
    if (made.kind != Value::Kind::kComputed || uses.at(&made) != 1) return false;
    const BlockOperation& product = *made.producer;
    const std::int64_t columns = norm.outputs[0]->spec.shape.word(-1);
    return (product.op->name == "Conv2D" || product.op->name == "MatMulBiasAdd") &&
           product.device == norm.device && !product.attr_update && columns > 0 &&
           made.spec.shape.word(-1) == columns && norm.inputs[0]->offset % (columns * 4) == 0 &&
           std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), is_constant_in_float32) &&
           std::all_of(product.inputs.begin() + 1, product.inputs.end(), is_constant_in_float32);
  }

  // Returns false, and changes nothing, if a number would be infinite.
  bool fold() {
    find_numbers();
    if (!std::all_of(scales_.begin(), scales_.end(), [](double x) { return std::isfinite(x); }) ||
        !are_finite(bias_))
      return false;
    const Value& old = *product_.inputs[1];
    const TensorView elements{impl_of(old.root().constant).data() + old.offset, float32,
                              old.spec.shape, TensorView::kConstant};
    auto kernel =
        KeptCopies<std::vector<double>>::get().find(elements, scales_, [&] { return scaled(old); });
    if (!kernel->defined()) return false;
    product_.inputs[1] = &constant(old.spec.shape, *kernel);
    product_.inputs[1]->kept = std::move(kernel);
    const Shape columns{static_cast<std::int64_t>(bias_.size())};
    product_.inputs.resize(2);
    product_.inputs.push_back(
        &constant(columns, from_host(*product_.device, columns, float32, bias_.data())));
    replace_value(block_, *norm_.outputs[0], *norm_.inputs[0]);
    return true;
  }

 private:
  static bool are_finite(const std::vector<float>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
  }

  void find_numbers() {
    const std::vector<float> gamma = numbers_of(*norm_.inputs[1]),
                             beta = numbers_of(*norm_.inputs[2]),
                             mean = numbers_of(*norm_.inputs[3]),
                             variance = numbers_of(*norm_.inputs[4]);
    bias_.resize(gamma.size());
    if (product_.inputs.size() > 2) bias_ = numbers_of(*product_.inputs[2]);
    double epsilon = 0.0;
    for (const AttrField& field : norm_.op->attrs().save(norm_.attrs.get()))
      if (field.name == "epsilon") epsilon = field.reals.at(0);
    for (std::size_t i = 0; i < gamma.size(); ++i) {
      scales_.push_back(gamma[i] / std::sqrt(variance[i] + epsilon));
      bias_[i] = static_cast<float>((static_cast<double>(bias_[i]) - mean[i]) * scales_[i] +
                                    static_cast<double>(beta[i]));
    }
  }

  // Undefined if a number is infinite.
  Tensor scaled(const Value& kernel) const {
    std::vector<float> numbers = numbers_of(kernel);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(numbers[i] * scales_[i % scales_.size()]);
    if (!are_finite(numbers)) return {};
    const Scoped tag(memory_tag, MemoryTag::kWeights);
    return from_host(*product_.device, kernel.spec.shape, float32, numbers.data());
  }

  Value& constant(const Shape& shape, const Tensor& elements) {
    Value& value = block_.add_value({float32, shape}, *product_.device, Value::Kind::kConstant);
    value.constant = elements;
    return value;
  }

  Block& block_;
  BlockOperation& norm_;
  BlockOperation& product_;
  std::vector<double> scales_;
  std::vector<float> bias_;
};

}  // namespace

void fold_batch_norms(Block& block) {
  std::unordered_map<const Value*, int> uses = count_uses(block);
  std::unordered_set<const BlockOperation*> folded;
  for (const auto& operation : block.operations) {
    if (!BatchNormFold::may_fold(*operation, uses) || !BatchNormFold(block, *operation).fold())
      continue;
    folded.insert(operation.get());
    uses[&operation->inputs[0]->root()] = uses[operation->outputs[0]];
  }
  erase_operations(block, folded);
}

}  // namespace tandem
