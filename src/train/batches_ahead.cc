#include "train/batches_ahead.h"

#include <utility>

#include "device/copy_ahead.h"

namespace tandem {
namespace {

class BatchesAhead final : public BatchSource {
 public:
  explicit BatchesAhead(std::unique_ptr<BatchSource> batches) : batches_(std::move(batches)) {}

  std::optional<GlobalBatch> next() override {
    return ahead_.next([this] { return batches_->next(); });
  }

 private:
  std::unique_ptr<BatchSource> batches_;
  FetchedAhead<GlobalBatch> ahead_;
};

}  // namespace

std::unique_ptr<BatchSource> copied_ahead(std::unique_ptr<BatchSource> batches, bool to_gpus) {
  if (!to_gpus) return batches;
  return std::make_unique<BatchesAhead>(std::move(batches));
}

}  // namespace tandem
