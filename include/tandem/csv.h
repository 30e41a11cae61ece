/// @file
/// Tables of CSV files, with the rules of pandas' read_csv(): into memory, or as a dataset.
/// @code
/// const auto table = td::data::read_csv("penguins.csv").drop_missing();
/// const td::Tensor x = table.to_tensor({"bill_length_mm", "body_mass_g"});  // float32 [rows, 2]
/// const auto species = table["species"].strings().unique();
/// const td::Tensor y = table["species"].codes(species);  // int64 [rows]
/// @endcode
///
/// A file may be compressed by gzip. Errors are those of tandem/datasets.h; their messages name the
/// file, the line and the column.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/data.h"
#include "tandem/dtype.h"
#include "tandem/strings.h"
#include "tandem/tensor.h"

namespace tandem::data {

/// The type of a column of a table: numbers of a dtype, or strings.
class ColumnType {
 public:
  /// Numbers, or bool.
  ColumnType(DType dtype) : dtype_(dtype) {}  // NOLINT: implicit
  /// @{
  /// The name of a dtype, or "string" ("str") for text. Throws InvalidArgumentError.
  ColumnType(std::string_view name);                                           // NOLINT: implicit
  ColumnType(const char* name) : ColumnType(std::string_view(name)) {}         // NOLINT: implicit
  ColumnType(const std::string& name) : ColumnType(std::string_view(name)) {}  // NOLINT: implicit
  /// @}

  bool is_string() const { return !dtype_; }  ///< whether it is text
  /// The dtype of numbers. Throws InvalidArgumentError for text.
  DType dtype() const;

 private:
  std::optional<DType> dtype_;
};

/// Options of read_csv(), with pandas' names and rules.
struct CsvOptions {
  char sep = ',';  ///< between fields
  /// Whether the first row has the columns' names. Default: unless `names` are given. Without, and
  /// without `names`, columns are "0", "1", ...
  std::optional<bool> header{};
  std::vector<std::string> names{};    ///< of all columns of the file, instead of the header's
  std::vector<std::string> usecols{};  ///< the columns to read; none: all
  /// Types of columns. Those of the others are found in their fields: int64, else float64, else
  /// bool, else string. An int64 column in which some are missing becomes float64 with NaN there.
  std::map<std::string, ColumnType> dtype{};
  std::vector<std::string> true_values{};   ///< besides "True", "TRUE" and "true"
  std::vector<std::string> false_values{};  ///< besides "False", "FALSE" and "false"
  bool skipinitialspace = false;            ///< omits spaces after `sep`
  std::int64_t skiprows = 0;                ///< lines to omit at the beginning of the file
  std::optional<std::int64_t> nrows{};      ///< reads at most that many rows
  std::vector<std::string> na_values{};     ///< more strings that say that a field is missing
  bool keep_default_na = true;              ///< whether "", "NA", "nan", "null", ... say it, too
  bool skip_blank_lines = true;             ///< else they are rows of missing fields
  char thousands = '\0';                    ///< between digits of numbers; 0: nothing
  char decimal = '.';                       ///< of numbers
  char quotechar = '"';                     ///< around fields that contain others; 0: none
  bool doublequote = true;                  ///< two quotes inside of quotes are one
  char escapechar = '\0';                   ///< before a character that is part of a field; 0: none
  char comment = '\0';                      ///< begins a comment, to the end of the line; 0: none
};

/// A column of a table, in CPU memory.
class Column {
 public:
  /// A column of numbers: a tensor [rows].
  Column(std::string name, Tensor values);
  /// A column of text.
  Column(std::string name, StringColumn values);

