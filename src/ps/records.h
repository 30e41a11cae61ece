// The records of a parameter server's journal, and files of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ps/proto/journal.pb.h"
#include "rpc/message.h"

namespace tandem::ps {

// Writes records to a file. Not thread-safe.
class RecordWriter {
 public:
  // Creates the file, or writes over an old one from its beginning: memory and blocks that a file
  // has are cheaper than new ones. Old records after the new ones do not count, because their
  // generation differs. Throws as core/file_error.h.
  RecordWriter(std::filesystem::path path, std::uint64_t generation);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Appends the whole record or nothing. If a part can neither be completed nor removed, this and
  // every later call throws.
  void append(const proto::JournalRecord& record, std::vector<rpc::Attachment> attachments);
  // Ends the file after the last record.
  void finish();
  // Waits until the file is on the disk.
  void sync();
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  std::uint64_t generation_;
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
  bool complete = true;  // false: the writer died before finish()
};
// The complete records of a file that are of this generation. Throws DataLossError for a file that
// is not a journal, and as core/file_error.h.
Records read_records(const std::filesystem::path& path, std::uint64_t generation);

// Takes the changes of a store. Thread-safe.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;
  // Called before a change is applied, which does not happen if this throws.
  virtual void append(const proto::JournalRecord& record,
                      std::vector<rpc::Attachment> attachments) = 0;
};

}  // namespace tandem::ps
