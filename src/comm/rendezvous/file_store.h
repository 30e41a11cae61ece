// A store in a file that the processes share, through which they can find each other.
#pragma once

#include <cstdint>
#include <string>

#include "comm/rendezvous/key_values.h"
#include "comm/rendezvous/socket.h"
#include "comm/store.h"

namespace tandem {

// A log of changes. Writers hold the kernel's lock on the file, which ends with them; what a writer
// left unfinished has no valid checksum, is read by nobody and cut off by the next. The file stays
// until remove_file(). Throws InvalidArgumentError for a file that holds something else,
// FailedPreconditionError for one of another user, one that others may use, and a symbolic link.
class FileStore final : public Store {
 public:
  // Makes the file where there is none, readable by this user alone.
  explicit FileStore(std::string path);

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, TimePoint deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool remove(const std::string& key) override;

  // Makes this process the owner of the file until the object or the process ends, and empties it
  // of what an earlier owner left. Throws AlreadyExistsError when a living process owns it.
  void own();
  bool is_owned() const;  // by anybody
  void remove_file();

 private:
  // Opens the file and locks it for reading or writing.
  Socket open_locked(short type) const;
  // What the file holds, and where that ends: what a writer left unfinished stands behind.
  KeyValues read(const Socket& file, std::int64_t& end) const;
  void append(const Socket& file, std::int64_t end, const std::string& record) const;

  std::string path_;
  Socket owned_;
};

}  // namespace tandem
