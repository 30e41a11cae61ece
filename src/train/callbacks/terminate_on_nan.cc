#include <cmath>

#include "core/log.h"
#include "core/status.h"
#include "tandem/callbacks.h"
#include "tandem/model.h"

namespace tandem::callbacks {
namespace {

class TerminateOnNaNImpl final : public CallbackBase {
 public:
  bool needs_batch_logs() const override { return true; }

  void on_train_batch_end(Model& model, std::int64_t batch, const Logs& logs) override {
    const auto loss = logs.find("loss");
    if (loss == logs.end() || std::isfinite(loss->second)) return;
    logging::warn("[TerminateOnNaN] batch {}: the loss is {}, terminating training", batch,
                  loss->second);
    model.stop_training();
  }
};

}  // namespace

TerminateOnNaN::TerminateOnNaN() : Callback(std::make_shared<TerminateOnNaNImpl>()) {}

}  // namespace tandem::callbacks
