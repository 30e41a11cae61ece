// A damaged record or file of what a parameter server holds: it is restored, or refused with a
// typed error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/status.h"
#include "fuzz/damage.h"
#include "ps/recorded_job.h"
#include "support/files.h"

namespace {

using namespace tandem;

const ps::testing::RecordedJob& job() {
  static const auto& instance = *[] {
    setenv("TANDEM_LOG_LEVEL", "off", 1);  // each refused change is logged
    return new ps::testing::RecordedJob;
  }();
  return instance;
}

// The record at `index` is damaged, and restored after those before it.
void check_record(std::size_t index, std::span<const std::uint8_t> edits) {
  ps::ParameterStore store;
  const auto& records = job().records();
  for (std::size_t i = 0; i < index; ++i) store.restore(records[i]);
  std::string bytes = records[index].header.SerializeAsString();
  fuzz::damage(bytes, edits);
  ps::StateRecord damaged{.header = {}, .attachments = records[index].attachments};
  if (!damaged.header.ParseFromString(bytes)) return;
  try {
    store.restore(damaged);
  } catch (const DataLossError&) {
  }
  store.capture();
}

const std::string& good_file() {
  static const auto& bytes = *[] {
    const testing::TemporaryDirectory folder;
    ps::StateWriter writer(folder / "state");
    for (const ps::StateRecord& record : job().records()) writer.append(record);
    writer.commit();
    return new std::string(testing::read_file(folder / "state"));
  }();
  return bytes;
}

void check_file(std::span<const std::uint8_t> edits) {
  std::string bytes = good_file();
  fuzz::damage(bytes, edits);
  const int file = memfd_create("state", MFD_CLOEXEC);
  TANDEM_ASSERT(file >= 0);
  const std::string path = fmt::format("/proc/self/fd/{}", file);
  testing::write_file(path, bytes);
  std::size_t records = 0;
  bool whole = false;
  try {
    ps::StateReader reader(path);
    while (reader.next()) ++records;
    whole = true;
  } catch (const DataLossError&) {
  }
  TANDEM_ASSERT(whole == (bytes == good_file()));
  TANDEM_ASSERT(records <= job().records().size());
  close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 1) return 0;
  const std::span<const std::uint8_t> edits(bytes + 1, size - 1);
  if (bytes[0] % 4 == 0)
    check_file(edits);
  else
    check_record(bytes[0] / 4u % job().records().size(), edits);
  return 0;
}
