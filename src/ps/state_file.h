// Files of what a parameter server holds.
//
// A file is a sequence of records. Each has its checksum, and the last one says how many there
// are, so that a file is known to be whole and undamaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "core/atomic_file.h"
#include "ps/proto/state.pb.h"
#include "rpc/message.h"

namespace tandem::ps {

struct StateRecord {
  proto::StateRecord header;
  std::vector<rpc::Attachment> attachments;
};

// Writes a file whole or not at all. Errors are those of AtomicFile. Not thread-safe.
class StateWriter {
 public:
  explicit StateWriter(const std::filesystem::path& path);
  void append(StateRecord record);
  // The file is on the disk when this returns.
  void commit();

 private:
  AtomicFile file_;
  std::uint64_t records_ = 0;
};

// Reads a file. Not thread-safe.
class StateReader {
 public:
  // Throws as core/file_error.h.
  explicit StateReader(std::filesystem::path path);
  // The next record; none after the last. Throws DataLossError for a file that is damaged, cannot
  // be read, or is of another kind.
  std::optional<StateRecord> next();

 private:
  void read(void* bytes, std::uint64_t count);
  [[noreturn]] void fail_damaged() const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t left_ = 0;  // bytes
  std::uint64_t records_ = 0;
};

}  // namespace tandem::ps
