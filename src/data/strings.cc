#include "tandem/strings.h"

#include <algorithm>
#include <unordered_map>

#include "core/status.h"
#include "data/stream.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {

StringColumn::StringColumn(const std::vector<std::string>& values) {
  for (const std::string& value : values) push_back(value);
}

std::string_view StringColumn::operator[](std::int64_t row) const {
  const std::size_t index =
      tandem::detail::checked_index("StringColumn", static_cast<std::size_t>(row), ends_.size());
  const std::uint64_t begin = index == 0 ? 0 : ends_[index - 1] / 2;
  return std::string_view(bytes_).substr(begin, ends_[index] / 2 - begin);
}

bool StringColumn::is_missing(std::int64_t row) const {
  return ends_[tandem::detail::checked_index("StringColumn", static_cast<std::size_t>(row),
                                             ends_.size())] %
             2 ==
         1;
}

std::vector<std::string> StringColumn::unique() const {
  std::vector<std::string_view> values;
  for (std::int64_t row = 0; row < size(); ++row)
    if (!is_missing(row)) values.push_back((*this)[row]);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return {values.begin(), values.end()};
}

Tensor StringColumn::codes(const std::vector<std::string>& vocabulary) const {
  std::unordered_map<std::string_view, std::int64_t> index;
  for (const std::string& term : vocabulary)
    if (!index.emplace(term, std::ssize(index)).second)
      fail<InvalidArgumentError>(
          "[StringColumn] expected a vocabulary of different strings, got '{}' twice", term);
  const PipelineScope scope;
  Tensor codes = make_tensor(DeviceManager::get().host(), {size()}, int64);
  auto* const to = reinterpret_cast<std::int64_t*>(impl_of(codes).data());
  for (std::int64_t row = 0; row < size(); ++row) {
    to[row] = -1;
    if (is_missing(row)) continue;
    const auto found = index.find((*this)[row]);
    if (found == index.end())
      fail<InvalidArgumentError>(
          "[StringColumn] expected strings of a vocabulary of {}, got '{}' in row {}",
          vocabulary.size(), (*this)[row], row);
    to[row] = found->second;
  }
  return codes;
}

StringColumn StringColumn::rows(const std::vector<std::int64_t>& rows) const {
  StringColumn taken;
  for (const std::int64_t row : rows) {
    if (is_missing(row))
      taken.push_back_missing();
    else
      taken.push_back((*this)[row]);
  }
  return taken;
}

std::vector<std::string> StringColumn::to_vector() const {
  std::vector<std::string> values;
  values.reserve(ends_.size());
  for (std::int64_t row = 0; row < size(); ++row) values.emplace_back((*this)[row]);
  return values;
}

void StringColumn::push_back(std::string_view text) {
  bytes_ += text;
  ends_.push_back(2 * std::uint64_t{bytes_.size()});
}

void StringColumn::push_back_missing() {
  ends_.push_back(2 * std::uint64_t{bytes_.size()} + 1);
  ++missing_;
}

void StringColumn::append(const StringColumn& other) {
  const std::uint64_t before = 2 * std::uint64_t{bytes_.size()};
  bytes_ += other.bytes_;
  ends_.reserve(ends_.size() + other.ends_.size());
  for (const std::uint64_t end : other.ends_) ends_.push_back(before + end);
  missing_ += other.missing_;
}

}  // namespace tandem::data
