#include "data/csv_columns.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/status.h"

namespace tandem::data {
namespace {

// pandas' strings for missing fields.
constexpr std::string_view kMissing[] = {
    "",     "#N/A", "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A",  "NA",       "NULL", "NaN",     "None",     "n/a",  "nan",  "null"};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string_view trimmed(std::string_view field) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!field.empty() && is_space(field.front())) field.remove_prefix(1);
  while (!field.empty() && is_space(field.back())) field.remove_suffix(1);
  return field;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Up to 18 digits, which an int64 holds. Returns whether there is nothing else.
bool parse_short(std::string_view digits, std::int64_t& value) {
  value = 0;
  for (const char c : digits) {
    if (!is_digit(c)) return false;
    value = value * 10 + (c - '0');
  }
  return true;
}

bool is_word(std::string_view field, std::string_view word) {
  if (field.size() != word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if ((field[i] | 0x20) != word[i]) return false;
  return true;
}

CsvKind kind_of(const ColumnType& type) {
  if (type.is_string()) return CsvKind::kText;
  if (type.dtype() == bool_) return CsvKind::kBool;
  return is_integer(type.dtype()) ? CsvKind::kInt : CsvKind::kFloat;
}

std::string_view field_of(const CsvRows& rows, std::size_t row, std::size_t column) {
  const std::size_t at = rows.first_field(row) + column;
  return at < rows.row_ends[row] ? rows.fields[at] : std::string_view();
}

bool fits(std::int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return std::in_range<std::uint8_t>(value);
    case DType::kInt8: return std::in_range<std::int8_t>(value);
    case DType::kInt16: return std::in_range<std::int16_t>(value);
    case DType::kUInt16: return std::in_range<std::uint16_t>(value);
    case DType::kInt32: return std::in_range<std::int32_t>(value);
    case DType::kUInt32: return std::in_range<std::uint32_t>(value);
    case DType::kUInt64: return value >= 0;
    default: return true;
  }
}

}  // namespace

CsvFormat::CsvFormat(const CsvOptions& options)
    : thousands_(options.thousands),
      decimal_(options.decimal),
      missing_(options.na_values.begin(), options.na_values.end()),
      true_(options.true_values.begin(), options.true_values.end()),
      false_(options.false_values.begin(), options.false_values.end()) {
  for (const std::string& text : options.na_values) {
    double value = 0;
    missing_number_ = missing_number_ || parse(text, value) != Number::kNo;
  }
  if (options.keep_default_na)
    for (const std::string_view text : kMissing) missing_.emplace(text);
  for (const std::string& text : missing_)
    longest_missing_ = std::max(longest_missing_, text.size());
  for (const char* text : {"True", "TRUE", "true"}) true_.insert(text);
  for (const char* text : {"False", "FALSE", "false"}) false_.insert(text);
}

bool CsvFormat::is_missing(std::string_view field) const {
  if (field.data() == nullptr) return true;  // the row ends before it
  return field.size() <= longest_missing_ && missing_.count(std::string(field)) > 0;
}

// The field with "." and without separators between digits.
std::string_view CsvFormat::plain(std::string_view field, std::string& buffer) const {
  field = trimmed(field);
  if (!field.empty() && field.front() == '+') {
    field.remove_prefix(1);
    if (!field.empty() && field.front() == '-') return {};
  }
  if (thousands_ == '\0' && decimal_ == '.') return field;
  buffer.clear();
  for (const char c : field)
    if (c == decimal_)
      buffer += '.';
    else if (c == '.' && c != thousands_)
      return {};
    else if (c != thousands_)
      buffer += c;
  return buffer;
}

