// CSV files in blocks of rows.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv_columns.h"
#include "data/csv_scanner.h"
#include "data/input_file.h"

namespace tandem::data {

// The columns of a file.
struct CsvLayout {
  std::vector<std::string> names;  // of all columns
  std::vector<CsvColumn> columns;  // that are read, in the order of the file
  std::size_t begin = 0;           // of the first row after the header, in the input
};

// Finds the columns in the beginning of a file. Nothing if the input is not `whole` and ends before
// the first row does. Throws the errors of read_csv().
std::optional<CsvLayout> csv_layout(const CsvPlace& place, const CsvScanner& scanner,
                                    const CsvOptions& options, bool whole);

// Scans the row at `at`, as CsvScanner::next() does. Throws InvalidArgumentError for more fields
// than columns, and DataLossError for a quote that is not closed.
CsvScanner::Result next_csv_row(const CsvPlace& place, const CsvScanner& scanner,
                                std::size_t columns, std::size_t& at, bool whole, CsvRows& rows);

// Reads a file from its beginning to its end. Not thread-safe.
class CsvReader {
 public:
  CsvReader(std::string_view op, const std::string& path, const CsvOptions& options);

  const CsvLayout& layout() const { return layout_; }
  // Replaces `rows` by the next ones, which are valid until the next call. Returns false at the
  // end.
  bool load(CsvRows& rows);
  // Where the rows of the last load() are.
  CsvPlace place() const { return {op_, file_.path(), text_, first_line_}; }

 private:
  void read_block();

  std::string op_;
  InputFile file_;
  CsvScanner scanner_;
  CsvLayout layout_;
  std::string text_;
  std::size_t at_ = 0;  // the next row in `text_`
  std::int64_t first_line_ = 1;
  bool whole_ = false;  // the input has the end of the file
};

}  // namespace tandem::data
