#include "device/pjrt/module/event.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/status.h"
#include "device/pjrt/module/check.h"

namespace tandem::pjrt {
namespace {

void destroy(const PJRT_Api& api, PJRT_Event* event) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Event_Destroy);
  args.event = event;
  check(api, api.PJRT_Event_Destroy(&args), "destroying an event");
}

struct Pending {
  const PJRT_Api& api;
  PJRT_Event* event;
  std::string what;
  std::function<void(std::exception_ptr)> then;
};

void finish(PJRT_Error* error, void* user) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(user));
  std::exception_ptr thrown;
  try {
    destroy(pending->api, pending->event);
    check(pending->api, error, pending->what);
  } catch (...) {
    thrown = std::current_exception();
  }
  pending->then(thrown);
}

// The end of a wait. The thread that waits and the one of the plug-in share it.
class Outcome {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    is_set_ = true;
    changed_.notify_all();
  }
  // Whether it was set within the time. Throws its error.
  bool wait_for(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, time, [this] { return is_set_; })) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
  bool is_set_ = false;
};

}  // namespace

void when_ready(const PJRT_Api& api, PJRT_Event* event, std::string_view what,
                std::function<void(std::exception_ptr)> then) {
  auto pending = std::make_unique<Pending>(Pending{api, event, std::string(what), std::move(then)});
  auto args = TANDEM_PJRT_ARGS(PJRT_Event_OnReady);
  args.event = event;
  args.callback = finish;
  args.user_arg = pending.get();
  if (PJRT_Error* const error = api.PJRT_Event_OnReady(&args)) {
    await(api, event, what);
    throw_error(api, error, what);
  }
  static_cast<void>(pending.release());  // finish() frees it
}

void await(const PJRT_Api& api, PJRT_Event* event, std::string_view what) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Event_Await);
  args.event = event;
  PJRT_Error* error = api.PJRT_Event_Await(&args);
  destroy(api, event);
  check(api, error, what);
}

void await_for(const PJRT_Api& api, PJRT_Event* event, std::string_view what,
               std::chrono::seconds limit) {
  const auto outcome = std::make_shared<Outcome>();
  when_ready(api, event, what,
             [outcome](std::exception_ptr error) { outcome->set(std::move(error)); });
  if (!outcome->wait_for(limit))
    fail<DeadlineExceededError>(
        "[PJRT] {}: the device has not finished within {} s (TANDEM_PJRT_TIMEOUT)", what,
        limit.count());
}

}  // namespace tandem::pjrt
