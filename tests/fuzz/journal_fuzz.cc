// A damaged record or file of a parameter server's journal: it is restored, or refused with a typed
// error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

#include "core/status.h"
#include "fuzz/damage.h"
#include "ps/recorded_job.h"

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
  for (std::size_t i = 0; i < index; ++i) store.restore(records[i].header, records[i].attachments);
  std::string bytes = records[index].header.SerializeAsString();
  fuzz::damage(bytes, edits);
  ps::proto::JournalRecord damaged;
  if (!damaged.ParseFromString(bytes)) return;
  try {
    store.restore(damaged, records[index].attachments);
  } catch (const DataLossError&) {
  }
  store.capture([] {});
}

void check_file(std::span<const std::uint8_t> edits) {
  const int file = memfd_create("journal", MFD_CLOEXEC);
  TANDEM_ASSERT(file >= 0);
  const std::string path = fmt::format("/proc/self/fd/{}", file);
  {
    ps::RecordWriter writer(path, 5);
    for (const ps::Record& record : job().records())
      writer.append(record.header, record.attachments);
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  fuzz::damage(bytes, edits);
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    const ps::Records records = ps::read_records(path, 5);
    TANDEM_ASSERT(records.records.size() <= job().records().size());
  } catch (const DataLossError&) {
  }
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
