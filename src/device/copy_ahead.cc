#include "device/copy_ahead.h"

#include <algorithm>

#include "device/stream_span.h"

namespace tandem {
namespace {

thread_local CopyAheadScope* innermost = nullptr;

}  // namespace

void CopiesAhead::join_noexcept() noexcept {
  try {
    join();
  } catch (...) {  // NOLINT(bugprone-empty-catch): users of the device get the error
  }
}

CopyAheadScope::CopyAheadScope(CopiesAhead& copies)
    : previous_(std::exchange(innermost, this)), copies_(copies) {}

CopyAheadScope::~CopyAheadScope() { innermost = previous_; }

CopyAheadScope* CopyAheadScope::current() { return innermost; }

void CopyAheadScope::copy(DeviceImpl& to, void* to_memory, const void* from_memory,
                          std::size_t bytes) {
  Stream& stream = to.start_copy_ahead();  // after the memory's previous users
  {
    const StreamSpan span(to, stream, [&] {
      return profile::Event{.name = "copy from the host",
                            .lane = profile::Lane::kCopiesAhead,
                            .bytes = static_cast<std::int64_t>(bytes)};
    });
    to.copy_from_host_ahead(to_memory, from_memory, bytes);
  }
  StreamEvent copied = stream.record();
  auto& last = copies_.last_;
  const auto known =
      std::find_if(last.begin(), last.end(), [&](const auto& each) { return each.first == &to; });
  if (known == last.end())
    last.emplace_back(&to, std::move(copied));
  else
    known->second = std::move(copied);
}

}  // namespace tandem