  const std::string& name() const { return name_; }  ///< its name
  std::int64_t size() const;                         ///< number of rows
  /// Whether it is text.
  bool is_string() const;
  /// The number of missing fields: NaN, or missing strings.
  std::int64_t missing() const;
  /// The numbers: [rows]. Throws InvalidArgumentError for text.
  const Tensor& tensor() const;
  /// The strings. Throws InvalidArgumentError for numbers.
  const StringColumn& strings() const;
  /// As StringColumn::codes(). Throws InvalidArgumentError for numbers.
  Tensor codes(const std::vector<std::string>& vocabulary) const;
  /// The dtype of numbers. Throws InvalidArgumentError for text.
  DType dtype() const;
  /// The values at these rows. Throws OutOfRangeError.
  Column rows(const std::vector<std::int64_t>& rows) const;
  /// Whether the value of this row is missing. Throws OutOfRangeError.
  bool is_missing(std::int64_t row) const;

 private:
  std::string name_;
  std::variant<Tensor, StringColumn> values_;
};

/// Columns of the same number of rows.
class Table {
 public:
  Table() = default;
  /// These columns. Throws InvalidArgumentError if their sizes differ or a name occurs twice.
  explicit Table(std::vector<Column> columns);

  std::int64_t rows() const { return columns_.empty() ? 0 : columns_[0].size(); }  ///< rows
  const std::vector<Column>& columns() const { return columns_; }                  ///< all columns
  std::vector<std::string> names() const;                                          ///< their names
  /// The column of this name. Throws NotFoundError that lists the names.
  const Column& operator[](std::string_view name) const;
  /// These columns of numbers side by side: [rows, columns]. Throws InvalidArgumentError for a
  /// column of text, which codes() makes numbers of.
  Tensor to_tensor(const std::vector<std::string>& columns, DType dtype = float32) const;
  /// All columns.
  Tensor to_tensor(DType dtype = float32) const { return to_tensor(names(), dtype); }
  /// The rows in which none of these columns has a missing value; none: no column has one. As
  /// pandas' dropna().
  Table drop_missing(const std::vector<std::string>& columns = {}) const;

 private:
  std::vector<Column> columns_;
};

/// Reads a CSV file into memory, with the threads of operations. Quoted fields may contain
/// separators and ends of lines. A row of less fields than columns is filled with missing ones. A
/// byte-order mark is ignored. As pandas.read_csv.
///
/// Throws InvalidArgumentError for a row of more fields than columns, a field that is not of its
/// column's type, a number beyond its dtype (also beyond int64 and float64 where the type is not
/// given), unknown columns and options that contradict each other; DataLossError for a quote that
/// is not closed and for an empty file.
Table read_csv(const std::string& path, const CsvOptions& options = {});

/// Options of from_csv().
struct CsvDatasetOptions {
  /// The column of the labels; empty: none.
  std::string label_name{};
  /// The strings of columns of text, which become their indices; others of these columns are an
  /// error. Columns of text need one; or leave them out by CsvOptions::usecols.
  std::map<std::string, std::vector<std::string>> vocabularies{};
  /// All features in one tensor; false: each column is a component of its own type.
  bool stack = true;
  CsvOptions csv{};  ///< the format, for all files
  /// The rows of the first file in which the types of columns are found.
  std::int64_t num_rows_for_inference = 100;
};

/// @{
/// A dataset of the rows of CSV files that need not fit into memory, one file after another. All
/// have the same columns. An element is {features, label}: float32 [columns], in the order of the
/// file, without the label, with NaN for missing fields; and a scalar, int64 for labels of integers
/// and of text, else float32. Without label_name, {features} alone. With `stack` false a scalar for
/// each column instead.
///
/// Unlike tf.data.experimental.make_csv_dataset it has one pass and is not shuffled:
/// @code
/// from_csv({"a.csv", "b.csv"}, {.label_name = "species", .vocabularies = {{"species", names}}})
///     .shuffle(1000).batch(32)
/// @endcode
/// Throws the errors of read_csv() for the rows from which types are inferred; the iterator throws
/// those of later rows, and InvalidArgumentError for a missing field where the dtype has no NaN.
Dataset from_csv(const std::vector<std::string>& files, const CsvDatasetOptions& options = {});
/// The same for one file.
inline Dataset from_csv(const std::string& file, const CsvDatasetOptions& options = {}) {
  return from_csv(std::vector<std::string>{file}, options);
}
/// @}

}  // namespace tandem::data
