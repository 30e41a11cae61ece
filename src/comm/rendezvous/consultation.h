// An agreement between ranks through a store, before they are connected.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store.h"

namespace tandem {

// Every rank sends a value to rank 0, and rank 0 sends an answer to each. A rank makes four
// requests to the store, and rank 0 two per rank. No rank, nor the store, handles a number of bytes
// that is quadratic in the number of ranks.
struct Consultation {
  Store& store;
  std::string name;  // the same on all ranks, and unique
  int rank = 0, size = 1;
  std::chrono::milliseconds limit;  // for all ranks to arrive
  // The message when these ranks have been missing for a time: of the error at the limit, and of
  // warnings before.
  std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds time)>
      describe_missing;
};

// Called on rank 0 with the values by rank; returns the answers by rank.
using Judge = std::function<std::vector<std::string>(const std::vector<std::string>& values)>;

// Returns the answer for this rank. If ranks are missing, every rank throws DeadlineExceededError
// with the same message, including late ones. Leaves nothing in the store if all ranks arrive.
std::string consult(const Consultation& consultation, std::string_view value, const Judge& judge);

}  // namespace tandem
