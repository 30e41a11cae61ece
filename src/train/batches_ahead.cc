#include "train/batches_ahead.h"

#include <exception>
#include <utility>

#include "device/copy_ahead.h"
#include "device/device_manager.h"

namespace tandem {
namespace {

class BatchesAhead final : public BatchSource {
 public:
  explicit BatchesAhead(std::unique_ptr<BatchSource> batches) : batches_(std::move(batches)) {}
  ~BatchesAhead() override { copies_.join(); }

  std::optional<BatchParts> next() override {
    if (!begun_) fetch();
    begun_ = true;
    copies_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    std::optional<BatchParts> now = std::exchange(ahead_, std::nullopt);
    // Before the step of this one is enqueued: that is what the copies of the next go beside.
    if (now) fetch();
    return now;
  }

 private:
  void fetch() {
    const CopyAheadScope scope(copies_);
    try {
      ahead_ = batches_->next();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  std::unique_ptr<BatchSource> batches_;
  bool begun_ = false;
  std::optional<BatchParts> ahead_;
  std::exception_ptr error_;
  CopiesAhead copies_;  // of `ahead_`
};

}  // namespace

std::unique_ptr<BatchSource> copied_ahead(std::unique_ptr<BatchSource> batches) {
  for (Device* device : DeviceManager::get().devices(DeviceType::kGpu, "fit"))
    if (as_native(*device)) return std::make_unique<BatchesAhead>(std::move(batches));
  return batches;
}

}  // namespace tandem
