#include "train/checkpoint/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "core/file_error.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "tandem/checkpoint.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/saver.h"

namespace tandem {

namespace {

// A file that is open for reading at any position.
class OpenFile {
 public:
  // Throws NotFoundError or FailedPreconditionError.
  explicit OpenFile(const std::filesystem::path& path) : path_(path) {
    // A pipe without a writer would block.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0 && (errno == ENOENT || errno == ENOTDIR))
      fail<NotFoundError>("[load] file '{}' does not exist", path.string());
    if (descriptor_ < 0) throw_file_error(fmt::format("[load] cannot read '{}'", name()), errno);
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      close(descriptor_);
      fail<FailedPreconditionError>("[load] '{}' is not a regular file", path.string());
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.string(); }
  std::uint64_t size() const { return size_; }

  // Returns fewer than `bytes` at the end of the file.
  std::size_t read_at(std::uint64_t position, void* to, std::size_t bytes) const {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t count = pread(descriptor_, static_cast<char*>(to) + done, bytes - done,
                                  static_cast<off_t>(position + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw_file_error(fmt::format("[load] cannot read '{}'", name()), errno);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }
  void read_all_at(std::uint64_t position, void* to, std::size_t bytes) const {
    if (read_at(position, to, bytes) != bytes)
      fail_damaged(name(), fmt::format("it ends before byte {}", position + bytes));
  }
  SafetensorsHeader header() const {
    std::uint64_t at = 0;
    return read_safetensors_header(
        [&](void* to, std::size_t bytes) {
          const std::size_t count = read_at(at, to, bytes);
          at += count;
          return count;
        },
        size_, name());
  }
  // Throws DataLossError if the file has another checksum than its header says.
  void verify(const SafetensorsHeader& header) const {
    if (!header.checksum) return;
    std::uint32_t actual = header.header_crc;
    std::vector<char> buffer(kChunkBytes);
    for (std::uint64_t at = header.data_begin; at < size_; at += buffer.size()) {
      const auto bytes =
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size_ - at));
      read_all_at(at, buffer.data(), bytes);
      actual = crc_of(actual, buffer.data(), bytes);
    }
    if (actual != *header.checksum)
      fail_damaged(
          name(), fmt::format("the checksum is {:08x}, expected {:08x}", actual, *header.checksum));
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Whether the file is JSON. The first eight bytes of a safetensors file are a small number.
bool is_json(const OpenFile& file) {
  std::array<char, sizeof(std::uint64_t)> start = {};
  return file.read_at(0, start.data(), start.size()) == start.size() && start[0] == '{' &&
         std::find(start.begin(), start.end(), '\0') == start.end();
}

std::string text_of(const OpenFile& file) {
  if (file.size() > kMaxHeaderBytes)
    fail_damaged(file.name(), fmt::format("expected an index of at most {} bytes, got {}",
                                          kMaxHeaderBytes, file.size()));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_all_at(0, text.data(), text.size());
  return text;
}

}  // namespace

class CheckpointReader::Impl {
 public:
  explicit Impl(std::filesystem::path path) : path_(std::move(path)) {
    // Saving replaces the index, then removes the files of the old one.
    constexpr int kAttempts = 100;
    for (int attempt = 0; !open_once(attempt + 1 == kAttempts); ++attempt) {
    }
  }

  const CheckpointIndex& index() const { return index_; }
  const std::map<std::string, std::string>& foreign() const { return foreign_; }
  bool indexed() const { return indexed_; }
  bool has_checksums() const {
    return (indexed_ && headers_.empty()) ||
           std::all_of(headers_.begin(), headers_.end(),
                       [](const SafetensorsHeader& header) { return header.checksum; });
  }

  const CheckpointTensor& at(const std::string& name) const {
    const auto found = index_.tensors.find(name);
    if (const auto foreign = foreign_.find(name); foreign != foreign_.end())
      fail_dtype(foreign->second, path_.string(), fmt::format("tensor '{}'", name));
    if (found == index_.tensors.end())
      fail<NotFoundError>("[load] '{}' has no tensor '{}'", path_.string(), name);
    return found->second;
  }

