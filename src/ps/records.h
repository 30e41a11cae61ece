// The records of a parameter server's journal, and files of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ps/proto/journal.pb.h"
#include "rpc/message.h"

namespace tandem::ps {

// Appends records to a file. Not thread-safe.
class RecordWriter {
 public:
  // Creates the file. Throws as core/file_error.h.
  explicit RecordWriter(std::filesystem::path path);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Appends the whole record or nothing. If a part can neither be completed nor removed, this and
  // every later call throws.
  void append(const proto::JournalRecord& record, std::vector<rpc::Attachment> attachments);
  // Waits until the file is on the disk.
  void sync();
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  bool damaged_ = false;  // ends in a part of a record
};

struct Record {
  proto::JournalRecord header;
  std::vector<rpc::Attachment> attachments;
};
struct Records {
  std::vector<Record> records;
  bool complete = true;  // false: what follows was cut off by the death of the writer
};
// The complete records of a file. Throws DataLossError for a file that is not a journal, and as
// core/file_error.h.
Records read_records(const std::filesystem::path& path);

// Takes the changes of a store. Thread-safe.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;
  // Called before a change is applied, which does not happen if this throws.
  virtual void append(const proto::JournalRecord& record,
                      std::vector<rpc::Attachment> attachments) = 0;
};

}  // namespace tandem::ps