CsvFormat::Number CsvFormat::parse(std::string_view field, std::int64_t& value) const {
  std::string buffer;
  const std::string_view digits = plain(field, buffer);
  const bool negative = !digits.empty() && digits.front() == '-';
  const std::string_view magnitude = digits.substr(negative ? 1 : 0);
  if (magnitude.empty() || !is_digit(magnitude.front())) return Number::kNo;
  if (magnitude.size() <= 18) {
    if (!parse_short(magnitude, value)) return Number::kNo;
    value = negative ? -value : value;
    return Number::kYes;
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return Number::kNo;
  return error == std::errc() ? Number::kYes : Number::kTooLarge;
}

CsvFormat::Number CsvFormat::parse(std::string_view field, double& value) const {
  std::string buffer;
  const std::string_view text = plain(field, buffer);
  const bool negative = !text.empty() && text.front() == '-';
  const std::string_view magnitude = text.substr(negative ? 1 : 0);
  if (magnitude.empty()) return Number::kNo;
  if (!is_digit(magnitude.front()) && magnitude.front() != '.') {
    if (!is_word(magnitude, "inf") && !is_word(magnitude, "infinity")) return Number::kNo;
    value = negative ? -HUGE_VAL : HUGE_VAL;
    return Number::kYes;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return Number::kNo;
  if (error == std::errc()) return Number::kYes;
  // Too small a number is 0; only too large a one is an error.
  const double rounded = std::strtod(std::string(text).c_str(), nullptr);
  if (std::isinf(rounded)) return Number::kTooLarge;
  value = rounded;
  return Number::kYes;
}

bool CsvFormat::parse(std::string_view field, bool& value) const {
  const std::string text(field);
  value = true_.count(text) > 0;
  return value || false_.count(text) > 0;
}

CsvKind CsvFormat::joined(CsvKind a, CsvKind b) {
  if (a == CsvKind::kNone || a == b) return b;
  if (b == CsvKind::kNone) return a;
  const auto is_number = [](CsvKind kind) {
    return kind == CsvKind::kInt || kind == CsvKind::kFloat;
  };
  return is_number(a) && is_number(b) ? CsvKind::kFloat : CsvKind::kText;
}

// Reads the fields of one column.
class CsvFormat::Reader {
 public:
  Reader(const CsvFormat& format, const CsvPlace& place, const CsvRows& rows,
         const CsvColumn& column)
      : format_(format), place_(place), rows_(rows), column_(column) {}

  CsvPiece infer() {
    CsvPiece piece = numbers();
    if (piece.rows == count()) return piece;
    if (piece.kind == CsvKind::kNone) {
      piece = bools(false);
      if (piece.rows == count()) return piece;
    }
    return text();
  }

  CsvPiece as(const ColumnType& type) {
    switch (kind_of(type)) {
      case CsvKind::kText: return text();
      case CsvKind::kBool: return bools(true);
      case CsvKind::kInt: return ints(type.dtype());
      default: break;
    }
    CsvPiece piece = numbers();
    if (piece.rows < count()) refuse(piece.rows, name_of(type.dtype()));
    return piece;
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  std::string_view field(std::int64_t row) const {
    return field_of(rows_, static_cast<std::size_t>(row), column_.index);
  }

  // Numbers up to the first row that has none.
  CsvPiece numbers() {
    CsvPiece piece;
    bool floats = false;                // the values are in piece.floats
    std::optional<std::int64_t> large;  // the first row whose number is too large
    const auto add = [&](double value) {
      if (!std::exchange(floats, true)) {
        piece.floats.assign(piece.ints.begin(), piece.ints.end());
        piece.ints.clear();
      }
      piece.floats.push_back(value);
    };
    for (; piece.rows < count(); ++piece.rows) {
      const std::string_view text = field(piece.rows);
      const bool missing = format_.missing_number_ && format_.is_missing(text);
      std::int64_t whole = 0;
      double value = 0;
      Number number = Number::kNo;
      if (!missing && piece.kind != CsvKind::kFloat) {
        number = format_.parse(text, whole);
        if (number == Number::kYes) {
          piece.kind = CsvKind::kInt;
          floats ? piece.floats.push_back(static_cast<double>(whole)) : piece.ints.push_back(whole);
          continue;
        }
        if (number == Number::kTooLarge && !column_.type && !large) large = piece.rows;
      }
      if (!missing) number = format_.parse(text, value);
      if (number == Number::kTooLarge && !large) large = piece.rows;
      if (number != Number::kNo) {
        piece.kind = CsvKind::kFloat;
        add(value);
      } else if (missing || format_.is_missing(text)) {
        piece.missing = true;
        add(kNaN);
      } else {
        return piece;
      }
    }
    if (large)
      refuse_large(*large, column_.type ? name_of(column_.type->dtype()) : "int64 and float64");
    return piece;
  }

  CsvPiece ints(DType dtype) {
    CsvPiece piece;
    piece.kind = CsvKind::kInt;
    for (; piece.rows < count(); ++piece.rows) {
      const std::string_view text = field(piece.rows);
      std::int64_t value = 0;
      if (format_.missing_number_ && format_.is_missing(text)) refuse(piece.rows, name_of(dtype));
      const Number number = format_.parse(text, value);
      if (number == Number::kNo) refuse(piece.rows, name_of(dtype));
      if (number == Number::kTooLarge || !fits(value, dtype))
        refuse_large(piece.rows, dtype == uint64 ? "uint64 below 2^63" : name_of(dtype));
      piece.ints.push_back(value);
    }
    return piece;
  }

  // Bools up to the first row that has none. `given`: the type is known, 0 and 1 are bools.
  CsvPiece bools(bool given) {
    CsvPiece piece;
    piece.kind = CsvKind::kBool;
    for (; piece.rows < count(); ++piece.rows) {
      const std::string_view text = field(piece.rows);
      bool value = false;
      if (format_.parse(text, value) || (given && (text == "0" || text == "1"))) {
        piece.bools.push_back(value || text == "1" ? 1 : 0);
        if (piece.missing) piece.floats.push_back(piece.bools.back());
        continue;
      }
      if (given) refuse(piece.rows, "bool");
      if (!format_.is_missing(text)) break;
      if (!piece.missing) piece.floats.assign(piece.bools.begin(), piece.bools.end());
      piece.missing = true;
      piece.bools.push_back(0);
      piece.floats.push_back(kNaN);
    }
    return piece;
  }

  CsvPiece text() {
    CsvPiece piece;
    piece.kind = CsvKind::kText;
    for (; piece.rows < count(); ++piece.rows) {
      const std::string_view text = field(piece.rows);
      if (!format_.is_missing(text)) {
        piece.text.push_back(text);
        continue;
      }
      piece.missing = true;
      piece.text.push_back_missing();
    }
    return piece;
  }

  std::string where(std::int64_t row) const {
    const std::int64_t line = place_.first_line - 1 +
                              line_at(place_.text, rows_.row_begins[static_cast<std::size_t>(row)]);
    return fmt::format("[{}] {}, line {}, column '{}'", place_.op, place_.path, line, column_.name);
  }
  [[noreturn]] void refuse(std::int64_t row, std::string_view expected) const {
    const std::string_view text = field(row);
    if (format_.is_missing(text))
      fail<InvalidArgumentError>(
          "{}: expected {}, got a missing field: the dtypes that have missing numbers are float32, "
          "float64, float16 and bfloat16",
          where(row), expected);
    constexpr std::size_t kShown = 100;
    fail<InvalidArgumentError>("{}: expected {}, got '{}'", where(row), expected,
                               text.substr(0, kShown));
  }
  [[noreturn]] void refuse_large(std::int64_t row, std::string_view dtype) const {
    fail<InvalidArgumentError>(
        "{}: the number {} is out of the range of {}: set the column's type to another dtype "
        "(a floating or an integer one) or to \"string\"",
        where(row), field(row).substr(0, 100), dtype);
  }

  const CsvFormat& format_;
  const CsvPlace& place_;
  const CsvRows& rows_;
  const CsvColumn& column_;
};

CsvPiece CsvFormat::read(const CsvPlace& place, const CsvRows& rows,
                         const CsvColumn& column) const {
  Reader reader(*this, place, rows, column);
  return column.type ? reader.as(*column.type) : reader.infer();
}

DType dtype_of_kind(CsvKind kind, bool missing) {
  if (missing || kind == CsvKind::kNone || kind == CsvKind::kFloat) return float64;
  return kind == CsvKind::kInt ? int64 : bool_;
}

namespace {

template <class To, class From>
void convert(const std::vector<From>& values, std::byte* to) {
  auto* const target = reinterpret_cast<To*>(to);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (!std::is_arithmetic_v<To>)
      target[i] = To(static_cast<float>(values[i]));
    else
      target[i] = static_cast<To>(values[i]);
  }
}

template <class To>
void convert(const CsvPiece& piece, std::byte* to) {
  if (!piece.floats.empty())
    convert<To>(piece.floats, to);
  else if (!piece.ints.empty())
    convert<To>(piece.ints, to);
  else
    convert<To>(piece.bools, to);
}

}  // namespace

void write_elements(const CsvPiece& piece, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kFloat32: return convert<float>(piece, to);
    case DType::kFloat64: return convert<double>(piece, to);
    case DType::kFloat16: return convert<Half>(piece, to);
    case DType::kBFloat16: return convert<BFloat16>(piece, to);
    case DType::kInt32: return convert<std::int32_t>(piece.ints, to);
    case DType::kInt64: return convert<std::int64_t>(piece, to);
    case DType::kUInt8: return convert<std::uint8_t>(piece.ints, to);
    case DType::kBool: return convert<bool>(piece.bools, to);
    case DType::kInt8: return convert<std::int8_t>(piece.ints, to);
    case DType::kInt16: return convert<std::int16_t>(piece.ints, to);
    case DType::kUInt16: return convert<std::uint16_t>(piece.ints, to);
    case DType::kUInt32: return convert<std::uint32_t>(piece.ints, to);
    case DType::kUInt64: return convert<std::uint64_t>(piece.ints, to);
    case DType::kFloat8E4M3FN: return convert<Float8E4M3FN>(piece, to);
    case DType::kFloat8E5M2: return convert<Float8E5M2>(piece, to);
  }
}

}  // namespace tandem::data
