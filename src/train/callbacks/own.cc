// Callbacks of users with Keras's signatures.
#include "core/status.h"
#include "tandem/model.h"

namespace tandem::callbacks {
namespace {

// Calls the methods of a Callback. Its model is the one that fit() trains.
class OwnHooks final : public CallbackBase {
 public:
  OwnHooks(std::shared_ptr<Callback> own, bool reads_batches)
      : own_(std::move(own)), reads_batches_(reads_batches) {}

  void on_train_begin(Model& model) override { of(model).on_train_begin({}); }
  void on_train_end(Model& model) override {
    of(model).on_train_end({});
    own_->model.set(nullptr);
  }
  void on_epoch_begin(Model& model, std::int64_t epoch) override {
    of(model).on_epoch_begin(static_cast<int>(epoch), {});
  }
  void on_epoch_logs(Model& model, std::int64_t epoch, Logs& logs) override {
    if (own_->shared()) own_->shared()->on_epoch_logs(model, epoch, logs);
  }
  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    of(model).on_epoch_end(static_cast<int>(epoch), logs);
  }
  void on_train_batch_begin(Model& model, std::int64_t batch) override {
    of(model).on_train_batch_begin(static_cast<int>(batch), {});
  }
  void on_train_batch_end(Model& model, std::int64_t batch, const Logs& logs) override {
    of(model).on_train_batch_end(static_cast<int>(batch), logs);
  }
  bool needs_batch_logs() const override {
    return (reads_batches_ || own_->shared()) && own_->needs_batch_logs();
  }
  std::map<std::string, Tensor> state() const override { return own_->state(); }
  void restore(Model& model, const std::map<std::string, Tensor>& state) override {
    of(model).restore(state);
  }
  bool runs_last() const override { return own_->shared() && own_->shared()->runs_last(); }

 private:
  Callback& of(Model& model) const {
    own_->model.set(&model);
    return *own_;
  }

  std::shared_ptr<Callback> own_;
  bool reads_batches_;
};

}  // namespace

Model& TrainedModel::operator()() const {
  if (!model_)
    throw FailedPreconditionError(
        "[Callback] model() is the model that fit() trains, and fit() does not run");
  return *model_;
}

std::shared_ptr<CallbackBase> internal::call_hooks_of(std::shared_ptr<Callback> own,
                                                      bool reads_batches) {
  if (!own) throw InvalidArgumentError("[Callback] expected a callback, got a null pointer");
  return std::make_shared<OwnHooks>(std::move(own), reads_batches);
}

Callback::Callback(std::shared_ptr<CallbackBase> callback, int) : callback_(std::move(callback)) {
  if (!callback_) throw InvalidArgumentError("[Callback] expected a callback, got a null pointer");
}

CallbackBase& Callback::operator*() const {
  if (!callback_)
    throw FailedPreconditionError(
        "[Callback] an own callback was used as a handle; make one by "
        "td::callbacks::Callback(std::make_shared<Mine>())");
  return *callback_;
}

void Callback::on_train_begin(const Logs&) {
  if (callback_ && model) callback_->on_train_begin(*model);
}
void Callback::on_train_end(const Logs&) {
  if (callback_ && model) callback_->on_train_end(*model);
}
void Callback::on_epoch_begin(int epoch, const Logs&) {
  if (callback_ && model) callback_->on_epoch_begin(*model, epoch);
}
void Callback::on_epoch_end(int epoch, const Logs& logs) {
  if (callback_ && model) callback_->on_epoch_end(*model, epoch, logs);
}
void Callback::on_train_batch_begin(int batch, const Logs&) {
  if (callback_ && model) callback_->on_train_batch_begin(*model, batch);
}
void Callback::on_train_batch_end(int batch, const Logs& logs) {
  if (callback_ && model) callback_->on_train_batch_end(*model, batch, logs);
}
bool Callback::needs_batch_logs() const { return !callback_ || callback_->needs_batch_logs(); }
std::map<std::string, Tensor> Callback::state() const {
  return callback_ ? callback_->state() : std::map<std::string, Tensor>();
}
void Callback::restore(const std::map<std::string, Tensor>& state) {
  if (callback_ && model) callback_->restore(*model, state);
}

}  // namespace tandem::callbacks
