// Splits CSV text into rows of fields, as pandas' parser does.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/csv.h"

namespace tandem::data {

// The rows of a piece of text. Fields refer to the input, or to `unescaped`.
struct CsvRows {
  std::vector<std::string_view> fields;
  std::vector<std::size_t> row_ends;    // in `fields`
  std::vector<std::size_t> row_begins;  // in the input
  std::deque<std::string> unescaped;    // fields that are not in the input as they are

  std::size_t size() const { return row_ends.size(); }
  std::size_t first_field(std::size_t row) const { return row == 0 ? 0 : row_ends[row - 1]; }
  void clear() {
    fields.clear();
    row_ends.clear();
    row_begins.clear();
    unescaped.clear();
  }
};

class CsvScanner {
 public:
  // Throws InvalidArgumentError for characters that contradict each other. `op` is for messages.
  CsvScanner(std::string_view op, const CsvOptions& options);

  enum class Result { kRow, kEnd, kIncomplete, kOpenQuote };
  // Adds the row that begins at `at`, after blank lines and comments that are omitted, and moves
  // `at` to its end. kEnd: there is none. kIncomplete: the input ends inside of it; `at` is then at
  // its beginning. If the input is `whole`, its end is that of the last row; kOpenQuote: inside of
  // quotes.
  Result next(std::string_view text, std::size_t& at, bool whole, CsvRows& rows) const;

  // The beginning of a line at or after `at` which is probably that of a row: the first one outside
  // of quotes, if `quotes` are before `at`.
  std::size_t probable_row(std::string_view text, std::size_t at, std::size_t quotes) const;
  char quote() const { return quote_; }

 private:
  struct Cursor;
  // Whether the character ends or changes an unquoted field.
  bool is_special(char c) const { return special_[static_cast<unsigned char>(c)]; }
  bool is_omitted(std::string_view text, std::size_t& at) const;
  bool field(Cursor& cursor, CsvRows& rows) const;
  bool unusual_field(Cursor& cursor, CsvRows& rows) const;

  char sep_, quote_, escape_, comment_;
  bool doublequote_, skip_space_, skip_blank_;
  std::array<bool, 256> special_{};
};

// The names in quotes, for messages; not all of very many.
std::string listed(const std::vector<std::string>& names);

// The number of the line at `position`, from 1.
std::int64_t line_at(std::string_view text, std::size_t position);

}  // namespace tandem::data
