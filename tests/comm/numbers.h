// Arrays of small whole numbers, and the expected results of collectives on them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Elements in memory from a communicator, or in any memory.
class Array {
 public:
  Array(Communicator& communicator, bool allocated, std::int64_t count, DType dtype)
      : buffer_{nullptr, count, dtype} {
    if (allocated) {
      memory_ = communicator.allocate(buffer_.bytes());
    } else if (count > 0) {
      memory_ = {new std::byte[buffer_.bytes()],
                 [](void* memory) { delete[] static_cast<std::byte*>(memory); }};
    }
    buffer_.data = memory_.get();
  }
  const Buffer& all() const { return buffer_; }
  Buffer part(std::int64_t begin, std::int64_t end) const {
    if (begin == end) return {nullptr, 0, buffer_.dtype};
    return {static_cast<std::byte*>(buffer_.data) +
                static_cast<std::size_t>(begin) * size_of(buffer_.dtype),
            end - begin, buffer_.dtype};
  }
  // One contiguous part per element of `counts`.
  std::vector<Buffer> parts(const std::vector<std::int64_t>& counts) const {
    std::vector<Buffer> result;
    std::int64_t at = 0;
    for (std::int64_t count : counts) {
      result.push_back(part(at, at + count));
      at += count;
    }
    return result;
  }
  template <class T>
  T* data() const {
    return static_cast<T*>(buffer_.data);
  }

 private:
  Buffer buffer_;
  std::shared_ptr<void> memory_;
};

// Small whole numbers, so that results are equal in every dtype that can represent them.
inline std::int64_t number_of(int rank, std::int64_t i, int salt = 0) {
  return (i * 7 + rank * 13 + salt * 5 + i / 1000) % 4 + 1;
}

template <class T>
void fill(const Buffer& buffer, int rank, int salt = 0, std::int64_t origin = 0) {
  auto* data = static_cast<T*>(buffer.data);
  for (std::int64_t i = 0; i < buffer.count; ++i) {
    const std::int64_t number = number_of(rank, origin + i, salt);
    if constexpr (std::is_same_v<T, bool>)
      data[i] = number > 2;
    else if constexpr (std::is_integral_v<T>)
      data[i] = static_cast<T>(number);
    else
      data[i] = static_cast<T>(static_cast<float>(number));
  }
}

// A step of a reduction; a mean is divided at its end.
template <class T>
T combine_two(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kTreeSum:
    case ReduceOp::kMean: return a + b;
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kProduct: return a * b;
  }
  return a;
}

// The expected reduction of all ranks' elements.
template <class T>
T combined(ReduceOp op, int ranks, std::int64_t i, int salt = 0) {
  std::int64_t result = number_of(0, i, salt);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t next = number_of(rank, i, salt);
    result = combine_two(op, result, next);
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(op == ReduceOp::kMean ? result / ranks : result);
  } else if constexpr (std::is_same_v<T, double>) {
    return op == ReduceOp::kMean ? static_cast<double>(result) / ranks
                                 : static_cast<double>(result);
  } else {
    const auto value = static_cast<float>(result);
    return static_cast<T>(op == ReduceOp::kMean ? value / static_cast<float>(ranks) : value);
  }
}

template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Calls expected(i) for each element.
template <class T, class Expected>
void expect_elements(const Buffer& buffer, const char* what, const Expected& expected) {
  const auto* data = static_cast<const T*>(buffer.data);
  for (std::int64_t i = 0; i < buffer.count; ++i)
    if (!same<T>(data[i], expected(i))) {
      ADD_FAILURE() << what << ": element " << i << " of " << buffer.count << " "
                    << name_of(buffer.dtype) << " is " << static_cast<double>(data[i])
                    << ", expected " << static_cast<double>(expected(i));
      return;
    }
}

template <class T>
void expect_numbers(const Buffer& buffer, const char* what, int rank, int salt = 0,
                    std::int64_t origin = 0) {
  std::vector<T> expected(static_cast<std::size_t>(buffer.count) + 1);
  std::vector<std::uint8_t> bits(expected.size() * sizeof(T));
  const Buffer reference = {bits.data(), buffer.count, buffer.dtype};
  fill<T>(reference, rank, salt, origin);
  expect_elements<T>(buffer, what, [&](std::int64_t i) {
    T value;
    std::memcpy(&value, bits.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  });
}

}  // namespace tandem
