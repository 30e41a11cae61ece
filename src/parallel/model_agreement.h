// What ranks settle about their models before they train.
#pragma once

#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "tandem/variable.h"

namespace tandem::parallel {

// Throws InvalidArgumentError, the same on every rank, when the names, dtypes or shapes differ from
// the group's first rank's. `op`: whose constructor asks. `names`: the ranks' names in the error.
void check_same_variables(Communicator& communicator, const std::vector<Variable>& variables,
                          std::string_view op, const RankNames& names);

// Rank `root`'s elements replace the others'.
void broadcast_variables(Communicator& communicator, const std::vector<Variable>& variables,
                         int root);

}  // namespace tandem::parallel
