// NumPy's archives: zip files of arrays, stored or deflated.
#include <zlib.h>

#include <cstring>
#include <limits>

#include "core/atomic_file.h"
#include "core/bytes.h"
#include "core/status.h"
#include "data/formats.h"
#include "data/stream.h"
#include "tandem/array_files.h"

namespace tandem::data {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in a field of 64 bits
constexpr std::uint16_t kStored = 0, kDeflated = 8;

// A file, as the directory of an archive describes it.
struct Entry {
  std::string name;
  std::uint16_t method = kStored, flags = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0, offset = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, std::string_view name)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_(name) {}

  std::vector<Entry> entries() const {
    const auto [count, begin] = directory();
    std::string_view rest = text_.substr(std::min<std::uint64_t>(begin, text_.size()));
    std::vector<Entry> entries;
    for (std::uint64_t i = 0; i < count; ++i) {
      ByteReader reader(what_, rest);
      entries.push_back(entry(reader));
      rest = rest.substr(rest.size() - reader.left());
    }
    return entries;
  }

  std::string contents(const Entry& entry) const {
    if ((entry.flags & 1) != 0) refuse(entry, "it is encrypted");
    if (entry.method != kStored && entry.method != kDeflated)
      refuse(entry, fmt::format("expected compression method 0 or 8, got {}", entry.method));
    const std::string_view packed = packed_bytes(entry);
    std::string bytes = entry.method == kStored ? std::string(packed) : inflated(entry, packed);
    if (bytes.size() != entry.size)
      refuse(entry, fmt::format("expected {} bytes, got {}", entry.size, bytes.size()));
    if (checksum(bytes) != entry.crc) refuse(entry, "its checksum does not match");
    return bytes;
  }

  static std::uint32_t checksum(std::string_view bytes) {
    return static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }

 private:
  struct Directory {
    std::uint64_t count, begin;
  };

  [[noreturn]] void refuse(const Entry& entry, std::string_view why) const {
    fail<DataLossError>("[read_npz] {}, '{}': {}", name_, entry.name, why);
  }

  // The number of files, and where the directory begins.
  Directory directory() const {
    constexpr std::size_t kSize = 22, kMaxComment = 65'535;
    const std::size_t last = text_.size() < kSize ? 0 : text_.size() - kSize;
    for (std::size_t at = last + 1;
         text_.size() >= kSize && at-- > 0 && last - at <= kMaxComment;) {
      ByteReader reader(what_, text_.substr(at));
      if (reader.number<std::uint32_t>() != kEnd) continue;
      reader.take(6);
      const auto count = reader.number<std::uint16_t>();
      reader.take(4);
      const auto begin = reader.number<std::uint32_t>();
      if (count == 0xffff || begin == kIn64) return directory64(at);
      return {count, begin};
    }
    fail<InvalidArgumentError>("[read_npz] {}: expected a zip archive, found no directory of one",
                               name_);
  }
  Directory directory64(std::size_t end) const {
    constexpr std::size_t kLocator = 20;
    if (end >= kLocator) {
      ByteReader locator(what_, text_.substr(end - kLocator, kLocator));
      if (locator.number<std::uint32_t>() == kEnd64Locator) {
        locator.take(4);
        const auto at = locator.number<std::uint64_t>();
        ByteReader reader(what_, text_.substr(std::min<std::uint64_t>(at, text_.size())));
        if (reader.number<std::uint32_t>() == kEnd64) {
          reader.take(28);
          const auto count = reader.number<std::uint64_t>();
          reader.take(8);
          return {count, reader.number<std::uint64_t>()};
        }
      }
    }
    fail<DataLossError>("[read_npz] {}: the directory of the archive is damaged", name_);
  }

