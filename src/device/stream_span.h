// Profiling of what a stream does.
#pragma once

#include <memory>

#include "core/profile.h"
#include "device/device.h"

namespace tandem {

// An event on `device` that lasts from when its stream, or another one of its own, comes to this
// place until it has done what is enqueued before the span ends.
class StreamSpan {
 public:
  // Nothing unless a profile runs; only then is `make` called, for the Event.
  template <class Make>
  StreamSpan(Device& device, const Make& make) : StreamSpan(device, device.stream(), make) {}
  template <class Make>
  StreamSpan(Device& device, Stream& stream, const Make& make) {
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
  void begin(Device& device, Stream& stream, profile::Event event);
  void end() noexcept;

  Stream* stream_ = nullptr;
  std::shared_ptr<profile::Event> event_;  // null: no profile ran
};

}  // namespace tandem
