// read_csv(): a whole file, whose parts are parsed in parallel.
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "core/status.h"
#include "data/csv_reader.h"
#include "data/formats.h"
#include "tandem/csv.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

// A part of the input: from the beginning of a row to that of another one.
struct Part {
  std::size_t begin = 0, end = 0;  // `end`: after the last row, which begins before `limit`
  std::size_t limit = 0;
  std::int64_t rows = 0;
  std::vector<CsvPiece> pieces;  // by column
  std::exception_ptr error;
};

class FileParser {
 public:
  FileParser(const CsvPlace& place, const CsvOptions& options)
      : place_(place),
        scanner_(place.op, options),
        format_(options),
        layout_(*csv_layout(place, scanner_, options, true)),
        max_rows_(options.nrows) {}

  Table parse() {
    parts_ = split();
    parallel_for(std::ssize(parts_), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) parse(parts_[static_cast<std::size_t>(i)]);
    });
    // Where a part does not begin where the one before it has ended, a quote has been misjudged.
    std::size_t begin = layout_.begin;
    for (Part& part : parts_) {
      if (part.begin != begin) {
        part.begin = begin;
        parse(part);
      }
      if (part.error) std::rethrow_exception(part.error);
      begin = part.end;
    }
    std::vector<Column> columns;
    for (std::size_t i = 0; i < layout_.columns.size(); ++i) columns.push_back(column(i));
    return Table(std::move(columns));
  }

 private:
  std::vector<Part> split() const {
    constexpr std::size_t kPart = std::size_t{1} << 19;
    const std::size_t size = place_.text.size() - layout_.begin;
    const std::size_t count = max_rows_ ? 1 : size / kPart + 1;
    const auto boundary = [&](std::size_t i) { return layout_.begin + size * i / count; };
    std::vector<std::size_t> quotes(count, 0);
    if (count > 1 && scanner_.quote() != '\0')
      parallel_for(std::ssize(quotes), 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          quotes[i] = static_cast<std::size_t>(
              std::count(place_.text.begin() + static_cast<std::ptrdiff_t>(boundary(i)),
                         place_.text.begin() + static_cast<std::ptrdiff_t>(boundary(i + 1)),
                         scanner_.quote()));
      });
    std::vector<Part> parts(count);
    std::size_t before = 0;
    for (std::size_t i = 0; i < count; ++i) {
      parts[i].begin = i == 0 ? layout_.begin : parts[i - 1].limit;
      before += quotes[i];
      parts[i].limit = i + 1 == count
                           ? place_.text.size()
                           : std::max(parts[i].begin,
                                      scanner_.probable_row(place_.text, boundary(i + 1), before));
    }
    return parts;
  }

  // Scans the rows of a part.
  CsvRows rows_of(Part& part) const {
    CsvRows rows;
    std::size_t at = part.begin;
    part.end = std::max(part.begin, part.limit);
    while (at < part.limit && (!max_rows_ || std::cmp_less(rows.size(), *max_rows_))) {
      if (next_csv_row(place_, scanner_, layout_.names.size(), at, true, rows) !=
          CsvScanner::Result::kRow)
        break;
      if (rows.row_begins.back() >= part.limit) {  // after blank lines: it is the next part's
        rows.fields.resize(rows.first_field(rows.size() - 1));
        rows.row_begins.pop_back();
        rows.row_ends.pop_back();
        return rows;
      }
    }
    part.end = std::max(at, part.end);
    return rows;
  }

  void parse(Part& part) const {
    part.pieces.clear();
    part.error = nullptr;
    try {
      const CsvRows rows = rows_of(part);
      part.rows = static_cast<std::int64_t>(rows.size());
      for (const CsvColumn& column : layout_.columns)
        part.pieces.push_back(format_.read(place_, rows, column));
    } catch (...) {
      part.error = std::current_exception();
    }
  }

  Column column(std::size_t index) {
    CsvColumn column = layout_.columns[index];
    auto kind = CsvKind::kNone;
    bool missing = false;
    std::int64_t rows = 0;
    for (const Part& part : parts_) {
      kind = CsvFormat::joined(kind, part.pieces[index].kind);
      missing = missing || part.pieces[index].missing;
      rows += part.rows;
    }
    if (column.type ? column.type->is_string() : kind == CsvKind::kText)
      return strings(column, index);
    const DType dtype = column.type ? column.type->dtype() : dtype_of_kind(kind, missing);
    Tensor values = make_tensor(DeviceManager::get().host(), {rows}, dtype);
    std::byte* const to = impl_of(values).data();
    std::vector<std::int64_t> first(parts_.size(), 0);
    for (std::size_t i = 1; i < parts_.size(); ++i) first[i] = first[i - 1] + parts_[i - 1].rows;
    parallel_for(std::ssize(parts_), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        write_elements(parts_[i].pieces[index], dtype,
                       to + static_cast<std::size_t>(first[i]) * size_of(dtype));
    });
    return Column(column.name, std::move(values));
  }

  // A column of text. Parts of it may have been read as numbers.
  Column strings(CsvColumn column, std::size_t index) {
    column.type = ColumnType("string");
    parallel_for(std::ssize(parts_), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        CsvPiece& piece = parts_[i].pieces[index];
        if (piece.kind != CsvKind::kText) piece = format_.read(place_, rows_of(parts_[i]), column);
      }
    });
    StringColumn all;
    for (const Part& part : parts_) all.append(part.pieces[index].text);
    return Column(column.name, std::move(all));
  }

  CsvPlace place_;
  CsvScanner scanner_;
  CsvFormat format_;
  CsvLayout layout_;
  std::optional<std::int64_t> max_rows_;
  std::vector<Part> parts_;
};

}  // namespace

Table parse_csv(std::string_view text, std::string_view name, const CsvOptions& options) {
  if (options.skiprows < 0 || options.nrows.value_or(0) < 0)
    fail<InvalidArgumentError>(
        "[read_csv] expected skiprows and nrows of at least 0, got {} and {}", options.skiprows,
        options.nrows.value_or(0));
  return FileParser({"read_csv", name, text}, options).parse();
}

Table read_csv(const std::string& path, const CsvOptions& options) {
  const PipelineScope scope;
  const std::string text = InputFile("read_csv", path, Compression::kAuto).read_rest();
  return parse_csv(text, path, options);
}

}  // namespace tandem::data
