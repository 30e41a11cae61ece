// Checks that all ranks train the same model, and gives them the same initial values.
#pragma once

#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "tandem/variable.h"

namespace tandem::parallel {

// Throws InvalidArgumentError, the same on every rank, if names, dtypes or shapes differ from those
// of the group's first rank. `op` and `names` (of the ranks) go in the message.
void check_same_variables(Communicator& communicator, const std::vector<Variable>& variables,
                          std::string_view op, const RankNames& names);

// Copies the values of rank `root` to all ranks.
void broadcast_variables(Communicator& communicator, const std::vector<Variable>& variables,
                         int root);

}  // namespace tandem::parallel
