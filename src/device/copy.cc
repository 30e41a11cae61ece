#include "device/copy.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/status.h"
#include "device/copy_ahead.h"
#include "device/native_gpu.h"
#include "device/stream_span.h"

namespace tandem {
namespace {

profile::Event copy_event(std::string name, std::size_t bytes) {
  return {.name = std::move(name),
          .lane = profile::Lane::kCopies,
          .bytes = static_cast<std::int64_t>(bytes)};
}

}  // namespace

void host_to_device(DeviceImpl& to, void* to_memory, const void* from_memory, std::size_t bytes) {
  if (CopyAheadScope* ahead = CopyAheadScope::current(); ahead && !to.host_accessible())
    return ahead->copy(to, to_memory, from_memory, bytes);
  const StreamSpan span(to, [&] { return copy_event("copy from the host", bytes); });
  to.copy_from_host(to_memory, from_memory, bytes);
}

void device_to_host(void* to_memory, DeviceImpl& from, const void* from_memory, std::size_t bytes) {
  const StreamSpan span(from, [&] { return copy_event("copy to the host", bytes); });
  from.copy_to_host(to_memory, from_memory, bytes);
}

void read_from(DeviceImpl& from, void* to_memory, const void* from_memory, std::size_t bytes,
               const StreamEvent& written) {
  if (bytes == 0) return;
  if (profile::on()) [[unlikely]]
    written.wait();  // the wait is not part of the copy
  const profile::Span span([&] {
    profile::Event event = copy_event("copy to the host", bytes);
    event.device = &from.full_name();
    return event;
  });
  if (NativeGpu* gpu = as_native(from)) return gpu->read(to_memory, from_memory, bytes, written);
  written.wait();
  // Streams that run inline have done the copy on return.
  if (from.stream().execution() == Stream::Execution::kInline)
    return from.copy_to_host(to_memory, from_memory, bytes);
  std::memcpy(to_memory, from_memory, bytes);
}

void copy_between(DeviceImpl& to, void* to_memory, DeviceImpl& from, const void* from_memory,
                  std::size_t bytes) {
  if (bytes == 0) return;
  if (from.host_accessible()) {
    host_to_device(to, to_memory, from_memory, bytes);
    return;
  }
  if (to.host_accessible()) {
    read_from(from, to_memory, from_memory, bytes, from.stream().record());
    return;
  }
  if (to.backend() != from.backend()) {
    std::vector<std::byte> staged(bytes);
    read_from(from, staged.data(), from_memory, bytes, from.stream().record());
    host_to_device(to, to_memory, staged.data(), bytes);
    to.stream().synchronize();  // before the staging memory goes
    return;
  }
  const auto copy = [&] {
    const StreamSpan span(to, [&] { return copy_event("copy from " + from.full_name(), bytes); });
    to.copy_from_peer(to_memory, from, from_memory, bytes);
  };
  if (&to == &from) return copy();
  to.stream().wait(from.stream().record());
  copy();
  from.stream().wait(to.stream().record());
}

}  // namespace tandem
