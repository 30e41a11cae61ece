// A damaged call of a parameter server, a worker or any task, after the good ones before it: a
// reply or a typed error, and the task still serves.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/status.h"
#include "fuzz/damage.h"
#include "ps/recorded_job.h"

namespace {

using namespace tandem;
using namespace tandem::ps::testing;

const RecordedJob& job() {
  static const auto& instance = *[] {
    setenv("TANDEM_LOG_LEVEL", "off", 1);  // each refused change is logged
    return new RecordedJob;
  }();
  return instance;
}

// The header of a call is damaged, or all its attachments have another size.
void check(std::size_t index, std::span<const std::uint8_t> edits, std::size_t attachments) {
  LocalTasks tasks;
  const auto& calls = job().calls();
  for (std::size_t i = 0; i < index; ++i)
    if (calls[i].first != ps::kEnd)
      static_cast<void>(tasks.server.call(calls[i].first, calls[i].second));
  auto [method, request] = calls[index];
  tandem::fuzz::damage(request.header, edits);
  if (attachments > 0) request.attachments.resize(attachments - 1);
  try {
    tasks.server.call(method, request);
  } catch (const Error&) {
  }
  ps::proto::ReadRequest read;
  static_cast<void>(tasks.server.call("ParameterServer/Read", ps::message_of(read)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  check(bytes[0] % job().calls().size(), {bytes + 2, size - 2}, bytes[1] < 16 ? bytes[1] : 0u);
  return 0;
}