  Tensor read(const std::string& name, const TensorRange& range) const;
  void verify() const;

 private:
  // Returns false if the checkpoint was replaced meanwhile.
  bool open_once(bool last);
  void open_single(std::unique_ptr<OpenFile> file);
  void open_weight_map(const std::string& text);
  // Adds the tensors of file `file`, which has no index of Tandem's.
  void add_header(SafetensorsHeader header, std::size_t file,
                  const std::function<bool(const std::string&)>& has);
  void check_header(std::size_t file, const SafetensorsHeader& header) const;
  void verify_once(std::size_t file) const;

  std::filesystem::path path_;
  CheckpointIndex index_;
  std::map<std::string, std::string> foreign_;  // dtypes that Tandem does not have, by tensor
  std::vector<std::unique_ptr<OpenFile>> files_;
  std::vector<SafetensorsHeader> headers_;  // of the files; empty if an index of Tandem's is there
  mutable std::vector<bool> verified_;      // whether a file of headers_ was read and checked
  bool indexed_ = false;
};

bool CheckpointReader::Impl::open_once(bool last) {
  auto file = std::make_unique<OpenFile>(path_);
  files_.clear();
  if (!is_json(*file)) {
    open_single(std::move(file));
    return true;
  }
  indexed_ = true;
  const std::string text = text_of(*file);
  if (is_weight_map(text)) {
    open_weight_map(text);
    return true;
  }
  index_ = parse_index(text, path_.string());
  const std::filesystem::path directory = resolve_link(path_).parent_path();
  try {
    for (CheckpointFile& part : index_.files) {
      part.path = directory / part.path;
      files_.push_back(std::make_unique<OpenFile>(part.path));
      if (files_.back()->size() != part.bytes)
        fail_damaged(part.path.string(), fmt::format("it has {} bytes, expected {}",
                                                     files_.back()->size(), part.bytes));
    }
  } catch (const NotFoundError& missing) {
    if (last || text_of(OpenFile(path_)) == text)
      fail_damaged(path_.string(),
                   fmt::format("it names a file that is missing: {}", missing.what()));
    return false;
  }
  return true;
}

void CheckpointReader::Impl::open_single(std::unique_ptr<OpenFile> file) {
  index_.files = {{.path = path_, .bytes = file->size()}};
  SafetensorsHeader header = file->header();
  index_.metadata = header.metadata;
  files_.push_back(std::move(file));
  add_header(std::move(header), 0, [](const std::string&) { return true; });
}

void CheckpointReader::Impl::open_weight_map(const std::string& text) {
  const WeightMap map = parse_weight_map(text, path_.string());
  index_.metadata = map.metadata;
  std::map<std::string, std::size_t> numbers;  // of the files
  for (const auto& [tensor, file] : map.files) {
    if (!numbers.emplace(file, numbers.size()).second) continue;
    const std::filesystem::path path = path_.parent_path() / file;
    files_.push_back(std::make_unique<OpenFile>(path));
    index_.files.push_back({.path = path, .bytes = files_.back()->size()});
  }
  for (const auto& [file, number] : numbers)
    add_header(files_[number]->header(), number, [&map, &file = file](const std::string& name) {
      const auto found = map.files.find(name);
      return found != map.files.end() && found->second == file;
    });
  for (const auto& [tensor, file] : map.files)
    if (!index_.tensors.contains(tensor) && !foreign_.contains(tensor))
      fail_damaged(path_.string(),
                   fmt::format("tensor '{}' is missing in its file '{}'", tensor, file));
}

void CheckpointReader::Impl::add_header(SafetensorsHeader header, std::size_t file,
                                        const std::function<bool(const std::string&)>& has) {
  for (const SafetensorsEntry& entry : header.entries) {
    if (!has(entry.name)) continue;
    if (!entry.foreign.empty())
      foreign_.emplace(entry.name, entry.foreign);
    else
      index_.tensors.emplace(
          entry.name, CheckpointTensor{.dtype = entry.dtype,
                                       .shape = entry.shape,
                                       .slices = {{.range = whole(entry.shape),
                                                   .file = file,
                                                   .begin = header.data_begin + entry.begin}}});
  }
  headers_.resize(files_.size());
  verified_.resize(files_.size());
  headers_[file] = std::move(header);
}

void CheckpointReader::Impl::verify_once(std::size_t file) const {
  if (headers_.empty() || verified_[file]) return;
  files_[file]->verify(headers_[file]);
  verified_[file] = true;
}

namespace {

// Reads bytes of slices and checks the chunks that hold them.
class ChunkReader {
 public:
  ChunkReader(const OpenFile& file, const CheckpointSlice& slice, std::uint64_t bytes,
              const std::string& name)
      : file_(file), slice_(slice), bytes_(bytes), name_(name) {}

