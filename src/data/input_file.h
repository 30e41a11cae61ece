// Files that are read from their beginning to their end, plain or compressed.
#pragma once

#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text_files.h"

namespace tandem::data {

// Not thread-safe. `op` is for messages. Errors are those of tandem/datasets.h.
class InputFile {
 public:
  InputFile(std::string_view op, std::string path, Compression compression);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Reads up to `count` bytes; fewer only at the end.
  std::size_t read(void* to, std::size_t count);
  // Reads all that is left.
  std::string read_rest();
  const std::string& path() const { return path_; }

 private:
  struct Inflater;
  std::size_t read_raw(void* to, std::size_t count);
  std::size_t inflate_some(std::byte* to, std::size_t count);

  std::string op_, path_;
  std::ifstream file_;
  std::unique_ptr<Inflater> inflater_;  // null for a plain file
};

}  // namespace tandem::data
