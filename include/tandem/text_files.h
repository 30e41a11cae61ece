/// @file
/// Lines of text files, and files of tokens, as datasets. Errors are those of tandem/datasets.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data.h"
#include "tandem/dtype.h"
#include "tandem/strings.h"
#include "tandem/tensor.h"

namespace tandem::data {

/// How a whole file is compressed.
enum class Compression {
  kAuto,  ///< gzip if the file begins as one, else not at all
  kNone,  ///< not
  kGzip,  ///< gzip, of one or several parts
  kZlib,  ///< deflate with zlib's header
};

/// Options of from_text().
struct TextOptions {
  Compression compression = Compression::kAuto;  ///< of all files
  /// Makes a tensor of a line, such as the ids of its tokens. Called when the line is reached, and
  /// not for lines that are skipped. Default: the bytes of the line, uint8 [length].
  std::function<Tensor(std::string_view line)> encode{};
  /// The longest line, in bytes. A longer one is a DataLossError.
  std::int64_t max_line = std::int64_t{1} << 24;
};

/// @{
/// A dataset of the lines of text files, one file after another. A line ends with "\n" or "\r\n",
/// which it does not contain; the last one may lack it; empty lines are elements. Several workers
/// may split the files (AutoShardPolicy::kFile). As tf.data.TextLineDataset.
/// @code
/// from_text({"reviews.txt"}, {.encode = ids_of}).padded_batch(32)
/// @endcode
Dataset from_text(const std::vector<std::string>& files, const TextOptions& options = {});
/// The same for one file.
inline Dataset from_text(const std::string& file, const TextOptions& options = {}) {
  return from_text(std::vector<std::string>{file}, options);
}
/// @}

/// The string of an element of from_text(): the bytes of a uint8 tensor of one axis. Throws
/// InvalidArgumentError for another tensor.
std::string text_of(const Tensor& bytes);

/// Reads the lines of a text file into memory.
StringColumn read_lines(const std::string& path, Compression compression = Compression::kAuto);

/// Options of from_tokens().
struct TokenOptions {
  bool shuffle = false;  ///< all windows in a new order in each epoch
  /// Seed of the order. Default: derived from random::set_seed()'s seed when from_tokens() is
  /// called.
  std::optional<std::uint64_t> seed{};
  std::int64_t stride = 0;  ///< tokens from one window's start to the next; 0: `sequence_length`
  /// Bytes before the first token: 1024 for llm.c's files.
  std::int64_t header_bytes = 0;
};

/// A dataset of windows of a file of tokens: {tokens[i .. i+n), tokens[i+1 .. i+n+1)}, both int64
/// [n], for i = 0, stride, 2 stride, ...; the second are the next tokens, the labels of language
/// models. The file has little-endian numbers of type uint16, int32 or uint32 (`file_dtype`) and is
/// memory-mapped: only what is read is loaded. Its size must not change while the dataset exists.
/// Throws InvalidArgumentError for a file of less than n + 1 tokens or of a size that is no
/// multiple of the type's, and for another type.
/// @code
/// from_tokens("train.bin", 256, "uint16", {.shuffle = true}).batch(12)
/// @endcode
Dataset from_tokens(const std::string& path, std::int64_t sequence_length,
                    std::string_view file_dtype = "uint16", const TokenOptions& options = {});

}  // namespace tandem::data
