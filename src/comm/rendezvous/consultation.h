// What ranks agree on by way of a store, before they are connected.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store.h"

namespace tandem {

// Every rank gives rank 0 a value, and rank 0 gives each an answer. A rank makes four requests to
// the store, rank 0 two for each rank, so that none of them, nor the store, handles bytes that grow
// with the square of the ranks.
struct Consultation {
  Store& store;
  std::string name;  // the same on all ranks, and no other consultation's
  int rank = 0, size = 1;
  Store::TimePoint deadline;  // for all ranks to be there
  // The text of the error when these ranks are not there in time.
  std::function<std::string(const std::vector<int>& missing)> describe_missing;
};

// Called on rank 0, with the values by rank; gives the answers by rank.
using Judge = std::function<std::vector<std::string>(const std::vector<std::string>& values)>;

// The answer for this rank. Where ranks are missing, every rank throws DeadlineExceededError with
// the same text, those that come late as well. Leaves nothing in the store when all have come.
std::string consult(const Consultation& consultation, std::string_view value, const Judge& judge);

}  // namespace tandem
