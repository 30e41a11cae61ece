#include "data/input_file.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "core/status.h"

namespace tandem::data {

struct InputFile::Inflater {
  z_stream zlib{};
  std::vector<std::byte> packed = std::vector<std::byte>(std::size_t{1} << 16);
  std::size_t left = 0;  // bytes of `packed` that zlib has not read
  bool file_ended = false;
  bool between = false;  // a stream has ended, and another one may follow
  bool ended = false;
  ~Inflater() { inflateEnd(&zlib); }
};

namespace {

constexpr unsigned char kGzip[] = {0x1f, 0x8b};

}  // namespace

InputFile::InputFile(std::string_view op, std::string path, Compression compression)
    : op_(op), path_(std::move(path)) {
  std::error_code error;
  const auto type = std::filesystem::status(path_, error).type();
  if (type == std::filesystem::file_type::not_found)
    fail<NotFoundError>("[{}] {}: no such file", op_, path_);
  if (type == std::filesystem::file_type::directory)
    fail<InvalidArgumentError>("[{}] {}: expected a file, got a directory", op_, path_);
  file_.open(path_, std::ios::binary);
  if (!file_) fail<NotFoundError>("[{}] {}: cannot be opened", op_, path_);
  if (compression == Compression::kAuto) {
    unsigned char magic[2]{};
    const bool gzip = read_raw(magic, 2) == 2 && std::equal(magic, magic + 2, kGzip);
    file_.clear();
    file_.seekg(0);
    compression = gzip ? Compression::kGzip : Compression::kNone;
  }
  if (compression == Compression::kNone) return;
  inflater_ = std::make_unique<Inflater>();
  const int window = compression == Compression::kGzip ? 15 + 16 : 15;
  if (inflateInit2(&inflater_->zlib, window) != Z_OK)
    fail<ResourceExhaustedError>("[{}] {}: zlib could not be initialised", op_, path_);
}

InputFile::~InputFile() = default;

std::size_t InputFile::read_raw(void* to, std::size_t count) {
  file_.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
  if (file_.bad()) fail<DataLossError>("[{}] {}: cannot be read", op_, path_);
  return static_cast<std::size_t>(file_.gcount());
}

std::size_t InputFile::read(void* to, std::size_t count) {
  if (!inflater_) return read_raw(to, count);
  auto* const target = static_cast<std::byte*>(to);
  std::size_t got = 0;
  while (got < count && !inflater_->ended) got += inflate_some(target + got, count - got);
  return got;
}

std::size_t InputFile::inflate_some(std::byte* to, std::size_t count) {
  Inflater& state = *inflater_;
  if (state.left == 0 && !state.file_ended) {
    state.left = read_raw(state.packed.data(), state.packed.size());
    state.file_ended = state.left < state.packed.size();
    state.zlib.next_in = reinterpret_cast<Bytef*>(state.packed.data());
  }
  if (state.between) {  // a gzip file may hold several streams, and zeros after the last one
    while (state.left > 0 && *state.zlib.next_in == 0) ++state.zlib.next_in, --state.left;
    if (state.left == 0) {
      state.ended = state.file_ended;
      return 0;
    }
    if (*state.zlib.next_in != kGzip[0] || inflateReset(&state.zlib) != Z_OK)
      fail<DataLossError>("[{}] {}: expected the end of the compressed data, got more bytes", op_,
                          path_);
    state.between = false;
  }
  const auto wanted = static_cast<uInt>(std::min<std::size_t>(count, 1u << 30));
  state.zlib.next_out = reinterpret_cast<Bytef*>(to);
  state.zlib.avail_out = wanted;
  state.zlib.avail_in = static_cast<uInt>(state.left);
  const int status = inflate(&state.zlib, Z_NO_FLUSH);
  state.left = state.zlib.avail_in;
  const std::size_t got = wanted - state.zlib.avail_out;
  if (status == Z_STREAM_END)
    state.between = true;
  else if (status == Z_MEM_ERROR)
    fail<ResourceExhaustedError>("[{}] {}: out of memory while decompressing", op_, path_);
  else if (status != Z_OK && status != Z_BUF_ERROR)
    fail<DataLossError>("[{}] {}: the compressed data is corrupt ({})", op_, path_,
                        state.zlib.msg ? state.zlib.msg : zError(status));
  else if (got == 0 && state.left == 0 && state.file_ended)
    fail<DataLossError>("[{}] {}: the compressed data is truncated", op_, path_);
  return got;
}

std::string InputFile::read_rest() {
  std::string all;
  if (!inflater_) {  // a file's size is known, a pipe's is not
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path_, error);
    if (!error) all.reserve(static_cast<std::size_t>(size) + 1);
  }
  for (std::size_t block = std::size_t{1} << 20;;) {
    const std::size_t before = all.size();
    all.resize(before + block);
    const std::size_t got = read(all.data() + before, block);
    all.resize(before + got);
    if (got < block) return all;
  }
}

}  // namespace tandem::data
