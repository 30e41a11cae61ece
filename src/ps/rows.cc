#include "ps/rows.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"

namespace tandem::ps {
namespace {

template <class Index>
std::vector<std::int64_t> checked(const Tensor& indices, std::int64_t rows) {
  const auto* from = reinterpret_cast<const Index*>(impl_of(indices).data());
  std::vector<std::int64_t> result(from, from + indices.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (result[i] < 0 || result[i] >= rows)
      fail<InvalidArgumentError>("[GatherV2] expected indices of [0, {}), got {} at position {}",
                                 rows, result[i], i);
  return result;
}

std::vector<std::int64_t> indices_of(const Tensor& tensor, std::int64_t rows) {
  const Tensor indices = copy_to_device(tensor, DeviceManager::get().host());
  switch (indices.dtype()) {
    case int32: return checked<std::int32_t>(indices, rows);
    case int64: return checked<std::int64_t>(indices, rows);
    default:
      fail<InvalidArgumentError>("[GatherV2] expected int32 or int64 indices, got {}",
                                 name_of(indices.dtype()));
  }
}

}  // namespace

Tensor view_rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const Shape shape = shape_of({.rows = count}, tensor.shape());
  const Shape before = shape_of({.rows = first}, tensor.shape());
  return make_view(tensor, shape,
                   before.num_elements() * static_cast<std::int64_t>(size_of(tensor.dtype())));
}

void put_rows(const Tensor& to, std::span<const std::int64_t> numbers, const Tensor& rows) {
  if (numbers.empty()) return;
  const std::size_t bytes = impl_of(rows).bytes() / numbers.size();
  if (bytes == 0) return;
  const std::byte* from = impl_of(rows).data();
  std::byte* memory = impl_of(to).data();
  for (const std::int64_t number : numbers) {
    std::memcpy(memory + static_cast<std::size_t>(number) * bytes, from, bytes);
    from += bytes;
  }
}

std::span<const std::int64_t> row_numbers(const Tensor& numbers, std::int64_t rows,
                                          const std::string& what) {
  if (numbers.dtype() != int64 || numbers.rank() != 1)
    fail<InvalidArgumentError>("[{}] expected row numbers of int64 and one axis, got {} of {}",
                               what, numbers.shape().to_string(), name_of(numbers.dtype()));
  const std::span<const std::int64_t> result(
      reinterpret_cast<const std::int64_t*>(impl_of(numbers).data()),
      static_cast<std::size_t>(numbers.size()));
  for (std::size_t i = 0; i < result.size(); ++i)
    if (result[i] < 0 || result[i] >= rows)
      fail<InvalidArgumentError>("[{}] expected row numbers of [0, {}), got {} at position {}",
                                 what, rows, result[i], i);
  return result;
}

RowsOfShard rows_in(const Shard& shard, std::span<const std::int64_t> numbers) {
  const auto begin = std::lower_bound(numbers.begin(), numbers.end(), shard.first_row);
  const auto end = std::lower_bound(begin, numbers.end(), shard.first_row + shard.rows);
  std::vector<std::int64_t> within(begin, end);
  for (std::int64_t& number : within) number -= shard.first_row;
  return {begin - numbers.begin(),
          from_host(DeviceManager::get().host(), Shape({end - begin}), int64, within.data())};
}

LookedUp look_up(std::span<const Tensor> indices, std::int64_t rows) {
  LookedUp result;
  std::vector<std::vector<std::int64_t>> all;
  for (const Tensor& tensor : indices) {
    const auto& added = all.emplace_back(indices_of(tensor, rows));
    result.rows.insert(result.rows.end(), added.begin(), added.end());
  }
  std::sort(result.rows.begin(), result.rows.end());
  result.rows.erase(std::unique(result.rows.begin(), result.rows.end()), result.rows.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::int64_t& index : all[i])
      index = std::lower_bound(result.rows.begin(), result.rows.end(), index) - result.rows.begin();
    result.positions.push_back(
        from_host(DeviceManager::get().host(), indices[i].shape(), int64, all[i].data()));
  }
  return result;
}

}  // namespace tandem::ps
