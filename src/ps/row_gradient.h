// Gradients that are 0 but for the rows that a worker's part has looked up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ps/part_program.h"

namespace tandem::ps {

// Computes the rows of one such gradient, with the bits of the whole gradient. One run at a time.
class RowGradient {
 public:
  // Throws InvalidArgumentError for a message that is not valid.
  RowGradient(const proto::RowGradient& message, const proto::Part& worker);

  struct Rows {
    std::vector<std::int64_t> numbers;  // which ascend
    Tensor values;
  };
  // `results`: of the worker's part.
  Rows rows(std::span<const Tensor> results);

 private:
  Tensor apply_formula(std::vector<Tensor> sums, std::span<const Tensor> results,
                       std::int64_t count);

  std::string function_;
  proto::RowGradient message_;
  std::optional<PartProgram> formula_;
};

}  // namespace tandem::ps
