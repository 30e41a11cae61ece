// Lines of text, and tokens, as datasets.
#include "tandem/text_files.h"

#include <cstring>

#include "core/mapped_file.h"
#include "core/status.h"
#include "data/input_file.h"
#include "data/node.h"
#include "tandem/creation.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

// --- lines ---

// Splits a file into lines.
class LineReader {
 public:
  LineReader(std::string_view op, const std::string& path, Compression compression,
             std::int64_t max_line)
      : op_(op), file_(op, path, compression), max_line_(max_line) {}

  // The next line, which is valid until the next call. Returns false at the end.
  bool next(std::string_view& line) {
    for (;;) {
      const std::size_t end = text_.find('\n', searched_);
      if (end != text_.npos || whole_) {
        if (end == text_.npos && at_ == text_.size()) return false;
        const std::size_t stop = end == text_.npos ? text_.size() : end;
        line = std::string_view(text_).substr(at_, stop - at_);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (std::cmp_greater(line.size(), max_line_)) refuse();
        at_ = searched_ = end == text_.npos ? stop : stop + 1;
        ++line_;
        return true;
      }
      searched_ = text_.size();
      if (std::cmp_greater(text_.size() - at_, max_line_ + 1)) refuse();
      read_block();
    }
  }

 private:
  void read_block() {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    text_.erase(0, at_);
    searched_ -= at_;
    at_ = 0;
    const std::size_t before = text_.size();
    text_.resize(before + kBlock);
    const std::size_t got = file_.read(text_.data() + before, kBlock);
    text_.resize(before + got);
    whole_ = got < kBlock;
  }
  [[noreturn]] void refuse() const {
    fail<DataLossError>("[{}] {}, line {}: expected at most {} bytes (max_line), got more", op_,
                        file_.path(), line_, max_line_);
  }

  std::string op_;
  InputFile file_;
  std::int64_t max_line_;
  std::string text_;
  std::size_t at_ = 0, searched_ = 0;  // where the next line begins, and may end
  std::int64_t line_ = 1;
  bool whole_ = false;  // the input has the end of the file
};

Tensor bytes_of(std::string_view line) {
  Tensor bytes = make_tensor(DeviceManager::get().host(), {std::ssize(line)}, uint8);
  if (!line.empty()) std::memcpy(impl_of(bytes).data(), line.data(), line.size());
  return bytes;
}

class LineStream final : public ItemStream<Example> {
 public:
  LineStream(const std::string& path, std::shared_ptr<const TextOptions> options)
      : path_(path), options_(std::move(options)) {}
  bool next(Example& item) override {
    std::string_view line;
    if (!take(line)) return false;
    item = Example(options_->encode ? options_->encode(line) : bytes_of(line));
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    for (std::string_view line; skipped < count && take(line); ++skipped) check_cancelled();
    return skipped;
  }

 private:
  bool take(std::string_view& line) {
    if (!reader_) reader_.emplace("from_text", path_, options_->compression, options_->max_line);
    return reader_->next(line);
  }

  std::string path_;
  std::shared_ptr<const TextOptions> options_;
  std::optional<LineReader> reader_;
};

// --- tokens ---

enum class TokenType { kUint16, kInt32, kUint32 };

// The windows of a file of tokens.
class Tokens {
 public:
  Tokens(const std::string& path, TokenType type, std::int64_t length, const TokenOptions& options)
      : file_("from_tokens", path, "tokens"),
        type_(type),
        header_bytes_(options.header_bytes),
        length_(length),
        stride_(options.stride == 0 ? length : options.stride) {
    const std::int64_t size = type == TokenType::kUint16 ? 2 : 4;
    const std::int64_t bytes = static_cast<std::int64_t>(file_.size()) - header_bytes_;
    if (bytes < 0 || bytes % size != 0)
      fail<InvalidArgumentError>(
          "[from_tokens] {}: expected a multiple of {} bytes after a header of {}, got a file of "
          "{}",
          path, size, header_bytes_, file_.size());
    count_ = bytes / size;
    if (count_ <= length_)
      fail<InvalidArgumentError>(
          "[from_tokens] {}: expected at least {} tokens for a sequence and the next token, got {}",
          path, length_ + 1, count_);
  }