  Entry entry(ByteReader& reader) const {
    if (reader.number<std::uint32_t>() != kCentral)
      fail<DataLossError>("[read_npz] {}: the directory of the archive is damaged", name_);
    Entry entry;
    reader.take(4);
    entry.flags = reader.number<std::uint16_t>();
    entry.method = reader.number<std::uint16_t>();
    reader.take(4);
    entry.crc = reader.number<std::uint32_t>();
    entry.packed = reader.number<std::uint32_t>();
    entry.size = reader.number<std::uint32_t>();
    const auto name = reader.number<std::uint16_t>(), extra = reader.number<std::uint16_t>(),
               comment = reader.number<std::uint16_t>();
    reader.take(8);
    entry.offset = reader.number<std::uint32_t>();
    entry.name = reader.take(name);
    ByteReader fields(what_, reader.take(extra));
    reader.take(comment);
    while (fields.left() >= 4) {
      const auto id = fields.number<std::uint16_t>();
      ByteReader field(what_, fields.take(fields.number<std::uint16_t>()));
      if (id != 1) continue;  // zip64
      for (std::uint64_t* value : {&entry.size, &entry.packed, &entry.offset})
        if (*value == kIn64) *value = field.number<std::uint64_t>();
    }
    return entry;
  }

  std::string_view packed_bytes(const Entry& entry) const {
    ByteReader reader(what_, text_.substr(std::min<std::uint64_t>(entry.offset, text_.size())));
    if (reader.number<std::uint32_t>() != kLocal) refuse(entry, "found no file where it should be");
    reader.take(22);
    const auto name = reader.number<std::uint16_t>(), extra = reader.number<std::uint16_t>();
    if (reader.take(name) != entry.name) refuse(entry, "found another file where it should be");
    reader.take(extra);
    if (reader.left() < entry.packed) refuse(entry, "the file is truncated");
    return reader.take(entry.packed);
  }

  std::string inflated(const Entry& entry, std::string_view packed) const {
    constexpr std::uint64_t kMaxExpansion = 1032;  // of deflate
    if (entry.size > (packed.size() + 64) * kMaxExpansion)
      refuse(entry, fmt::format("{} bytes cannot expand to {}", packed.size(), entry.size));
    std::string bytes(entry.size + 1,
                      '\0');  // a byte more than expected is too many
    z_stream zlib{};
    if (inflateInit2(&zlib, -15) != Z_OK)
      fail<ResourceExhaustedError>("[read_npz] {}: zlib could not be initialised", name_);
    std::size_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {
      constexpr std::size_t kStep = std::size_t{1} << 30;
      const auto in = static_cast<uInt>(std::min(packed.size() - read, kStep));
      const auto out = static_cast<uInt>(std::min(bytes.size() - written, kStep));
      zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
      zlib.avail_in = in;
      zlib.next_out = reinterpret_cast<Bytef*>(bytes.data() + written);
      zlib.avail_out = out;
      status = inflate(&zlib, Z_NO_FLUSH);
      read += in - zlib.avail_in;
      written += out - zlib.avail_out;
    }
    inflateEnd(&zlib);
    if (status != Z_STREAM_END) refuse(entry, "the compressed data is corrupt or truncated");
    bytes.resize(written);
    return bytes;
  }

  std::string_view text_, name_;
  std::string what_ = fmt::format("[read_npz] {}: the archive", name_);
};

// Compresses without a header.
std::string deflated(std::string_view bytes) {
  z_stream zlib{};
  if (deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail<ResourceExhaustedError>("[write_npz] zlib could not be initialised");
  std::string packed;
  std::size_t read = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    constexpr std::size_t kStep = std::size_t{1} << 20;
    const std::size_t before = packed.size();
    packed.resize(before + kStep);
    const auto in = static_cast<uInt>(std::min<std::size_t>(bytes.size() - read, 1u << 30));
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + read));
    zlib.avail_in = in;
    zlib.next_out = reinterpret_cast<Bytef*>(packed.data() + before);
    zlib.avail_out = kStep;
    const bool last = read + in == bytes.size();
    status = deflate(&zlib, last ? Z_FINISH : Z_NO_FLUSH);
    read += in - zlib.avail_in;
    packed.resize(before + kStep - zlib.avail_out);
  }
  deflateEnd(&zlib);
  return packed;
}

