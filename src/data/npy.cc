// NumPy's format of one array.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/atomic_file.h"
#include "core/status.h"
#include "data/formats.h"
#include "data/stream.h"
#include "tandem/array.h"
#include "tandem/array_files.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeader = 10'000;  // as NumPy's

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the header, which is a literal of a Python dictionary.
class HeaderParser {
 public:
  HeaderParser(std::string_view name, std::string_view text) : name_(name), rest_(text) {}

  Header parse() {
    Header header;
    bool has[3]{};
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      const int index = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (index < 0 || std::exchange(has[index], true)) refuse();
      if (index == 0) header.descr = descr();
      if (index == 1) header.fortran_order = boolean();
      if (index == 2) header.shape = sizes();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty() || !has[0] || !has[1] || !has[2]) refuse();
    return header;
  }

 private:
  [[noreturn]] void refuse() const {
    fail<DataLossError>(
        "[read_npy] {}: expected a header with 'descr', "
        "'fortran_order' and 'shape', got another "
        "one, from {} bytes before its end",
        name_, rest_.size());
  }
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t'))
      rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  std::string string() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) refuse();
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == rest_.npos) refuse();
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::string descr() {
    skip_space();
    if (!rest_.empty() && (rest_[0] == '[' || rest_[0] == '('))
      fail<InvalidArgumentError>(
          "[read_npy] {}: expected elements of one "
          "dtype, got records (a structured dtype)",
          name_);
    return string();
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"})
      if (rest_.substr(0, word.size()) == word) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    refuse();
  }
  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!take(')')) {
      skip_space();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) refuse();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (!rest_.empty() && rest_[0] == 'L') rest_.remove_prefix(1);  // Python 2's
      sizes.push_back(size);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view name_, rest_;
};

struct Descr {
  std::string_view code, name;
  std::optional<DType> dtype;  // none: Tandem lacks it
};
constexpr Descr kDescrs[] = {
    {"b1", "bool", DType::kBool},        {"u1", "uint8", DType::kUInt8},
    {"i4", "int32", DType::kInt32},      {"i8", "int64", DType::kInt64},
    {"f2", "float16", DType::kFloat16},  {"f4", "float32", DType::kFloat32},
    {"f8", "float64", DType::kFloat64},  {"i1", "int8", DType::kInt8},
    {"i2", "int16", DType::kInt16},      {"u2", "uint16", DType::kUInt16},
    {"u4", "uint32", DType::kUInt32},    {"u8", "uint64", DType::kUInt64},
    {"f16", "longdouble", std::nullopt}, {"c8", "complex64", std::nullopt},
    {"c16", "complex128", std::nullopt}, {"c32", "clongdouble", std::nullopt}};

DType dtype_of_descr(std::string_view name, const std::string& descr, const NpyOptions& options) {
  const std::string_view code =
      std::string_view(descr).substr(std::min<std::size_t>(1, descr.size()));
  const bool has_order = !descr.empty() && std::strchr("<>|=", descr[0]) != nullptr;
  if (has_order && code == "V2" && options.v2_is_bfloat16) return bfloat16;
  std::string_view other = !has_order       ? "an unknown dtype"
                           : code == "V2"   ? "raw bytes, bfloat16 if v2_is_bfloat16 is set"
                           : code[0] == 'O' ? "Python objects"
                           : code[0] == 'S' || code[0] == 'U' ? "text"
                                                              : "an unknown dtype";
  for (const Descr& stored : kDescrs) {
    if (!has_order || code != stored.code) continue;
    if (stored.dtype) return *stored.dtype;
    other = stored.name;
  }
  fail<InvalidArgumentError>(
      "[read_npy] {}: expected real floating-point numbers of 16 to 64 bits, integers or bool, "
      "got '{}': {}",
      name, descr, other);
}

