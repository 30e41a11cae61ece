// Finds ranks whose parameters differ, by comparing checksums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "tandem/variable.h"

namespace tandem::parallel {

// For one rank of a group; every rank calls step() equally often. It must be destroyed before the
// communicator.
class ParameterCheck {
 public:
  // `parameters`: on one device. They are compared in each `every`th step; 0: never.
  ParameterCheck(Communicator& communicator, std::vector<Variable> parameters, RankNames names,
                 std::int64_t every);

  // Called before each step. Throws InvalidArgumentError, the same on every rank, that names the
  // ranks and a parameter.
  void step();

 private:
  // The checksum of each parameter.
  std::vector<std::uint32_t> checksums() const;
  [[noreturn]] void throw_difference(const std::vector<std::uint32_t>& mine) const;

  Communicator& communicator_;
  const std::vector<Variable> parameters_;
  const RankNames names_;
  const std::int64_t every_;
  std::int64_t steps_ = 0;
};

}  // namespace tandem::parallel
