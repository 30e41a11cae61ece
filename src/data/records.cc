// TFRecord files: the framing, and examples as tensors.
#include "tandem/records.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/file_error.h"
#include "core/status.h"
#include "data/node.h"
#include "data/proto/example.pb.h"
#include "data/record_reader.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {

namespace {

// The checksum as TFRecord files store it: masked, since data may itself
// contain checksums.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

RecordFrame::RecordFrame(std::string_view record) {
  const auto length = static_cast<std::uint64_t>(record.size());
  const std::uint32_t crcs[] = {masked_crc(plain_bytes(length)), masked_crc(record)};
  std::memcpy(bytes, &length, sizeof(length));
  std::memcpy(bytes + sizeof(length), crcs, sizeof(crcs));
}

// --- examples ---

std::string serialize_example(const FeatureMap& features) {
  // One by one: the order of a map's entries is not defined, and files are to
  // be repeatable.
  std::string entries;
  for (const auto& [name, values] : features) {
    proto::Feature feature;
    std::visit(
        [&feature]<class T>(const std::vector<T>& all) {
          if constexpr (std::is_same_v<T, std::string>)
            for (const T& value : all) feature.mutable_bytes_list()->add_value(value);
          else if constexpr (std::is_same_v<T, float>)
            feature.mutable_float_list()->mutable_value()->Add(all.begin(), all.end());
          else
            feature.mutable_int64_list()->mutable_value()->Add(all.begin(), all.end());
        },
        values);
    proto::Features one;
    (*one.mutable_feature())[name] = std::move(feature);
    entries += one.SerializeAsString();
  }
  proto::Features all;
  std::string record;
  // TFExample{features = 1}: the key of a message, its length, and its bytes.
  record += '\x0a';
  for (std::uint64_t length = entries.size(); true; length >>= 7) {
    if (length < 0x80) {
      record += static_cast<char>(length);
      break;
    }
    record += static_cast<char>((length & 0x7f) | 0x80);
  }
  return record + entries;
}

namespace {

proto::TFExample message_of(std::string_view record, std::string_view place) {
  proto::TFExample message;
  if (record.size() > INT32_MAX ||
      !message.ParseFromArray(record.data(), static_cast<int>(record.size())))
    fail<DataLossError>("{}: expected a tf.train.Example, got {} other bytes", place,
                        record.size());
  return message;
}

}  // namespace

FeatureMap parse_example(std::string_view record) {
  const proto::TFExample message = message_of(record, "[parse_example] the record");
  FeatureMap features;
  for (const auto& [name, feature] : message.features().feature()) {
    if (feature.has_bytes_list()) {
      const auto& values = feature.bytes_list().value();
      features[name] = std::vector<std::string>(values.begin(), values.end());
    } else if (feature.has_float_list()) {
      const auto& values = feature.float_list().value();
      features[name] = std::vector<float>(values.begin(), values.end());
    } else if (feature.has_int64_list()) {
      const auto& values = feature.int64_list().value();
      features[name] = std::vector<std::int64_t>(values.begin(), values.end());
    }
  }
  return features;
}

namespace {

const char* kind_of(const proto::Feature& feature) {
  return feature.has_bytes_list()   ? "string"
         : feature.has_float_list() ? "float"
         : feature.has_int64_list() ? "int64"
                                    : "none";
}

// The shape of a feature of `count` values. Throws InvalidArgumentError for
// another number.
Shape shape_of(const FeatureSpec& spec, std::int64_t count, std::string_view place) {
  Shape shape = spec.shape;
  std::int64_t row = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (axis > 0 || shape.word(0) >= 0) row *= shape.word(axis);
  const bool any = shape.rank() > 0 && shape.word(0) < 0;
  if (any ? (row == 0 || count % row != 0) : count != row)
    fail<InvalidArgumentError>(
        "{}: Key: {}.  Can't parse serialized Example: "
        "expected values of shape {}, got {}",
        place, spec.name, shape.to_string(), count);
  if (any) shape.set(0, count / row);
  return shape;
}

Tensor new_tensor(const Shape& shape, DType dtype) {
  return make_tensor(DeviceManager::get().host(), shape, dtype);
}

Tensor raw_values(const FeatureSpec& spec, const proto::BytesList& list, std::string_view place) {
  if (list.value_size() != 1)
    fail<InvalidArgumentError>("{}: Key: {}.  expected one text with the bytes of {}, got {}",
                               place, spec.name, name_of(spec.dtype), list.value_size());
  const std::string& bytes = list.value(0);
  const std::size_t size = size_of(spec.dtype);
  if (bytes.size() % size != 0)
    fail<InvalidArgumentError>("{}: Key: {}.  expected a multiple of {} bytes, got {}", place,
                               spec.name, size, bytes.size());
  const Tensor tensor =
      new_tensor(shape_of(spec, static_cast<std::int64_t>(bytes.size() / size), place), spec.dtype);
  std::byte* const to = impl_of(tensor).data();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    to[i] = static_cast<std::byte>(spec.dtype == bool_ ? bytes[i] != 0 : bytes[i]);
  return tensor;
}

template <class T, class List>
Tensor list_values(const FeatureSpec& spec, const List& list, std::string_view place) {
  const Tensor tensor = new_tensor(shape_of(spec, list.value_size(), place), spec.dtype);
  if (list.value_size() > 0)
    std::memcpy(impl_of(tensor).data(), list.value().data(),
                static_cast<std::size_t>(list.value_size()) * sizeof(T));
  return tensor;
}

Tensor default_of(const FeatureSpec& spec) {
  Shape shape = spec.shape;
  if (shape.rank() > 0 && shape.word(0) < 0) shape.set(0, 0);
  const Tensor tensor = new_tensor(shape, spec.dtype);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (spec.dtype == float32)
      reinterpret_cast<float*>(impl_of(tensor).data())[i] = static_cast<float>(*spec.default_value);
    else
      reinterpret_cast<std::int64_t*>(impl_of(tensor).data())[i] =
          static_cast<std::int64_t>(*spec.default_value);
  }
  return tensor;
}

Tensor tensor_of(const FeatureSpec& spec, const proto::TFExample& example,
                 const std::string& place) {
  const auto& features = example.features().feature();
  const auto found = features.find(spec.name);
  if (found == features.end() || found->second.kind_case() == proto::Feature::KIND_NOT_SET) {
    if (spec.default_value) return default_of(spec);
    fail<InvalidArgumentError>(
        "{}: Feature: {} (data type: {}) is required but could not be found.", place, spec.name,
        name_of(spec.dtype));
  }
  const proto::Feature& feature = found->second;
  if (spec.dtype == float32 && feature.has_float_list())
    return list_values<float>(spec, feature.float_list(), place);
  if (spec.dtype == int64 && feature.has_int64_list())
    return list_values<std::int64_t>(spec, feature.int64_list(), place);
  if (feature.has_bytes_list()) return raw_values(spec, feature.bytes_list(), place);
  fail<InvalidArgumentError>(
      "{}: Key: {}.  Data types don't match. Data type: "
      "{} but expected type: {}",
      place, spec.name, kind_of(feature), name_of(spec.dtype));
}

class RecordStream final : public ItemStream<Example> {
 public:
  RecordStream(const std::string& path, std::shared_ptr<const TFRecordOptions> options)
      : path_(path), options_(std::move(options)) {}
  bool next(Example& item) override {
    if (!read()) return false;
    item = Example();
    if (options_->features.empty()) {
      const Tensor bytes = new_tensor({std::ssize(record_)}, uint8);
      if (!record_.empty()) std::memcpy(impl_of(bytes).data(), record_.data(), record_.size());
      item.push_back(bytes);
      return true;
    }
    const proto::TFExample example = message_of(record_, reader_->place());
    for (const FeatureSpec& spec : options_->features)
      item.push_back(tensor_of(spec, example, reader_->place()));
    return true;
  }
  // Records that are skipped are not parsed.
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    for (; skipped < count && read(); ++skipped) check_cancelled();
    return skipped;
  }

