// How much of /dev/shm groups need, and how much is free.
#pragma once

#include <cstddef>

namespace tandem {

// The bytes of /dev/shm that a group of `ranks` ranks needs. Buffers use more if there is room.
std::size_t shm_group_bytes(int ranks);
// The free bytes of /dev/shm; 0 if the system does not report them.
std::size_t shm_free_bytes();

}  // namespace tandem
