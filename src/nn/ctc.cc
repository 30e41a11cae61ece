// Connectionist temporal classification, as PyTorch's and Keras's loss.
#include "ops/nn/ctc.h"

#include <limits>

#include "core/status.h"
#include "nn/functional_parts.h"
#include "nn/loss_parts.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/functional_losses.h"
#include "tandem/losses.h"
#include "tandem/math.h"

namespace tandem {

Tensor nn::functional::ctc_loss(const Tensor& log_probs, const Tensor& targets,
                                const Tensor& input_lengths, const Tensor& target_lengths,
                                const CtcOptions& options) {
  if (log_probs.rank() == 2) {
    const Tensor loss =
        ctc_loss(expand_dims(log_probs, 1), expand_dims(targets, 0), reshape(input_lengths, {1}),
                 reshape(target_lengths, {1}), options);
    return loss.rank() == 0 ? loss : squeeze(loss, {0});
  }
  const Tensor x = predictions("ctc_loss", log_probs, targets);
  Tensor loss = run(kCtcLoss, {&x, &targets, &input_lengths, &target_lengths},
                    CtcAttrs{.blank = options.blank});
  if (options.zero_infinity)
    loss = where(equal(loss, std::numeric_limits<double>::infinity()), 0.0, loss);
  if (options.reduction.value() == LossReduction::kMean)
    loss = loss / cast(maximum(target_lengths, 1), loss.dtype());
  return reduced("ctc_loss", loss, options.reduction);
}

Tensor losses::ctc(const Tensor& y_true, const Tensor& predictions) {
  const Tensor logits = for_loss(predictions);
  if (y_true.rank() != 2 || logits.rank() != 3)
    fail<ShapeError>(
        "[ctc] expected y_true [batch, labels] and y_pred [batch, time, classes], got shapes {} "
        "and {}",
        y_true.shape().to_string(), logits.shape().to_string());
  const Tensor labels = is_integer(y_true.dtype()) ? y_true : cast(y_true, int32);
  const Tensor counts = reduce_sum(cast(not_equal(labels, 0), int32), {.axis = Dims{-1}});
  const Tensor steps = zeros_like(counts) + element_count({logits.size_word(1)}, int32);
  return nn::functional::ctc_loss(nn::log_softmax(transpose(logits, {1, 0, 2})), labels, steps,
                                  counts, {.reduction = nn::LossReduction::kNone});
}

losses::CTC::CTC(const LossOptions& options)
    : Loss(name_or(options.name, "ctc"), ctc, options.reduction) {}

}  // namespace tandem
