/// @file
/// TFRecord files, and the tf.train.Example messages in them: read and written
/// without TensorFlow.
///
/// Errors are those of tandem/datasets.h. Messages name the file and the
/// position in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/data.h"
#include "tandem/text_files.h"

namespace tandem::data {

/// The values of a feature of an example: strings of any bytes, floats or
/// integers.
using FeatureValues =
    std::variant<std::vector<std::string>, std::vector<float>, std::vector<std::int64_t>>;
/// The features of an example by name.
using FeatureMap = std::map<std::string, FeatureValues>;

/// An example as a tf.train.Example message. The same features give the same
/// bytes.
std::string serialize_example(const FeatureMap& features);
/// The features of a tf.train.Example message; features without values of any
/// kind are left out. Throws DataLossError for other bytes.
FeatureMap parse_example(std::string_view record);

/// Writes a TFRecord file. Not thread-safe. As tf.io.TFRecordWriter.
class TFRecordWriter {
 public:
  /// Replaces the file. `compression`: kNone, kGzip or kZlib. Throws
  /// ResourceExhaustedError, NotFoundError or FailedPreconditionError if it
  /// cannot be written, as do the other methods.
  explicit TFRecordWriter(const std::string& path, Compression compression = Compression::kNone);
  /// Closes the file; what it cannot write then is lost without an error.
  ~TFRecordWriter();
  TFRecordWriter(TFRecordWriter&&) noexcept;             ///< takes the file over
  TFRecordWriter& operator=(TFRecordWriter&&) noexcept;  ///< takes the file over

  /// Appends a record.
  void write(std::string_view record);
  /// Appends an example.
  void write(const FeatureMap& features) { write(serialize_example(features)); }
  /// Writes buffered data and closes the file. A later write() throws FailedPreconditionError.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A feature that from_tfrecord() reads, and the tensor that it becomes. As
/// tf.io.FixedLenFeature.
struct FeatureSpec {
  std::string name{};  ///< in the examples
  /// float32 and int64 are stored as such. Others are the bytes of one text,
  /// little-endian, as tf.io.decode_raw() reads them.
  DType dtype = float32;
  Shape shape = Shape::scalar();  ///< a first size of -1: as many as there are
  /// The value of all elements where the feature is missing; none: that is an error.
  std::optional<double> default_value{};
};

/// Options of from_tfrecord().
struct TFRecordOptions {
  /// The components of an element. None: one component, uint8 [length], with
  /// the record's bytes.
  std::vector<FeatureSpec> features{};
  Compression compression = Compression::kAuto;  ///< of all files
  /// The longest record, in bytes. A longer one is a DataLossError.
  std::int64_t max_record = std::int64_t{1} << 30;
};

/// @{
/// A dataset of the records of TFRecord files, one file after another. Their
/// checksums are checked. Several workers may split the files
/// (AutoShardPolicy::kFile). As tf.data.TFRecordDataset with
/// tf.io.parse_single_example.
/// @code
/// from_tfrecord(files, {.features = {{.name = "image", .dtype = td::uint8,
/// .shape = {28, 28, 1}},
///                                    {.name = "label", .dtype = td::int64}}})
/// @endcode
/// The iterator throws DataLossError for a corrupt or truncated record
/// (TensorFlow ends without an error if a file ends inside of a record's
/// header), and InvalidArgumentError for a feature that is missing or of
/// another kind or size.
Dataset from_tfrecord(const std::vector<std::string>& files, const TFRecordOptions& options = {});
/// The same for one file.
inline Dataset from_tfrecord(const std::string& file, const TFRecordOptions& options = {}) {
  return from_tfrecord(std::vector<std::string>{file}, options);
}
/// @}

}  // namespace tandem::data
