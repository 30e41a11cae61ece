// Applies an update to variables in memory.
#pragma once

#include <span>
#include <vector>

#include "ps/part_program.h"

namespace tandem::ps {

// An update whose gradient is 0 but for some rows (Part::sparse_feeds) takes time in proportion to
// these, if the other rows change nothing; else they are put into a whole gradient. One run at a
// time.
class UpdateProgram {
 public:
  // Throws as PartProgram.
  UpdateProgram(const proto::Part& part, const ResourceOf& resource_of);

  // `inputs`: one per feed, two per sparse feed. The rest as PartProgram::run(). Nothing is changed
  // if it throws InvalidArgumentError.
  void run(std::span<const Tensor> inputs, std::span<const proto::RunAttributes> attributes);

  // Throws InvalidArgumentError for inputs that do not suit the update.
  void check(std::span<const Tensor> inputs) const;
  // The mean of several inputs, summed in their order; of integers the first ones. A sparse mean
  // has the rows of all. REQUIRES: check() of each.
  std::vector<Tensor> mean(std::span<const std::vector<Tensor>> inputs) const;

 private:
  void check_count(std::span<const Tensor> inputs) const;
  // Row numbers, which ascend, and the rows.
  struct SparseInput {
    std::span<const std::int64_t> numbers;
    Tensor rows;
  };
  SparseInput sparse_input(std::size_t feed, const Tensor& numbers, const Tensor& rows) const;
  Tensor whole(std::size_t feed, const SparseInput& input) const;
  void find_update();
  bool run_on_rows(const SparseInput& gradient, const Tensor& numbers,
                   std::span<const proto::RunAttributes> attributes);

  PartProgram program_;
  std::vector<bool> sparse_;      // by feed
  const Node* update_ = nullptr;  // the only operation, if it may run on rows of all its inputs
};

}  // namespace tandem::ps
