// Profiler events for work on a stream.
#pragma once

#include <memory>

#include "core/profile.h"
#include "device/device.h"

namespace tandem {

// A profiler event on `device`. It begins when the stream reaches the current position, and ends
// when the work that is enqueued during this object's lifetime is done.
class StreamSpan {
 public:
  // Does nothing unless a profile is running; only then calls `make` for the event.
  template <class Make>
  StreamSpan(DeviceImpl& device, const Make& make) : StreamSpan(device, device.stream(), make) {}
  template <class Make>
  StreamSpan(DeviceImpl& device, Stream& stream, const Make& make) {
    if (profile::on()) [[unlikely]]
      begin(device, stream, make());
  }
  ~StreamSpan() {
    if (event_) [[unlikely]]
      end();
  }
  StreamSpan(const StreamSpan&) = delete;
  StreamSpan& operator=(const StreamSpan&) = delete;

 private:
  void begin(DeviceImpl& device, Stream& stream, profile::Event event);
  void end() noexcept;

  Stream* stream_ = nullptr;
  std::shared_ptr<profile::Event> event_;  // null if no profile was running
};

}  // namespace tandem
