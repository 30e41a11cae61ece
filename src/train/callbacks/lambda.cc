#include "tandem/callbacks.h"

namespace tandem::callbacks {
namespace {

template <class Hook, class... Args>
void call(const Hook& hook, Args&&... args) {
  if (hook) hook(std::forward<Args>(args)...);
}

class LambdaImpl final : public CallbackBase {
 public:
  explicit LambdaImpl(LambdaOptions options) : options_(std::move(options)) {}

  void on_train_begin(Model& model) override { call(options_.on_train_begin, model); }
  void on_train_end(Model& model) override { call(options_.on_train_end, model); }
  void on_epoch_begin(Model& model, std::int64_t epoch) override {
    call(options_.on_epoch_begin, model, epoch, Logs());
  }
  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    call(options_.on_epoch_end, model, epoch, logs);
  }
  void on_train_batch_begin(Model& model, std::int64_t batch) override {
    call(options_.on_train_batch_begin, model, batch, Logs());
  }
  void on_train_batch_end(Model& model, std::int64_t batch, const Logs& logs) override {
    call(options_.on_train_batch_end, model, batch, logs);
  }
  bool needs_batch_logs() const override { return static_cast<bool>(options_.on_train_batch_end); }

 private:
  LambdaOptions options_;
};

}  // namespace

LambdaCallback::LambdaCallback(LambdaOptions options)
    : Callback(std::make_shared<LambdaImpl>(std::move(options))) {}

}  // namespace tandem::callbacks