  void read(std::uint64_t from, std::byte* to, std::uint64_t bytes) {
    if (slice_.chunk_crcs.empty()) return file_.read_all_at(slice_.begin + from, to, bytes);
    while (bytes > 0) {
      const std::uint64_t number = from / kChunkBytes, begin = number * kChunkBytes;
      const std::uint64_t size = std::min(kChunkBytes, bytes_ - begin);
      const std::uint64_t count = std::min(bytes, begin + size - from);
      if (count == size) {
        load(number, to, size);
      } else {
        if (number != cached_) {
          chunk_.resize(size);
          load(number, chunk_.data(), size);
          cached_ = number;
        }
        std::copy_n(chunk_.data() + (from - begin), count, to);
      }
      from += count;
      to += count;
      bytes -= count;
    }
  }

 private:
  void load(std::uint64_t number, std::byte* to, std::uint64_t size) {
    file_.read_all_at(slice_.begin + number * kChunkBytes, to, size);
    const std::uint32_t actual = crc_of(0, to, size), expected = slice_.chunk_crcs[number];
    if (actual != expected)
      fail_damaged(file_.name(), fmt::format("the checksum of tensor '{}' is {:08x}, expected "
                                             "{:08x}",
                                             name_, actual, expected));
  }

  const OpenFile& file_;
  const CheckpointSlice& slice_;
  const std::uint64_t bytes_;  // of the slice
  const std::string& name_;
  std::vector<std::byte> chunk_;
  std::uint64_t cached_ = ~std::uint64_t{0};
};

}  // namespace

Tensor CheckpointReader::Impl::read(const std::string& name, const TensorRange& range) const {
  const CheckpointTensor& tensor = at(name);
  if (!within(range, tensor.shape))
    fail<OutOfRangeError>("[load] '{}': expected a range of tensor '{}' of shape {}, got {}",
                          path_.string(), name, tensor.shape.to_string(),
                          range.offset.size() == range.shape.rank() ? tandem::text_of(range)
                                                                    : std::string("another rank"));
  const Scoped tag(memory_tag, MemoryTag::kOther);
  Tensor result = make_tensor(DeviceManager::get().host(), range.shape, tensor.dtype);
  std::byte* data = impl_of(result).data();
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const CheckpointSlice& slice : tensor.slices) {
    const auto common = intersect(range, slice.range);
    if (!common) continue;
    verify_once(slice.file);
    ChunkReader reader(*files_[slice.file], slice,
                       static_cast<std::uint64_t>(slice.range.shape.num_elements() * width), name);
    for_each_run(*common, slice.range, range,
                 [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                   reader.read(static_cast<std::uint64_t>(from * width), data + to * width,
                               static_cast<std::uint64_t>(count * width));
                 });
  }
  require_booleans(tensor.dtype, data, impl_of(result).bytes(), path_.string(), name);
  return result;
}

// The index of a file and its own header describe the same slices.
void CheckpointReader::Impl::check_header(std::size_t file, const SafetensorsHeader& header) const {
  std::map<std::uint64_t, const SafetensorsEntry*> at;  // by position; empty tensors share one
  std::size_t expected = 0, found = 0;
  for (const SafetensorsEntry& entry : header.entries)
    if (entry.begin != entry.end) {
      at[header.data_begin + entry.begin] = &entry;
      ++expected;
    }
  for (const auto& [name, tensor] : index_.tensors)
    for (const CheckpointSlice& slice : tensor.slices) {
      if (slice.file != file || slice.range.shape.num_elements() == 0) continue;
      const auto entry = at.find(slice.begin);
      if (entry == at.end() || !entry->second->foreign.empty() ||
          entry->second->dtype != tensor.dtype || !(entry->second->shape == slice.range.shape))
        fail_damaged(files_[file]->name(),
                     fmt::format("its header has no tensor {} {} at byte {} for slice {} of '{}'",
                                 name_of(tensor.dtype), slice.range.shape.to_string(), slice.begin,
                                 tandem::text_of(slice.range), name));
      ++found;
    }
  if (found != expected)
    fail_damaged(files_[file]->name(),
                 fmt::format("its header has {} tensors, the index {}", expected, found));
}

void CheckpointReader::Impl::verify() const {
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const SafetensorsHeader header = files_[file]->header();
    files_[file]->verify(header);
    if (headers_.empty()) check_header(file, header);
  }
  for (const auto& [name, tensor] : index_.tensors)
    for (const CheckpointSlice& slice : tensor.slices) read(name, slice.range);
}

CheckpointReader::CheckpointReader(const std::filesystem::path& path)
    : impl_(std::make_shared<Impl>(path)) {}

const std::map<std::string, CheckpointTensor>& CheckpointReader::tensors() const {
  return impl_->index().tensors;
}
const std::map<std::string, std::string>& CheckpointReader::foreign() const {
  return impl_->foreign();
}
const std::map<std::string, std::string>& CheckpointReader::metadata() const {
  return impl_->index().metadata;
}
const std::vector<CheckpointFile>& CheckpointReader::files() const { return impl_->index().files; }
bool CheckpointReader::indexed() const { return impl_->indexed(); }
bool CheckpointReader::has_checksums() const { return impl_->has_checksums(); }

const CheckpointTensor& CheckpointReader::at(const std::string& name) const {
  return impl_->at(name);
}
Tensor CheckpointReader::read(const std::string& name) const {
  return impl_->read(name, whole(impl_->at(name).shape));
}
Tensor CheckpointReader::read(const std::string& name, const TensorRange& range) const {
  return impl_->read(name, range);
}

void CheckpointReader::verify() const { impl_->verify(); }

TensorFile CheckpointReader::read_all() const {
  for (const auto& [name, dtype] : foreign()) at(name);  // throws
  TensorFile file{.metadata = metadata()};
  for (const auto& [name, tensor] : tensors()) file.tensors.emplace(name, read(name));
  return file;
}

namespace {

// "'a', 'b', 'c' and 12 more"
std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

void check_variables(const std::vector<Variable>& variables,
                     const std::map<std::string, Tensor>& tensors, const std::string& what) {
  std::vector<std::string> missing, extra;
  std::set<std::string> expected;
  for (const Variable& variable : variables) {
    expected.insert(variable.name());
    if (!tensors.contains(variable.name())) missing.push_back(variable.name());
  }
  for (const auto& [name, tensor] : tensors)
    if (!expected.contains(name)) extra.push_back(name);
  if (!missing.empty() && !extra.empty())
    fail<NotFoundError>("[load] {}: it has no tensor for {}; those not used are {}", what,
                        list_names(missing), list_names(extra));
  if (!missing.empty())
    fail<NotFoundError>("[load] {}: it has no tensor for {}", what, list_names(missing));
  if (!extra.empty())
    fail<InvalidArgumentError>("[load] {}: no variable is named {}", what, list_names(extra));
  for (const Variable& variable : variables) {
    const Tensor& tensor = tensors.at(variable.name());
    if (!(tensor.shape() == variable.shape()) || tensor.dtype() != variable.dtype())
      fail<InvalidArgumentError>("[load] {}: '{}' is {} {}, expected {} {}", what, variable.name(),
                                 name_of(tensor.dtype()), tensor.shape().to_string(),
                                 name_of(variable.dtype()), variable.shape().to_string());
  }
}

void restore_variables(const std::vector<Variable>& variables,
                       const std::map<std::string, Tensor>& tensors, const std::string& what) {
  check_variables(variables, tensors, what);
  for (Variable variable : variables) variable.assign(tensors.at(variable.name()));
}

}  // namespace tandem
