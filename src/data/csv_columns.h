// The fields of CSV columns as numbers and text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "data/csv_scanner.h"

namespace tandem::data {

// The kind of the fields of a column, apart from missing ones. kNone: all are missing.
enum class CsvKind : std::uint8_t { kNone, kInt, kFloat, kBool, kText };

// The fields of some consecutive rows of a column.
struct CsvPiece {
  CsvKind kind = CsvKind::kNone;
  bool missing = false;  // some are: 0, NaN, false or missing strings
  std::int64_t rows = 0;
  std::vector<std::int64_t> ints;  // of kInt; the vector of another kind is empty
  std::vector<double> floats;
  std::vector<std::uint8_t> bools;
  StringColumn text;
};

// A column that is read: its name, its index in the file, and its type if it is given or known.
struct CsvColumn {
  std::string name;
  std::size_t index = 0;
  std::optional<ColumnType> type;
};

// Where a piece of text is from, for messages.
struct CsvPlace {
  std::string_view op;
  std::string_view path;
  std::string_view text;
  std::int64_t first_line = 1;
};

class CsvFormat {
 public:
  explicit CsvFormat(const CsvOptions& options);

  // The fields of a column, as its type says, or else as the first kind that all of them have.
  // Throws InvalidArgumentError.
  CsvPiece read(const CsvPlace& place, const CsvRows& rows, const CsvColumn& column) const;
  // Whether a column of these kinds of pieces has this kind.
  static CsvKind joined(CsvKind a, CsvKind b);

 private:
  class Reader;
  enum class Number { kYes, kNo, kTooLarge };

  bool is_missing(std::string_view field) const;
  Number parse(std::string_view field, std::int64_t& value) const;
  Number parse(std::string_view field, double& value) const;
  bool parse(std::string_view field, bool& value) const;
  std::string_view plain(std::string_view field, std::string& buffer) const;

  char thousands_, decimal_;
  std::unordered_set<std::string> missing_, true_, false_;
  std::size_t longest_missing_ = 0;
  bool missing_number_ = false;  // a text for missing fields looks like a number
};

// The dtype of a column of this kind.
DType dtype_of_kind(CsvKind kind, bool missing);

// Writes a piece as elements of this dtype. The piece is not text.
void write_elements(const CsvPiece& piece, DType dtype, std::byte* to);

}  // namespace tandem::data
