#include "data/csv_reader.h"

#include <algorithm>
#include <set>

#include "core/status.h"

namespace tandem::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::size_t kBlock = std::size_t{1} << 18;
constexpr std::size_t kMaxRow = std::size_t{1} << 27;

// As pandas: names that are empty or that occur again get others.
std::vector<std::string> names_of_header(const CsvRows& rows) {
  std::vector<std::string> names;
  std::set<std::string> used;
  for (std::size_t i = 0; i < rows.fields.size(); ++i) {
    std::string name(rows.fields[i]);
    if (name.empty()) name = fmt::format("Unnamed: {}", i);
    std::string unique = name;
    for (int again = 1; !used.insert(unique).second; ++again)
      unique = fmt::format("{}.{}", name, again);
    names.push_back(std::move(unique));
  }
  return names;
}

std::vector<CsvColumn> selected(const CsvPlace& place, const std::vector<std::string>& names,
                                const CsvOptions& options) {
  const auto expect = [&](const std::string& name, const char* option) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail<InvalidArgumentError>("[{}] {}: {} has '{}', expected one of the columns {}", place.op,
                                 place.path, option, name, listed(names));
  };
  for (const std::string& name : options.usecols) expect(name, "usecols");
  for (const auto& [name, type] : options.dtype) expect(name, "dtype");
  std::vector<CsvColumn> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!options.usecols.empty() && std::find(options.usecols.begin(), options.usecols.end(),
                                              names[i]) == options.usecols.end())
      continue;
    CsvColumn column{names[i], i, std::nullopt};
    if (const auto given = options.dtype.find(names[i]); given != options.dtype.end())
      column.type = given->second;
    columns.push_back(std::move(column));
  }
  return columns;
}

}  // namespace

std::optional<CsvLayout> csv_layout(const CsvPlace& place, const CsvScanner& scanner,
                                    const CsvOptions& options, bool whole) {
  const std::string_view text = place.text;
  CsvLayout layout;
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) layout.begin = kByteOrderMark.size();
  for (std::int64_t line = 0; line < options.skiprows; ++line) {
    const std::size_t end = text.find('\n', layout.begin);
    if (end == text.npos && !whole) return std::nullopt;
    layout.begin = end == text.npos ? text.size() : end + 1;
  }
  const bool header = options.header.value_or(options.names.empty());
  layout.names = options.names;
  if (header || layout.names.empty()) {
    CsvRows first;
    std::size_t at = layout.begin;
    const auto result = next_csv_row(place, scanner, std::string_view::npos, at, whole, first);
    if (result != CsvScanner::Result::kRow && !whole) return std::nullopt;
    if (result != CsvScanner::Result::kRow)
      fail<DataLossError>("[{}] {}: expected a row of the columns' names, the file has no rows",
                          place.op, place.path);
    if (header && !options.names.empty() && options.names.size() != first.fields.size())
      fail<InvalidArgumentError>("[{}] {}: expected names for {} columns, got {}", place.op,
                                 place.path, first.fields.size(), options.names.size());
    if (options.names.empty() && header) layout.names = names_of_header(first);
    if (options.names.empty() && !header)
      for (std::size_t i = 0; i < first.fields.size(); ++i)
        layout.names.push_back(std::to_string(i));
    if (header) layout.begin = at;
  }
  if (std::set<std::string>(layout.names.begin(), layout.names.end()).size() != layout.names.size())
    fail<InvalidArgumentError>("[{}] {}: expected different names, got {}", place.op, place.path,
                               listed(layout.names));
  layout.columns = selected(place, layout.names, options);
  return layout;
}

CsvScanner::Result next_csv_row(const CsvPlace& place, const CsvScanner& scanner,
                                std::size_t columns, std::size_t& at, bool whole, CsvRows& rows) {
  const auto result = scanner.next(place.text, at, whole, rows);
  const auto where = [&](std::size_t position) {
    return fmt::format("[{}] {}, line {}", place.op, place.path,
                       place.first_line - 1 + line_at(place.text, position));
  };
  if (result == CsvScanner::Result::kOpenQuote)
    fail<DataLossError>("{}: expected the end of a quoted field, got the end of the file",
                        where(at));
  if (result == CsvScanner::Result::kRow) {
    const std::size_t fields = rows.fields.size() - rows.first_field(rows.size() - 1);
    if (fields > columns)
      fail<InvalidArgumentError>("{}: expected {} fields, got {}", where(rows.row_begins.back()),
                                 columns, fields);
  }
  return result;
}

CsvReader::CsvReader(std::string_view op, const std::string& path, const CsvOptions& options)
    : op_(op), file_(op, path, Compression::kAuto), scanner_(op, options) {
  for (;;) {
    read_block();
    if (auto layout = csv_layout(place(), scanner_, options, whole_)) {
      layout_ = std::move(*layout);
      at_ = layout_.begin;
      return;
    }
  }
}

void CsvReader::read_block() {
  if (text_.size() > kMaxRow)
    fail<DataLossError>(
        "[{}] {}, line {}: expected a row of at most {} bytes, got more: is a quote not closed?",
        op_, file_.path(), first_line_, kMaxRow);
  // More than before if a row did not fit.
  const std::size_t before = text_.size(), block = std::max(kBlock, before);
  text_.resize(before + block);
  const std::size_t got = file_.read(text_.data() + before, block);
  text_.resize(before + got);
  whole_ = got < block;
}

bool CsvReader::load(CsvRows& rows) {
  rows.clear();
  for (;;) {
    if (at_ > 0) {
      first_line_ += line_at(text_, at_) - 1;
      text_.erase(0, at_);
      at_ = 0;
    }
    if (!whole_) read_block();
    auto result = CsvScanner::Result::kRow;
    while (result == CsvScanner::Result::kRow)
      result = next_csv_row(place(), scanner_, layout_.names.size(), at_, whole_, rows);
    if (rows.size() > 0) return true;
    if (whole_) return false;
  }
}

}  // namespace tandem::data
