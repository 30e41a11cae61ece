#include <unistd.h>

#include <chrono>
#include <optional>

#include "core/status.h"
#include "tandem/callbacks.h"
#include "train/callbacks/tfrecord_writer.h"
#include "train/model_impl.h"
#include "train/proto/tensorboard_event.pb.h"

namespace tandem::callbacks {
namespace {

constexpr const char* kFileVersion = "brain.Event:2";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The event file of one run ("train" or "validation"). Created with its first value.
class EventFile {
 public:
  explicit EventFile(std::filesystem::path directory) : directory_(std::move(directory)) {}

  void write(std::int64_t step, const Logs& metrics) {
    if (!writer_) open();
    tensorboard::Event event = event_at(step);
    for (const auto& [name, value] : metrics) {
      auto* scalar = event.mutable_summary()->add_value();
      scalar->set_tag(fmt::format("epoch_{}", name));
      scalar->set_simple_value(static_cast<float>(value));
    }
    writer_->write(event.SerializeAsString());
  }

 private:
  static tensorboard::Event event_at(std::int64_t step) {
    tensorboard::Event event;
    event.set_wall_time(now());
    event.set_step(step);
    return event;
  }

  void open() {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error)
      fail<FailedPreconditionError>("[TensorBoard] cannot make the directory '{}': {}",
                                    directory_.string(), error.message());
    char host[256] = "localhost";
    gethostname(host, sizeof(host) - 1);
    // A counter distinguishes runs of one process that start in the same second.
    static int count = 0;
    writer_.emplace(directory_ / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                                             static_cast<std::int64_t>(now()), host, getpid(),
                                             count++));
    tensorboard::Event version = event_at(0);
    version.set_file_version(kFileVersion);
    writer_->write(version.SerializeAsString());
  }

  std::filesystem::path directory_;
  std::optional<TFRecordWriter> writer_;
};

class TensorBoardImpl final : public CallbackBase {
 public:
  explicit TensorBoardImpl(const std::filesystem::path& directory)
      : train_(directory / "train"), validation_(directory / "validation") {}

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    if (!impl_of(model, "TensorBoard").is_chief()) return;
    constexpr std::string_view kValidation = "val_";
    Logs train, validation;
    for (const auto& [name, value] : logs) {
      if (name.starts_with(kValidation)) {
        validation[name.substr(kValidation.size())] = value;
      } else {
        train[name] = value;
      }
    }
    train_.write(epoch, train);
    if (!validation.empty()) validation_.write(epoch, validation);
  }

 private:
  EventFile train_, validation_;
};

}  // namespace

TensorBoard::TensorBoard(const std::filesystem::path& directory)
    : Callback(std::make_shared<TensorBoardImpl>(directory)) {}

}  // namespace tandem::callbacks
