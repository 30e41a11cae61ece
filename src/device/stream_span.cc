#include "device/stream_span.h"

namespace tandem {

void StreamSpan::begin(DeviceImpl& device, Stream& stream, profile::Event event) {
  stream_ = &stream;
  event.device = &device.full_name();
  event_ = std::make_shared<profile::Event>(std::move(event));
  stream_->enqueue([event = event_] { event->begin = profile::now(); });
}

void StreamSpan::end() noexcept {
  try {
    stream_->enqueue([event = std::move(event_)] {
      event->end = profile::now();
      profile::record(std::move(*event));
    });
  } catch (...) {  // a failed device reports to its waiters; the profile has a gap
  }
}

}  // namespace tandem
