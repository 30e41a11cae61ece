#include "train/callbacks/tfrecord_writer.h"

#include <cerrno>

#include "core/file_error.h"
#include "core/status.h"
#include "data/record_reader.h"

namespace tandem {

TFRecordWriter::TFRecordWriter(std::filesystem::path path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {
  if (!out_) fail_to_write();
}

void TFRecordWriter::write(std::string_view record) {
  const data::RecordFrame frame(record);
  errno = 0;
  out_ << frame.before() << record << frame.after() << std::flush;
  if (!out_) fail_to_write();
}

void TFRecordWriter::fail_to_write() const {
  throw_file_error(fmt::format("[TFRecord] cannot write '{}'", path_.string()), errno);
}

}  // namespace tandem
