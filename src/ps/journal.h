// The files from which a restarted parameter server continues.
//
//   state-G   what the store held when log G began: written beside, then renamed
//   log-G     what has changed since, appended before it is applied
//
// The bytes are written to the system before a change is acknowledged, so the death of the process
// loses nothing that was acknowledged. The death of the host may.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "ps/proto/journal.pb.h"
#include "rpc/message.h"

namespace tandem::ps {

class ParameterStore;

// Appends records to a file. Not thread-safe.
class RecordWriter {
 public:
  // Creates the file. Throws as core/file_error.h.
  explicit RecordWriter(std::filesystem::path path);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Appends the whole record or nothing.
  void append(const proto::JournalRecord& record, std::vector<rpc::Attachment> attachments);
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

struct Record {
  proto::JournalRecord header;
  std::vector<rpc::Attachment> attachments;
};
// The complete records of a file. A record that was cut off by the death of the writer, and all that
// follows it, is left out; `complete` is then false. Throws DataLossError for a file that is not a
// journal, and as core/file_error.h.
struct Records {
  std::vector<Record> records;
  bool complete = true;
};
Records read_records(const std::filesystem::path& path);

// Thread-safe.
class Journal {
 public:
  struct Options {
    // A new state is written when the log has at least this size and twice the size of the state.
    std::uint64_t compact_after_bytes = std::uint64_t{256} << 20;
  };

  // Restores `store` from the files in `directory`, which is created if it does not exist, and
  // journals its changes from then on. `store` must be empty and outlive the journal. Throws
  // DataLossError for damaged files.
  Journal(std::filesystem::path directory, ParameterStore& store, const Options& options);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Called by the store before a change is applied.
  void append(const proto::JournalRecord& record, std::vector<rpc::Attachment> attachments);
  // Writes a new state now.
  void compact();
  std::uint64_t generation() const;

 private:
  void restore();
  void remove_before(std::uint64_t generation) const;
  void compact_when_large();
  std::filesystem::path file(const char* kind, std::uint64_t generation) const;

  const std::filesystem::path directory_;
  ParameterStore& store_;
  const Options options_;
  std::mutex compacting_;     // one state at a time
  mutable std::mutex mutex_;  // guards the following
  std::condition_variable grown_;
  std::unique_ptr<RecordWriter> log_;
  std::uint64_t generation_ = 0;  // of the log
  std::uint64_t state_bytes_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tandem::ps
