// Tables and their columns.
#include <cmath>
#include <numeric>
#include <set>

#include "core/status.h"
#include "data/csv_scanner.h"
#include "data/node.h"
#include "tandem/array.h"
#include "tandem/csv.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

// Whether a number is NaN, by the element's index.
template <class T>
bool is_nan_at(const Tensor& values, std::int64_t index) {
  return std::isnan(static_cast<double>(reinterpret_cast<const T*>(impl_of(values).data())[index]));
}

bool is_nan_at(const Tensor& values, std::int64_t index) {
  switch (values.dtype()) {
    case DType::kFloat32: return is_nan_at<float>(values, index);
    case DType::kFloat64: return is_nan_at<double>(values, index);
    case DType::kFloat16: return is_nan_at<Half>(values, index);
    case DType::kBFloat16: return is_nan_at<BFloat16>(values, index);
    default: return false;
  }
}

}  // namespace

ColumnType::ColumnType(std::string_view name) {
  if (name != "string" && name != "str") dtype_ = dtype_from_name(name);
}

DType ColumnType::dtype() const {
  if (!dtype_)
    fail<InvalidArgumentError>("[ColumnType] expected a column of numbers, got one of text");
  return *dtype_;
}

std::int64_t Column::size() const { return is_string() ? strings().size() : tensor().size_word(0); }

Column::Column(std::string name, Tensor values)
    : name_(std::move(name)), values_(std::move(values)) {}
Column::Column(std::string name, StringColumn values)
    : name_(std::move(name)), values_(std::move(values)) {}

bool Column::is_string() const { return std::holds_alternative<StringColumn>(values_); }

const Tensor& Column::tensor() const {
  if (is_string())
    fail<InvalidArgumentError>(
        "[Column] expected a column of numbers, got '{}', which has text: codes(vocabulary) makes "
        "numbers of it",
        name_);
  return std::get<Tensor>(values_);
}

const StringColumn& Column::strings() const {
  if (!is_string())
    fail<InvalidArgumentError>("[Column] expected a column of text, got '{}', which has {}", name_,
                               name_of(dtype()));
  return std::get<StringColumn>(values_);
}

DType Column::dtype() const { return tensor().dtype(); }

Tensor Column::codes(const std::vector<std::string>& vocabulary) const {
  return strings().codes(vocabulary);
}

bool Column::is_missing(std::int64_t row) const {
  if (is_string()) return strings().is_missing(row);
  tandem::detail::checked_index("Column", static_cast<std::size_t>(row),
                                static_cast<std::size_t>(size()));
  return is_nan_at(tensor(), row);
}

std::int64_t Column::missing() const {
  if (is_string()) return strings().missing();
  std::int64_t missing = 0;
  for (std::int64_t row = 0; row < size(); ++row) missing += is_nan_at(tensor(), row) ? 1 : 0;
  return missing;
}

Column Column::rows(const std::vector<std::int64_t>& rows) const {
  if (is_string()) return Column(name_, strings().rows(rows));
  for (const std::int64_t row : rows)
    tandem::detail::checked_index("Column", static_cast<std::size_t>(row),
                                  static_cast<std::size_t>(size()));
  const PipelineScope scope;
  if (rows.empty()) return Column(name_, make_tensor(DeviceManager::get().host(), {0}, dtype()));
  return Column(name_, RowSource({tensor()}).gather(rows)[0]);
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::set<std::string> names;
  for (const Column& column : columns_) {
    if (!names.insert(column.name()).second)
      fail<InvalidArgumentError>("[Table] expected different names, got '{}' twice", column.name());
    if (column.size() != columns_[0].size())
      fail<InvalidArgumentError>(
          "[Table] expected columns of one size, got {} rows of '{}' and {} rows of '{}'",
          columns_[0].size(), columns_[0].name(), column.size(), column.name());
  }
}

std::vector<std::string> Table::names() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name());
  return names;
}

const Column& Table::operator[](std::string_view name) const {
  for (const Column& column : columns_)
    if (column.name() == name) return column;
  fail<NotFoundError>("[Table] no column '{}'; the columns are {}", name, listed(names()));
}

Tensor Table::to_tensor(const std::vector<std::string>& columns, DType dtype) const {
  if (columns.empty()) fail<InvalidArgumentError>("[Table] expected at least one column, got none");
  const PipelineScope scope;
  std::vector<Tensor> values;
  for (const std::string& name : columns) values.push_back(cast((*this)[name].tensor(), dtype));
  return stack(values, 1);
}

Table Table::drop_missing(const std::vector<std::string>& columns) const {
  std::vector<bool> keep(static_cast<std::size_t>(rows()), true);
  for (const std::string& name : columns.empty() ? names() : columns) {
    const Column& column = (*this)[name];
    for (std::size_t row = 0; row < keep.size(); ++row)
      if (column.is_missing(static_cast<std::int64_t>(row))) keep[row] = false;
  }
  std::vector<std::int64_t> kept;
  for (std::size_t row = 0; row < keep.size(); ++row)
    if (keep[row]) kept.push_back(static_cast<std::int64_t>(row));
  std::vector<Column> left;
  for (const Column& column : columns_) left.push_back(column.rows(kept));
  return Table(std::move(left));
}

}  // namespace tandem::data