Header read_header(std::string_view& rest, std::string_view name) {
  if (rest.size() < 8)
    fail<DataLossError>("[read_npy] {}: EOF: reading magic string, expected 8 bytes got {}", name,
                        rest.size());
  if (rest.substr(0, kMagic.size()) != kMagic)
    fail<InvalidArgumentError>("[read_npy] {}: expected a file that begins with \\x93NUMPY", name);
  const int major = static_cast<unsigned char>(rest[6]),
            minor = static_cast<unsigned char>(rest[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail<InvalidArgumentError>(
        "[read_npy] {}: we only support format version "
        "(1,0), (2,0), and (3,0), not ({}, {})",
        name, major, minor);
  const std::size_t width = major == 1 ? 2 : 4;
  rest.remove_prefix(8);
  std::uint32_t length = 0;
  if (rest.size() < width)
    fail<DataLossError>(
        "[read_npy] {}: EOF: reading array header length, "
        "expected {} bytes got {}",
        name, width, rest.size());
  std::memcpy(&length, rest.data(), width);  // little-endian
  rest.remove_prefix(width);
  if (length > kMaxHeader)
    fail<InvalidArgumentError>("[read_npy] {}: expected a header of at most {} bytes, got {}", name,
                               kMaxHeader, length);
  if (rest.size() < length)
    fail<DataLossError>("[read_npy] {}: EOF: reading array header, expected {} bytes got {}", name,
                        length, rest.size());
  const Header header = HeaderParser(name, rest.substr(0, length)).parse();
  rest.remove_prefix(length);
  return header;
}

// The bytes of the elements, of which `left` are there.
std::size_t checked_bytes(const Header& header, DType dtype, std::size_t left,
                          std::string_view name) {
  if (std::ssize(header.shape) > kMaxRank)
    fail<InvalidArgumentError>("[read_npy] {}: expected at most {} axes, got {}", name, kMaxRank,
                               header.shape.size());
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false, fits = true;
  for (const std::int64_t size : header.shape) {
    empty = empty || size == 0;
    if (size > 0) fits = !__builtin_mul_overflow(bytes, size, &bytes) && fits;
  }
  if (!fits)
    fail<DataLossError>("[read_npy] {}: the header's shape has more than 2^63 bytes", name);
  const std::size_t expected = empty ? 0 : static_cast<std::size_t>(bytes);
  if (left < expected)
    fail<DataLossError>("[read_npy] {}: EOF: reading array data, expected {} bytes got {}", name,
                        expected, left);
  return expected;
}

void swap_bytes(std::byte* bytes, std::size_t count, std::size_t size) {
  for (std::size_t i = 0; i + size <= count; i += size) std::reverse(bytes + i, bytes + i + size);
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "<f4";
    case DType::kFloat64: return "<f8";
    case DType::kFloat16: return "<f2";
    case DType::kBFloat16: return "<V2";
    case DType::kInt32: return "<i4";
    case DType::kInt64: return "<i8";
    case DType::kUInt8: return "|u1";
    case DType::kBool: return "|b1";
    case DType::kInt8: return "|i1";
    case DType::kInt16: return "<i2";
    case DType::kUInt16: return "<u2";
    case DType::kUInt32: return "<u4";
    case DType::kUInt64: return "<u8";
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: break;
  }
  fail<InvalidArgumentError>("[write_npy] expected a dtype that NumPy has, got {}", name_of(dtype));
}

}  // namespace

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name,
                 const NpyOptions& options) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Header header = read_header(rest, name);
  const DType dtype = dtype_of_descr(name, header.descr, options);
  const std::size_t expected = checked_bytes(header, dtype, rest.size(), name);
  const int rank = static_cast<int>(header.shape.size());
  Dims sizes, reversed;
  for (const std::int64_t size : header.shape) sizes.push_back(size);
  for (int axis = rank - 1; axis >= 0; --axis) reversed.push_back(sizes[axis]);
  const bool turned = header.fortran_order && rank > 1;
  Tensor tensor = make_tensor(DeviceManager::get().host(), Shape(turned ? reversed : sizes), dtype);
  std::byte* const to = impl_of(tensor).data();
  if (expected > 0) std::memcpy(to, rest.data(), expected);
  if (header.descr[0] == '>') swap_bytes(to, expected, size_of(dtype));
  if (dtype == bool_)
    std::transform(to, to + expected, to,
                   [](std::byte b) { return b == std::byte{0} ? b : std::byte{1}; });
  if (!turned) return tensor;
  Dims order;
  for (int axis = rank - 1; axis >= 0; --axis) order.push_back(axis);
  return transpose(tensor, order);
}

std::string npy_of(const Tensor& tensor) {
  const Tensor local = copy_to_device(tensor, DeviceManager::get().host());
  std::string shape = "(";
  for (const std::int64_t size : local.shape().words()) shape += std::to_string(size) + ", ";
  if (local.rank() > 1) shape.resize(shape.size() - 2);
  if (local.rank() == 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}), }}",
                                   descr_of(local.dtype()), shape);
  constexpr std::size_t kBefore = 10;  // bytes of the magic string and the length
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string file(kMagic);
  file += std::string_view("\x01\x00", 2);
  file.append(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file.append(reinterpret_cast<const char*>(impl_of(local).data()), impl_of(local).bytes());
  return file;
}

Tensor read_npy(const std::string& path, const NpyOptions& options) {
  const PipelineScope scope;
  return parse_npy(read_file("read_npy", path), path, options);
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const PipelineScope scope;
  const std::string bytes = npy_of(tensor);
  AtomicFile file(path, "write_npy");
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace tandem::data