class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path, "write_npz") {}

  void add(const std::string& name, std::string_view bytes, bool compressed) {
    const std::string packed = compressed ? deflated(bytes) : std::string();
    Entry entry{.name = name,
                .method = compressed ? kDeflated : kStored,
                .crc = ZipReader::checksum(bytes),
                .packed = compressed ? packed.size() : bytes.size(),
                .size = bytes.size(),
                .offset = at_};
    std::string header;
    ByteWriter writer(header);
    writer.add(kLocal);
    add_common(header, entry);
    writer.add(static_cast<std::uint16_t>(name.size()), std::uint16_t{20});
    header += name;
    // Sizes of 64 bits, as NumPy's.
    writer.add(std::uint16_t{1}, std::uint16_t{16}, entry.size, entry.packed);
    write(header);
    write(compressed ? std::string_view(packed) : bytes);
    entries_.push_back(std::move(entry));
  }

  void finish() {
    const std::uint64_t begin = at_;
    for (const Entry& entry : entries_) {
      std::string header;
      ByteWriter writer(header);
      writer.add(kCentral, std::uint16_t{45});
      add_common(header, entry);
      writer.add(static_cast<std::uint16_t>(entry.name.size()), std::uint16_t{28}, std::uint16_t{0},
                 std::uint16_t{0}, std::uint16_t{0}, std::uint32_t{0}, kIn64);
      header += entry.name;
      writer.add(std::uint16_t{1}, std::uint16_t{24}, entry.size, entry.packed, entry.offset);
      write(header);
    }
    const std::uint64_t end = at_, count = entries_.size();
    std::string last;
    ByteWriter writer(last);
    writer.add(kEnd64, std::uint64_t{44}, std::uint16_t{45}, std::uint16_t{45}, std::uint32_t{0},
               std::uint32_t{0}, count, count, end - begin, begin);
    writer.add(kEnd64Locator, std::uint32_t{0}, end, std::uint32_t{1});
    writer.add(kEnd, std::uint16_t{0}, std::uint16_t{0}, std::uint16_t{0xffff},
               std::uint16_t{0xffff}, kIn64, kIn64, std::uint16_t{0});
    write(last);
    file_.commit();
  }

 private:
  // From the version to the sizes: the part that both headers of a file have.
  static void add_common(std::string& header, const Entry& entry) {
    constexpr std::uint16_t kFirstDay = 1 << 5 | 1;  // of 1980: files do not depend on the time
    ByteWriter(header).add(std::uint16_t{45}, entry.flags, entry.method, std::uint16_t{0},
                           kFirstDay, entry.crc, kIn64, kIn64);
  }
  void write(std::string_view bytes) {
    file_.write(bytes.data(), bytes.size());
    at_ += bytes.size();
  }

  AtomicFile file_;
  std::uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace

std::map<std::string, Tensor> parse_npz(std::span<const std::byte> bytes, std::string_view name,
                                        const NpyOptions& options) {
  const ZipReader archive(bytes, name);
  std::map<std::string, Tensor> arrays;
  for (const Entry& entry : archive.entries()) {
    std::string array = entry.name;
    constexpr std::string_view kSuffix = ".npy";
    if (!array.ends_with(kSuffix))
      fail<InvalidArgumentError>("[read_npz] {}: expected arrays, NAME.npy, got '{}'", name, array);
    array.resize(array.size() - kSuffix.size());
    if (arrays.count(array) > 0)
      fail<InvalidArgumentError>("[read_npz] {}: '{}' occurs twice", name, entry.name);
    const std::string contents = archive.contents(entry);
    arrays[array] = parse_npy(std::as_bytes(std::span(contents)),
                              fmt::format("{}, '{}'", name, entry.name), options);
  }
  return arrays;
}

std::map<std::string, Tensor> read_npz(const std::string& path, const NpyOptions& options) {
  const PipelineScope scope;
  return parse_npz(read_file("read_npz", path), path, options);
}

void write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays,
               const NpzOptions& options) {
  const PipelineScope scope;
  for (const auto& [name, tensor] : arrays)
    if (name.empty() || name.size() > 65'000 || name.find('\0') != name.npos)
      fail<InvalidArgumentError>("[write_npz] {}: expected a name of 1 to 65000 bytes, got '{}'",
                                 path, name.substr(0, 100));
  ZipWriter archive(path);
  for (const auto& [name, tensor] : arrays)
    archive.add(name + ".npy", npy_of(tensor), options.compressed);
  archive.finish();
}

}  // namespace tandem::data