 private:
  bool read() {
    if (!reader_) reader_.emplace(path_, options_->compression, options_->max_record);
    return reader_->next(record_);
  }

  std::string path_;
  std::shared_ptr<const TFRecordOptions> options_;
  std::optional<RecordReader> reader_;
  std::string record_;
};

void check(const FeatureSpec& spec) {
  for (int axis = 1; axis < spec.shape.rank(); ++axis)
    if (spec.shape.word(axis) < 0)
      fail<InvalidArgumentError>(
          "[from_tfrecord] feature '{}': only the first "
          "size of a shape may be -1, got {}",
          spec.name, spec.shape.to_string());
  if (spec.default_value && spec.dtype != float32 && spec.dtype != int64)
    fail<InvalidArgumentError>(
        "[from_tfrecord] feature '{}': features of "
        "float32 and int64 have default values, got {}",
        spec.name, name_of(spec.dtype));
}

}  // namespace

// --- files ---

bool RecordReader::next(std::string& record) {
  char header[12];
  const auto corrupt = [&](std::uint64_t at) {
    fail<DataLossError>("[from_tfrecord] {}: corrupted record at {}{}", file_.path(), at,
                        at == 0 ? " (Is this even a TFRecord file?)" : "");
  };
  const auto expect = [&](std::size_t got, std::size_t expected) {
    if (got != expected)
      fail<DataLossError>(
          "[from_tfrecord] {}: truncated record at {}: "
          "expected {} bytes, got {}",
          file_.path(), at_, expected, got);
    at_ += got;
  };
  const std::size_t got = file_.read(header, sizeof(header));
  if (got == 0) return false;
  record_at_ = at_;
  expect(got, sizeof(header));
  std::uint64_t length = 0;
  std::uint32_t crc = 0;
  std::memcpy(&length, header, sizeof(length));
  std::memcpy(&crc, header + sizeof(length), sizeof(crc));
  if (masked_crc({header, sizeof(length)}) != crc) corrupt(record_at_);
  if (length > static_cast<std::uint64_t>(max_record_))
    fail<DataLossError>(
        "[from_tfrecord] {}: the record at {} has {} bytes, "
        "more than {} (max_record)",
        file_.path(), record_at_, length, max_record_);
  // A damaged length costs no memory that the file does not have.
  constexpr std::size_t kStep = std::size_t{1} << 24;
  record.clear();
  while (record.size() < length) {
    const std::size_t before = record.size(), step = std::min<std::size_t>(kStep, length - before);
    record.resize(before + step);
    expect(file_.read(record.data() + before, step), step);
  }
  expect(file_.read(&crc, sizeof(crc)), sizeof(crc));
  if (masked_crc(record) != crc) corrupt(record_at_ + sizeof(header));
  return true;
}

