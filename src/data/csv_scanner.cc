#include "data/csv_scanner.h"

#include <algorithm>

#include "core/status.h"

namespace tandem::data {

namespace {

// Moves `at` past the end of a line, which is "\n", "\r\n" or "\r".
void pass_line_end(std::string_view text, std::size_t& at) {
  if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') ++at;
  ++at;
}

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

std::size_t find_line_end(std::string_view text, std::size_t at) {
  while (at < text.size() && !is_line_end(text[at])) ++at;
  return at;
}

}  // namespace

// Where a row is scanned.
struct CsvScanner::Cursor {
  std::string_view text;
  std::size_t at;
  bool open_quote = false;  // the input has ended inside of quotes
  bool row_ended = false;   // with the field that was scanned last
};

CsvScanner::CsvScanner(std::string_view op, const CsvOptions& options)
    : sep_(options.sep),
      quote_(options.quotechar),
      escape_(options.escapechar),
      comment_(options.comment),
      doublequote_(options.doublequote),
      skip_space_(options.skipinitialspace),
      skip_blank_(options.skip_blank_lines) {
  const std::pair<const char*, char> all[] = {
      {"sep", sep_}, {"quotechar", quote_}, {"escapechar", escape_}, {"comment", comment_}};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    if (is_line_end(all[i].second) || (i == 0 && sep_ == '\0'))
      fail<InvalidArgumentError>("[{}] {} must not be {}", op, all[i].first,
                                 sep_ == '\0' ? "0" : "the end of a line");
    for (std::size_t j = 0; j < i; ++j)
      if (all[i].second != '\0' && all[i].second == all[j].second)
        fail<InvalidArgumentError>("[{}] {} and {} are the same character, '{}'", op, all[j].first,
                                   all[i].first, all[i].second);
  }
  for (const char c : {sep_, escape_, comment_, '\n', '\r'})
    if (c != '\0') special_[static_cast<unsigned char>(c)] = true;
}

// Passes over a blank line or a comment at `at`.
bool CsvScanner::is_omitted(std::string_view text, std::size_t& at) const {
  std::size_t end = at;
  if (comment_ == '\0' || text[at] != comment_) {
    if (!skip_blank_) return false;
    while (end < text.size() && (text[end] == ' ' || text[end] == '\t') && text[end] != sep_) ++end;
    if (end < text.size() && !is_line_end(text[end])) return false;
  } else {
    end = find_line_end(text, at);
  }
  if (end < text.size()) pass_line_end(text, end);
  at = end;
  return true;
}

CsvScanner::Result CsvScanner::next(std::string_view text, std::size_t& at, bool whole,
                                    CsvRows& rows) const {
  std::size_t begin = at;
  while (begin < text.size() && is_omitted(text, begin)) {
    // The rest of this line may be missing yet.
    if (begin == text.size() && !whole) return Result::kIncomplete;
    at = begin;
  }
  if (begin == text.size()) return Result::kEnd;
  Cursor cursor{text, begin};
  const std::size_t fields = rows.fields.size();
  while (!cursor.row_ended) {
    if (field(cursor, rows)) continue;
    if (whole && !cursor.open_quote) break;
    rows.fields.resize(fields);
    return whole ? Result::kOpenQuote : Result::kIncomplete;
  }
  // "\r" may be the first half of an end of line.
  if (!whole && cursor.at == text.size() && text.back() == '\r') {
    rows.fields.resize(fields);
    return Result::kIncomplete;
  }
  rows.row_begins.push_back(begin);
  rows.row_ends.push_back(rows.fields.size());
  at = cursor.at;
  return Result::kRow;
}

// Adds a field. Returns false if the input ends inside of it.
bool CsvScanner::field(Cursor& cursor, CsvRows& rows) const {
  const std::string_view text = cursor.text;
  std::size_t at = cursor.at;
  if (skip_space_)
    while (at < text.size() && text[at] == ' ') ++at;
  const std::size_t begin = at;
  if (begin < text.size() && quote_ != '\0' && text[begin] == quote_) {
    // Mostly, the next quote is followed by the end of the field.
    const std::size_t end = text.find(quote_, begin + 1);
    if (end != text.npos && end + 1 < text.size() &&
        (text[end + 1] == sep_ || is_line_end(text[end + 1])) &&
        (escape_ == '\0' ||
         text.substr(begin, end - begin).find(escape_) == std::string_view::npos)) {
      rows.fields.push_back(text.substr(begin + 1, end - begin - 1));
      cursor.at = end + 1;
      cursor.row_ended = text[end + 1] != sep_;
      cursor.row_ended ? pass_line_end(text, cursor.at) : void(++cursor.at);
      return true;
    }
    cursor.at = begin;
    return unusual_field(cursor, rows);
  }
  while (at < text.size() && !is_special(text[at])) ++at;
  if (at < text.size() && escape_ != '\0' && text[at] == escape_) {
    cursor.at = begin;
    return unusual_field(cursor, rows);
  }
  rows.fields.push_back(text.substr(begin, at - begin));
  cursor.at = at;
  if (at == text.size()) return false;
  if (text[at] == sep_) {
    ++cursor.at;
    return true;
  }
  if (!is_line_end(text[at])) cursor.at = find_line_end(text, at);  // a comment
  cursor.row_ended = true;
  if (cursor.at == text.size()) return false;
  pass_line_end(text, cursor.at);
  return true;
}

// A field with escaped characters, or with text after quotes.
bool CsvScanner::unusual_field(Cursor& cursor, CsvRows& rows) const {
  const std::string_view text = cursor.text;
  std::string& value = rows.unescaped.emplace_back();
  bool quoted = quote_ != '\0' && text[cursor.at] == quote_;
  std::size_t at = cursor.at + (quoted ? 1 : 0);
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (escape_ != '\0' && c == escape_) {
      if (++at < text.size()) value += text[at];
      if (at >= text.size()) break;
    } else if (!quoted && is_special(c)) {
      break;
    } else if (!quoted || c != quote_) {
      value += c;
    } else if (doublequote_ && at + 1 < text.size() && text[at + 1] == quote_) {
      value += c;
      ++at;
    } else {
      quoted = false;
    }
  }
  rows.fields.push_back(value);
  cursor.open_quote = quoted;
  cursor.at = std::min(at, text.size());
  if (at >= text.size()) return false;
  if (text[at] == sep_) {
    ++cursor.at;
    return true;
  }
  if (!is_line_end(text[at])) cursor.at = find_line_end(text, at);  // a comment
  cursor.row_ended = true;
  if (cursor.at == text.size()) return false;
  pass_line_end(text, cursor.at);
  return true;
}

std::size_t CsvScanner::probable_row(std::string_view text, std::size_t at,
                                     std::size_t quotes) const {
  bool inside = quotes % 2 == 1;
  for (; at < text.size(); ++at) {
    if (quote_ != '\0' && text[at] == quote_)
      inside = !inside;
    else if (text[at] == '\n' && !inside)
      return at + 1;
  }
  return text.size();
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 50;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i)
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  return names.size() > kShown ? list + ", ..." : list;
}

std::int64_t line_at(std::string_view text, std::size_t position) {
  std::int64_t line = 1;
  for (std::size_t at = 0; at < position;) {
    at = find_line_end(text, at);
    if (at >= position) break;
    pass_line_end(text, at);
    ++line;
  }
  return line;
}

}  // namespace tandem::data
