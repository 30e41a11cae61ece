// from_csv(): the rows of files of any size, read block by block.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/status.h"
#include "data/csv_reader.h"
#include "data/node.h"
#include "tandem/csv.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

constexpr const char* kOp = "from_csv";

// How a column becomes numbers.
struct Field {
  CsvColumn column;       // with its type; none: bools, some of which may be missing
  DType dtype = float32;  // of the elements
  std::unordered_map<std::string, std::int64_t> codes;  // of text
};

// The columns of all files.
struct Plan {
  CsvOptions csv;
  std::vector<std::string> names;  // of the columns of each file
  std::vector<Field> features;
  std::optional<Field> label;
  bool stack = true;

  std::vector<ComponentSpec> spec() const {
    std::vector<ComponentSpec> spec;
    if (stack)
      spec.push_back({float32, Shape{std::ssize(features)}});
    else
      for (const Field& field : features) spec.push_back({field.dtype, Shape::scalar()});
    if (label) spec.push_back({label->dtype, Shape::scalar()});
    return spec;
  }
};

[[noreturn]] void refuse_missing(const CsvPlace& place, const Field& field, std::size_t position) {
  fail<InvalidArgumentError>(
      "[{}] {}, line {}, column '{}': expected a label, got a missing field", place.op, place.path,
      place.first_line - 1 + line_at(place.text, position), field.column.name);
}

std::int64_t code_of(const CsvPlace& place, const Field& field, std::string_view text,
                     std::size_t position) {
  const auto found = field.codes.find(std::string(text));
  if (found == field.codes.end())
    fail<InvalidArgumentError>(
        "[{}] {}, line {}, column '{}': expected a string of its vocabulary of {}, got '{}'",
        place.op, place.path, place.first_line - 1 + line_at(place.text, position),
        field.column.name, field.codes.size(), text.substr(0, 100));
  return found->second;
}

// Strings as their codes: numbers as read_csv() has them.
CsvPiece coded(const CsvPlace& place, const CsvRows& rows, const Field& field,
               const CsvPiece& piece, bool missing_is_error) {
  CsvPiece codes;
  codes.kind = CsvKind::kInt;
  codes.rows = piece.rows;
  for (std::int64_t row = 0; row < piece.rows; ++row) {
    const std::size_t begin = rows.row_begins[static_cast<std::size_t>(row)];
    const bool missing = piece.text.is_missing(row);
    if (missing && missing_is_error) refuse_missing(place, field, begin);
    codes.ints.push_back(missing ? -1 : code_of(place, field, piece.text[row], begin));
  }
  return codes;
}

class RowsParser {
 public:
  explicit RowsParser(const Plan& plan) : plan_(plan), format_(plan.csv) {}

  // The elements of these rows.
  RowSource parse(const CsvPlace& place, const CsvRows& rows) const {
    const auto count = static_cast<std::int64_t>(rows.size());
    std::vector<Tensor> components;
    const auto width = plan_.features.size();
    if (plan_.stack) components.push_back(new_tensor({count, std::ssize(plan_.features)}, float32));
    for (std::size_t i = 0; i < width; ++i) {
      const Field& field = plan_.features[i];
      const CsvPiece piece = read(place, rows, field, false);
      if (plan_.stack) {
        copy_column(piece, components[0], i, width);
      } else {
        components.push_back(new_tensor({count}, field.dtype));
        write_elements(piece, field.dtype, impl_of(components.back()).data());
      }
    }
    if (plan_.label) {
      const CsvPiece piece = read(place, rows, *plan_.label, true);
      components.push_back(new_tensor({count}, plan_.label->dtype));
      write_elements(piece, plan_.label->dtype, impl_of(components.back()).data());
    }
    return RowSource(std::move(components));
  }

 private:
  static Tensor new_tensor(const Shape& shape, DType dtype) {
    return make_tensor(DeviceManager::get().host(), shape, dtype);
  }
  CsvPiece read(const CsvPlace& place, const CsvRows& rows, const Field& field, bool label) const {
    CsvPiece piece = format_.read(place, rows, field.column);
    if (piece.kind == CsvKind::kText && !field.column.type) {
      CsvColumn column = field.column;
      column.type = bool_;  // as it was in the first rows: this names the line
      piece = format_.read(place, rows, column);
    }
    if (piece.kind == CsvKind::kText) return coded(place, rows, field, piece, label);
    if (label && piece.missing) {
      const auto nan = std::find_if(piece.floats.begin(), piece.floats.end(),
                                    [](double value) { return std::isnan(value); });
      refuse_missing(place, field,
                     rows.row_begins[static_cast<std::size_t>(nan - piece.floats.begin())]);
    }
    return piece;
  }
  static void copy_column(const CsvPiece& piece, const Tensor& to, std::size_t column,
                          std::size_t width) {
    std::vector<float> values(static_cast<std::size_t>(piece.rows));
    write_elements(piece, float32, reinterpret_cast<std::byte*>(values.data()));
    auto* const target = reinterpret_cast<float*>(impl_of(to).data()) + column;
    for (std::size_t row = 0; row < values.size(); ++row) target[row * width] = values[row];
  }

  const Plan& plan_;
  CsvFormat format_;
};

class CsvStream final : public ItemStream<Example> {
 public:
  CsvStream(std::shared_ptr<const Plan> plan, const std::string& path)
      : plan_(std::move(plan)), parser_(*plan_), path_(path) {}

