#include "train/step_runner.h"

#include "device/device.h"
#include "runtime/placement.h"
#include "runtime/variable_impl.h"

namespace tandem {
namespace {

class SingleReplica final : public StepRunner {
 public:
  int num_local_replicas() const override { return 1; }
  bool owns(const Variable& variable) const override { return !variable.impl().distributed(); }
  GlobalBatch split(const data::Example& global_batch) override {
    const std::int64_t total = global_batch[0].size_word(0);
    data::Example batch = global_batch;
    if (DeviceImpl& device = place_constant("fit"); !device.host_accessible()) {
      const Scoped tag(memory_tag, MemoryTag::kOther);
      batch = {};
      for (const Tensor& component : global_batch)
        batch.push_back(copy_to_device(component, device));
    }
    return GlobalBatch({std::move(batch)}, {.offsets = {0}, .counts = {total}, .total = total});
  }
  std::vector<std::vector<Tensor>> run(const GlobalBatch& batch, const Step& step) override {
    return {step(batch[0])};
  }
};

}  // namespace

namespace {

class SplitBatches final : public BatchSource {
 public:
  SplitBatches(StepRunner& runner, data::Iterator batches,
               std::function<void(const data::Example&)> check)
      : runner_(runner), batches_(std::move(batches)), check_(std::move(check)) {}

  std::optional<GlobalBatch> next() override {
    const data::NextExample batch = batches_.next();
    if (!batch) return std::nullopt;
    check_(*batch);
    return runner_.split(*batch);
  }

 private:
  StepRunner& runner_;
  data::Iterator batches_;
  std::function<void(const data::Example&)> check_;
};

}  // namespace

std::unique_ptr<BatchSource> StepRunner::iterate(const data::Dataset& data,
                                                 const data::IterateOptions& options,
                                                 std::function<void(const data::Example&)> check) {
  return std::make_unique<SplitBatches>(*this, data.iterate(options), std::move(check));
}

std::shared_ptr<StepRunner> StepRunner::current() {
  if (context.runner) return *context.runner;
  static const auto& single = *new std::shared_ptr<StepRunner>(new SingleReplica);
  return single;
}

}  // namespace tandem
