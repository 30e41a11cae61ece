// prefetch() and prefetch_to_device(): a thread produces elements ahead of the consumer.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/mutex.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/status.h"
#include "core/threads.h"
#include "data/description.h"
#include "data/selection.h"
#include "device/copy_ahead.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

class PrefetchStream final : public ItemStream<Example> {
 public:
  // Copies elements to `device`; null leaves them where they are.
  PrefetchStream(StreamPtr<Example> input, std::int64_t buffer_size, DeviceImpl* device)
      : input_(std::move(input)),
        capacity_(static_cast<std::size_t>(buffer_size)),
        device_(device) {}

  ~PrefetchStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    cancelled_ = true;
    space_->notify_one();
    if (producer_.joinable()) process_.join(producer_);
  }

  bool next(Example& item) override {
    process_.expect_this("prefetch");
    if (!producer_.joinable()) producer_ = start_thread([this] { produce(); });
    std::unique_lock lock(mutex_);
    wait_for(*filled_, lock, [&] { return !buffer_.empty() || ended_; });
    if (buffer_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return false;
    }
    Made made = std::move(buffer_.front());
    buffer_.pop_front();
    lock.unlock();
    space_->notify_one();
    made.copies.join();
    item = std::move(made.example);
    return true;
  }

  std::int64_t skip(std::int64_t count) override {
    return producer_.joinable() ? ItemStream::skip(count) : input_->skip(count);
  }
  bool select(const Selection& of) override {
    input_ = std::make_unique<SelectedStream<Example>>(std::move(input_), of);
    return true;
  }

 private:
  struct Made {
    Example example;
    // Destroyed before `example`, whose memory may be freed only after the copies have finished.
    CopiesAhead copies;
  };

  void produce() {
    const PipelineScope scope;
    context.cancelled = &cancelled_;
    const ThreadBudget one_thread(1);  // the cores belong to the training step
    for (;;) {
      Made made;
      bool more = false;
      std::exception_ptr error;
      try {
        more = make(made);
      } catch (...) {
        error = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      if (more) {
        space_->wait(lock, [&] { return stop_ || buffer_.size() < capacity_; });
        if (stop_) return;
        buffer_.push_back(std::move(made));
      } else {
        error_ = error;
        ended_ = true;
      }
      lock.unlock();
      filled_->notify_one();
      if (!more) return;
    }
  }

  bool make(Made& made) {
    const profile::Span span(
        [] { return profile::Event{.name = "prefetch", .lane = profile::Lane::kData}; });
    Example element;
    if (!input_->next(element)) return false;
    if (!device_) {
      made.example = std::move(element);
      return true;
    }
    const CopyAheadScope ahead(made.copies);
    for (const Tensor& component : element)
      made.example.push_back(copy_to_device(component, *device_));
    return true;
  }

  StreamPtr<Example> input_;  // used by the producer only, once it runs
  std::size_t capacity_;
  DeviceImpl* device_;
  std::thread producer_;
  OwnProcess process_;
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;  // guards the following
  const HeldAtFork held_at_fork_{mutex_};
  Condition space_, filled_;
  std::deque<Made> buffer_;
  std::exception_ptr error_;
  bool ended_ = false, stop_ = false;
};

class PrefetchNode final : public InputNode {
 public:
  PrefetchNode(NodePtr input, std::int64_t buffer_size, DeviceImpl* device)
      : InputNode(std::move(input)), buffer_size_(buffer_size), device_(device) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<PrefetchStream>(input().elements(epoch), buffer_size_, device_);
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    stage.mutable_prefetch()->set_buffer_size(buffer_size_);
    if (device_) stage.mutable_prefetch()->set_device(device_->full_name());
    return stage;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<PrefetchNode>(std::move(input), buffer_size_, device_);
  }

  std::int64_t buffer_size_;
  DeviceImpl* device_;
};

void check_buffer(const char* what, std::int64_t elements) {
  if (elements < 1)
    fail<InvalidArgumentError>("[{}] expected a buffer of at least 1 element, got {}", what,
                               elements);
}

}  // namespace

NodePtr prefetch_node(NodePtr input, std::int64_t buffer_size) {
  check_buffer("prefetch", buffer_size);
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size, nullptr);
}

NodePtr prefetch_to_device_node(NodePtr input, std::string_view device, std::int64_t buffer_size) {
  check_buffer("prefetch_to_device", buffer_size);
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size,
                                        &resolve_device(device, "prefetch_to_device"));
}

}  // namespace tandem::data
