// Synchronised batch normalisation in Apex's spelling.
#include "core/status.h"
#include "nn/batch_normalization.h"
#include "nn/sync_moments.h"
#include "tandem/apex.h"
#include "train/model_impl.h"

namespace tandem::apex::parallel {

Layer SyncBatchNorm(const SyncBatchNormOptions& options) {
  return make_batch_normalization({.kind = "sync_batch_norm",
                                   .options = {.momentum = 1.0 - options.momentum,
                                               .epsilon = options.eps,
                                               .center = options.affine,
                                               .scale = options.affine,
                                               .input_shape = options.input_shape,
                                               .name = options.name},
                                   .unbiased = true,
                                   .relu = options.fuse_relu,
                                   .synchronized = options.process_group});
}

SyncBatchNormResult sync_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                    double epsilon, const comm::ProcessGroup& process_group) {
  const SyncMoments moments = sync_moments(x, process_group, "sync_batch_norm");
  return {.y = nn::batch_norm_inference(x, gamma, beta, moments.mean, moments.variance, epsilon),
          .mean = moments.mean,
          .variance = moments.variance,
          .count = moments.count};
}

namespace {

void synchronize(LayerBase& layer, const comm::ProcessGroup& group) {
  synchronize_batch_normalization(layer, group);
  for (const Layer& child : layer.children()) synchronize(child.base(), group);
}

}  // namespace

Model convert_syncbn_model(const Model& model, const comm::ProcessGroup& process_group) {
  if (impl_of(model, "convert_syncbn_model").compiled)
    throw FailedPreconditionError(
        "[convert_syncbn_model] expected a model that is not compiled, because its traced steps "
        "would keep the old layers; call compile() afterwards");
  synchronize(model.layer().base(), process_group);
  return model;
}

comm::ProcessGroup create_syncbn_process_group(int group_size) {
  const int size = comm::get_world_size();
  if (group_size < 0 || group_size > size || (group_size > 0 && size % group_size != 0))
    fail<InvalidArgumentError>(
        "[create_syncbn_process_group] expected a group_size that divides the {} ranks, or 0 for "
        "all of them, got {}",
        size, group_size);
  if (group_size == 0) return {};
  comm::ProcessGroup own;
  for (int first = 0; first < size; first += group_size) {
    std::vector<int> ranks;
    for (int rank = first; rank < first + group_size; ++rank) ranks.push_back(rank);
    const comm::ProcessGroup group = comm::new_group(ranks);
    if (group.rank() >= 0) own = group;
  }
  return own;
}

}  // namespace tandem::apex::parallel
