// Small pipelines of numbers, and functions that read their elements.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "tandem/creation.h"
#include "tandem/data.h"

namespace tandem::testing {

// Elements 0, 1, ..., count-1: int32 scalars.
inline data::Dataset numbers(std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return data::Dataset::from_tensor_slices(constant(values));
}

// The same from a generator, whose spec and cardinality are unknown.
inline data::Dataset generated(int count) {
  return data::Dataset::from_generator([count] {
    return [count, i = 0]() mutable -> std::optional<data::Example> {
      if (i == count) return std::nullopt;
      return data::Example{constant(i++)};
    };
  });
}

inline std::vector<std::int32_t> values_in(const data::Example& example) {
  return example[0].to_vector<std::int32_t>();
}

// The remaining elements of an iterator, with batches as vectors.
inline std::vector<std::vector<std::int32_t>> batches_of(data::Iterator iterator) {
  std::vector<std::vector<std::int32_t>> all;
  while (const auto example = iterator.next()) all.push_back(values_in(*example));
  return all;
}

inline std::vector<std::int32_t> elements_of(data::Iterator iterator) {
  std::vector<std::int32_t> all;
  for (const auto& batch : batches_of(std::move(iterator)))
    all.insert(all.end(), batch.begin(), batch.end());
  return all;
}
inline std::vector<std::int32_t> elements_of(const data::Dataset& dataset,
                                             std::uint64_t epoch = 0) {
  return elements_of(dataset.iterate({.epoch = epoch}));
}

inline std::vector<std::int32_t> count_up(std::int32_t begin, std::int32_t end,
                                          std::int32_t step = 1) {
  std::vector<std::int32_t> values;
  for (std::int32_t i = begin; i < end; i += step) values.push_back(i);
  return values;
}

}  // namespace tandem::testing