  bool next(Example& item) override {
    if (!open()) return false;
    if (!parsed_) parsed_.emplace(parser_.parse(reader_->place(), rows_));
    item = parsed_->row(row_++);
    return true;
  }
  // Rows that are skipped are not parsed.
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    while (skipped < count && open()) {
      const std::int64_t rows = std::min(count - skipped, std::ssize(rows_.row_ends) - row_);
      row_ += rows;
      skipped += rows;
    }
    return skipped;
  }

 private:
  // Whether there is a next row in `rows_`.
  bool open() {
    if (ended_) return false;
    if (!reader_) {
      reader_.emplace(kOp, path_, plan_->csv);
      if (reader_->layout().names != plan_->names)
        fail<InvalidArgumentError>("[{}] {}: expected the columns of the first file, {}, got {}",
                                   kOp, path_, listed(plan_->names),
                                   listed(reader_->layout().names));
    }
    while (row_ == std::ssize(rows_.row_ends)) {
      check_cancelled();
      parsed_.reset();
      row_ = 0;
      if (!reader_->load(rows_)) {
        ended_ = true;
        return false;
      }
    }
    return true;
  }

  std::shared_ptr<const Plan> plan_;
  RowsParser parser_;
  std::string path_;
  std::optional<CsvReader> reader_;
  CsvRows rows_;
  std::optional<RowSource> parsed_;  // the rows as elements
  std::int64_t row_ = 0;             // the next one
  bool ended_ = false;
};

// The type of a column, by the first rows.
Field field_of(const CsvFormat& format, const CsvPlace& place, const CsvRows& rows,
               const CsvColumn& column, const CsvDatasetOptions& options, bool label) {
  Field field;
  field.column = column;
  const auto vocabulary = options.vocabularies.find(column.name);
  if (vocabulary != options.vocabularies.end()) field.column.type = ColumnType("string");
  const CsvPiece piece = format.read(place, rows, field.column);
  if (piece.kind == CsvKind::kText) {
    if (vocabulary == options.vocabularies.end())
      fail<InvalidArgumentError>(
          "[{}] {}: column '{}' has text, and no vocabulary: give one in `vocabularies`, or leave "
          "the column out by `csv.usecols`. The dtypes of numbers are the floating and the integer "
          "ones and bool",
          kOp, place.path, column.name);
    for (const std::string& text : vocabulary->second)
      if (!field.codes.emplace(text, std::ssize(field.codes)).second)
        fail<InvalidArgumentError>("[{}] the vocabulary of column '{}' has '{}' twice", kOp,
                                   column.name, text);
    field.dtype = int64;
    return field;
  }
  if (field.column.type)
    field.dtype = field.column.type->dtype();
  else
    field.dtype = dtype_of_kind(piece.kind, piece.missing);
  if (label && field.dtype == float64 && !field.column.type) field.dtype = float32;
  // Features that are stacked become float32, whatever numbers they are. Bools have no type that
  // has missing ones.
  const bool stacked = options.stack && !label;
  if (stacked && field.dtype == bool_ && !field.column.type) return field;
  if (stacked && field.dtype != bool_) field.dtype = float32;
  field.column.type = field.dtype;
  if (label && field.dtype == bool_) field.dtype = int64;
  return field;
}

std::shared_ptr<const Plan> plan_of(const std::string& file, const CsvDatasetOptions& options) {
  if (options.csv.nrows || options.csv.skiprows < 0 || options.num_rows_for_inference < 1)
    fail<InvalidArgumentError>(
        "[{}] expected no nrows (use take()), skiprows of at least 0 and num_rows_for_inference of "
        "at least 1",
        kOp);
  CsvReader reader(kOp, file, options.csv);
  CsvRows rows;
  reader.load(rows);
  if (std::cmp_less(options.num_rows_for_inference, rows.size())) {
    rows.row_ends.resize(static_cast<std::size_t>(options.num_rows_for_inference));
    rows.row_begins.resize(rows.row_ends.size());
  }
  auto plan = std::make_shared<Plan>();
  plan->csv = options.csv;
  plan->stack = options.stack;
  plan->names = reader.layout().names;
  const auto expect = [&](const std::string& name, const char* option) {
    const auto& columns = reader.layout().columns;
    if (std::none_of(columns.begin(), columns.end(),
                     [&](const CsvColumn& column) { return column.name == name; }))
      fail<InvalidArgumentError>("[{}] {}: {} has '{}', expected one of the columns {}", kOp, file,
                                 option, name, listed(plan->names));
  };
  if (!options.label_name.empty()) expect(options.label_name, "label_name");
  for (const auto& [name, vocabulary] : options.vocabularies) expect(name, "vocabularies");
  const CsvFormat format(options.csv);
  for (const CsvColumn& column : reader.layout().columns) {
    const bool label = column.name == options.label_name;
    Field field = field_of(format, reader.place(), rows, column, options, label);
    if (label)
      plan->label = std::move(field);
    else
      plan->features.push_back(std::move(field));
  }
  if (plan->features.empty())
    fail<InvalidArgumentError>("[{}] {}: expected a column besides the label", kOp, file);
  return plan;
}

}  // namespace

Dataset from_csv(const std::vector<std::string>& files, const CsvDatasetOptions& options) {
  if (files.empty()) fail<InvalidArgumentError>("[{}] expected at least one file, got none", kOp);
  const PipelineScope scope;
  const std::shared_ptr<const Plan> plan = plan_of(files[0], options);
  const auto read = [plan](const std::string& path) {
    return Dataset(stream_node([plan, path] { return std::make_unique<CsvStream>(plan, path); },
                               plan->spec(), kUnknownCardinality));
  };
  return Dataset(files_node(files, read, plan->spec()));
}

}  // namespace tandem::data
