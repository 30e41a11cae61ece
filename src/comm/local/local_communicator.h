// One rank of a group of threads.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace tandem {

class LocalGroup;

std::unique_ptr<Communicator> make_local_communicator(std::shared_ptr<LocalGroup> group, int rank);

}  // namespace tandem
