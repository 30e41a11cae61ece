/// @file
/// Text of data sets. Tensors have no strings: readers give text as a column in CPU memory, which
/// becomes numbers through a vocabulary.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::data {

/// A sequence of strings, any bytes, of which some may be missing.
class StringColumn {
 public:
  StringColumn() = default;
  /// These strings.
  StringColumn(const std::vector<std::string>& values);  // NOLINT: implicit

  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }  ///< number
  /// Text `row`; empty if it is missing. Valid until the column changes. Throws OutOfRangeError
  /// unless 0 <= row < size().
  std::string_view operator[](std::int64_t row) const;
  /// Whether text `row` is missing. Throws OutOfRangeError.
  bool is_missing(std::int64_t row) const;
  std::int64_t missing() const { return missing_; }  ///< number of missing strings
  /// The different strings in increasing order of their bytes, without missing ones.
  std::vector<std::string> unique() const;
  /// The index of each text in `vocabulary`: int64 [size()]; -1 for missing ones. Throws
  /// InvalidArgumentError for a text that the vocabulary lacks, and for one that it has twice.
  Tensor codes(const std::vector<std::string>& vocabulary) const;
  /// The strings at these rows, in this order. Throws OutOfRangeError.
  StringColumn rows(const std::vector<std::int64_t>& rows) const;
  /// All strings; missing ones are empty.
  std::vector<std::string> to_vector() const;

  /// Appends a text.
  void push_back(std::string_view text);
  /// Appends a missing text.
  void push_back_missing();
  /// Appends the strings of another column.
  void append(const StringColumn& other);

 private:
  std::string bytes_;                // of all strings, one after another
  std::vector<std::uint64_t> ends_;  // twice the end in `bytes_`, plus 1 for a missing text
  std::int64_t missing_ = 0;
};

}  // namespace tandem::data