std::string RecordReader::place() const {
  return fmt::format("[from_tfrecord] {}, record at {}", file_.path(), record_at_);
}

struct TFRecordWriter::State {
  std::string path;
  std::ofstream file;
  std::optional<z_stream> zlib{};

  [[noreturn]] void refuse() const {
    throw_file_error(fmt::format("[TFRecordWriter] cannot write '{}'", path), errno);
  }
  void write(std::string_view bytes, int flush = Z_NO_FLUSH) {
    errno = 0;
    if (!zlib) {
      file << bytes;
      if (!file) refuse();
      return;
    }
    char packed[1 << 14];
    zlib->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    std::size_t left = bytes.size();
    do {
      const auto given = static_cast<uInt>(std::min<std::size_t>(left, 1u << 30));
      zlib->avail_in = given;
      do {
        zlib->next_out = reinterpret_cast<Bytef*>(packed);
        zlib->avail_out = sizeof(packed);
        deflate(&*zlib, left == given ? flush : Z_NO_FLUSH);
        file.write(packed, static_cast<std::streamsize>(sizeof(packed) - zlib->avail_out));
        if (!file) refuse();
      } while (zlib->avail_out == 0);
      left -= given;
    } while (left > 0);
  }
  void close() {
    if (!file.is_open()) return;
    if (zlib) write({}, Z_FINISH);
    errno = 0;
    file.close();
    if (!file) refuse();
  }
  ~State() {
    if (zlib) deflateEnd(&*zlib);
  }
};

TFRecordWriter::TFRecordWriter(const std::string& path, Compression compression)
    : state_(std::make_unique<State>()) {
  if (compression == Compression::kAuto)
    fail<InvalidArgumentError>("[TFRecordWriter] expected the compression kNone, kGzip or kZlib");
  state_->path = path;
  errno = 0;
  state_->file.open(path, std::ios::binary | std::ios::trunc);
  if (!state_->file) state_->refuse();
  if (compression == Compression::kNone) return;
  z_stream& zlib = state_->zlib.emplace();
  const int window = compression == Compression::kGzip ? 15 + 16 : 15;
  if (deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail<ResourceExhaustedError>("[TFRecordWriter] zlib could not be initialised");
}

TFRecordWriter::~TFRecordWriter() {
  try {
    if (state_) state_->close();
  } catch (const Error&) {
  }
}
TFRecordWriter::TFRecordWriter(TFRecordWriter&&) noexcept = default;
TFRecordWriter& TFRecordWriter::operator=(TFRecordWriter&&) noexcept = default;

void TFRecordWriter::write(std::string_view record) {
  if (!state_ || !state_->file.is_open())
    fail<FailedPreconditionError>("[TFRecordWriter] the file has been closed");
  const RecordFrame frame(record);
  state_->write(frame.before());
  state_->write(record);
  state_->write(frame.after());
}

void TFRecordWriter::close() {
  if (state_) state_->close();
}

Dataset from_tfrecord(const std::vector<std::string>& files, const TFRecordOptions& options) {
  if (options.max_record < 1)
    fail<InvalidArgumentError>("[from_tfrecord] expected a max_record of at least 1, got {}",
                               options.max_record);
  std::vector<ComponentSpec> spec;
  for (const FeatureSpec& feature : options.features) {
    check(feature);
    spec.push_back({feature.dtype, feature.shape});
  }
  if (spec.empty()) spec.push_back({uint8, Shape{-1}});
  const auto shared = std::make_shared<const TFRecordOptions>(options);
  const auto read = [shared, spec](const std::string& path) {
    return Dataset(
        stream_node([shared, path] { return std::make_unique<RecordStream>(path, shared); }, spec,
                    kUnknownCardinality));
  };
  return Dataset(files_node(files, read, spec));
}

}  // namespace tandem::data