  std::int64_t windows() const { return (count_ - 1 - length_) / stride_ + 1; }
  std::int64_t length() const { return length_; }
  Example window(std::int64_t index) const {
    const std::int64_t begin = index * stride_;
    return {tokens(begin), tokens(begin + 1)};
  }

 private:
  // The tokens [begin, begin + length) as int64.
  Tensor tokens(std::int64_t begin) const {
    Tensor tokens = make_tensor(DeviceManager::get().host(), {length_}, int64);
    auto* const to = reinterpret_cast<std::int64_t*>(impl_of(tokens).data());
    switch (type_) {
      case TokenType::kUint16: widen<std::uint16_t>(begin, to); break;
      case TokenType::kInt32: widen<std::int32_t>(begin, to); break;
      case TokenType::kUint32: widen<std::uint32_t>(begin, to); break;
    }
    return tokens;
  }
  template <class T>
  void widen(std::int64_t begin, std::int64_t* to) const {
    const std::byte* from = file_.data() + header_bytes_ + begin * std::int64_t{sizeof(T)};
    for (std::int64_t i = 0; i < length_; ++i, from += sizeof(T)) {
      T token;
      std::memcpy(&token, from, sizeof(T));
      to[i] = token;
    }
  }

  MappedFile file_;
  TokenType type_;
  std::int64_t header_bytes_, length_, stride_, count_ = 0;
};

TokenType token_type(std::string_view name) {
  if (name == "uint16") return TokenType::kUint16;
  if (name == "int32") return TokenType::kInt32;
  if (name == "uint32") return TokenType::kUint32;
  fail<InvalidArgumentError>(
      "[from_tokens] expected a file of type uint16, int32 or uint32, got '{}'", name);
}

}  // namespace

Dataset from_text(const std::vector<std::string>& files, const TextOptions& options) {
  if (options.max_line < 1)
    fail<InvalidArgumentError>("[from_text] expected a max_line of at least 1, got {}",
                               options.max_line);
  const auto shared = std::make_shared<const TextOptions>(options);
  const Spec spec = options.encode ? Spec() : std::vector<ComponentSpec>{{uint8, Shape{-1}}};
  const auto read = [shared, spec](const std::string& path) {
    return Dataset(
        stream_node([shared, path] { return std::make_unique<LineStream>(path, shared); }, spec,
                    kUnknownCardinality));
  };
  return Dataset(files_node(files, read, spec));
}

std::string text_of(const Tensor& bytes) {
  if (bytes.dtype() != uint8 || bytes.rank() != 1)
    fail<InvalidArgumentError>("[text_of] expected the bytes of a text, uint8 [length], got {} {}",
                               name_of(bytes.dtype()), bytes.shape().to_string());
  const std::vector<std::uint8_t> values = bytes.to_vector<std::uint8_t>();
  return {values.begin(), values.end()};
}

StringColumn read_lines(const std::string& path, Compression compression) {
  LineReader reader("read_lines", path, compression, std::int64_t{1} << 30);
  StringColumn lines;
  for (std::string_view line; reader.next(line);) lines.push_back(line);
  return lines;
}

Dataset from_tokens(const std::string& path, std::int64_t sequence_length,
                    std::string_view file_dtype, const TokenOptions& options) {
  if (sequence_length < 1 || options.stride < 0 || options.header_bytes < 0)
    fail<InvalidArgumentError>(
        "[from_tokens] expected a sequence_length of at least 1, and a stride and header_bytes of "
        "at least 0, got {}, {} and {}",
        sequence_length, options.stride, options.header_bytes);
  const TokenType type = token_type(file_dtype);
  const auto tokens = std::make_shared<const Tokens>(path, type, sequence_length, options);
  const auto window = [tokens](const Example& number) {
    return tokens->window(number[0].item<std::int64_t>());
  };
  if (!options.shuffle) return Dataset::range(tokens->windows()).map(window);
  // The windows' numbers are rows, so that neither shuffling nor skipping reads the file.
  return Dataset::from_tensor_slices(range(tokens->windows(), {.dtype = int64}))
      .shuffle(tokens->windows(), {.seed = options.seed})
      .map(window);
}

}  // namespace tandem::data
