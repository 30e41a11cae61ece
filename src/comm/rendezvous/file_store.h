// A store in a shared file, through which processes can find each other.
#pragma once

#include <cstdint>
#include <string>

#include "comm/rendezvous/key_values.h"
#include "comm/rendezvous/socket.h"
#include "comm/store.h"

namespace tandem {

// The file is a log of changes. Writers hold a kernel lock on it, which is released when they end.
// An unfinished record has no valid checksum; readers ignore it and the next writer truncates it.
// The file stays until remove_file(). Throws InvalidArgumentError for a file with other contents;
// FailedPreconditionError for a symbolic link, another user's file or one that others may access.
class FileStore final : public Store {
 public:
  // Creates the file if necessary, readable by this user only.
  explicit FileStore(std::string path);

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, TimePoint deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  void remove(const std::string& key) override;

  // Makes this process the owner of the file until the object or the process ends, and clears what
  // an earlier owner left. Throws AlreadyExistsError if a running process owns it.
  void own();
  bool is_owned() const;  // by any process
  void remove_file();

 private:
  // Opens the file and locks it for reading or writing.
  Socket open_locked(short type) const;
  // Returns the contents and the end of the last valid record.
  KeyValues read(const Socket& file, std::int64_t& end) const;
  void append(const Socket& file, std::int64_t end, const std::string& record) const;

  std::string path_;
  Socket owned_;
};

}  // namespace tandem
