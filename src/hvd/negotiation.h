// Finds the operations that every rank has submitted. It does not communicate and has no threads:
// every rank feeds it the same messages and gets the same result.
#pragma once

#include <list>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/signature.h"
#include "hvd/request.h"

namespace tandem::hvd {

// The ranks' requests of one name.
struct Agreement {
  std::vector<RequestRef> requests;  // by rank; null if the rank had joined
  std::string error;                 // if not empty: the error that every rank throws
  const Request& any() const;        // the first request that is not null
};
using AgreementRef = std::shared_ptr<const Agreement>;

// The message for requests that do not match; empty if they do.
std::string describe_mismatch(const Agreement& agreement, const RankNames& names = {});

// The first part of a rank's message in a cycle. A bit mask of slots and the rank's requests
// follow.
struct CycleHeader {
  std::uint8_t finished = 0, stalled = 0, joined = 0;
  std::uint32_t request_bytes = 0;
  std::int64_t fusion_threshold = 0, cycle_microseconds = 0;  // only rank 0's values are used
};

// The messages of all ranks in one cycle.
struct CycleMessages {
  // The cached operations that each rank waits for: one bit per slot, `words` words per rank.
  std::span<const std::uint64_t> hits;
  std::size_t words = 0;
  std::vector<bool> joined;                    // by rank
  std::vector<std::vector<Request>> requests;  // by rank
};

class Negotiation {
 public:
  // Caches up to `capacity` requests in slots. For these a rank sends a bit instead of the request.
  Negotiation(int ranks, std::size_t capacity, RankNames names = {});

  // Size of the bit mask of the slots in use.
  std::size_t words() const { return (slots_.size() + 63) / 64; }
  // The slot in which this request of `rank` is cached; -1 if the rank has to send it.
  int slot_of(const RequestRef& request, int rank) const;

  // The operations that are ready now, in the order of execution: cached ones first. May
  // change slots.
  std::vector<AgreementRef> settle(const CycleMessages& messages);

  // An operation that only some ranks have submitted.
  struct Partial {
    std::string name;
    std::uint64_t occurrence = 0;  // distinguishes successive uses of a name
    std::vector<int> missing;      // numbered as in the job
  };
  std::vector<Partial> partials(const CycleMessages& messages) const;

 private:
  struct Slot {
    AgreementRef agreement;  // null if the slot is free
    std::uint64_t used = 0;  // the last cycle in which it was ready
  };
  struct Waiting {
    Agreement agreement;
    std::uint64_t since = 0;
    RequestRef last;  // the latest request; ranks with an equal one share it
  };

  bool complete(const Waiting& waiting, const std::vector<bool>& joined) const;
  AgreementRef conclude(Waiting waiting, const std::vector<bool>& joined);
  void settle_hits(const CycleMessages& messages, std::vector<AgreementRef>& ready);
  void keep(const AgreementRef& agreement);
  void drop(const std::string& name);

  int ranks_;
  std::size_t capacity_;
  RankNames names_;
  std::uint64_t now_ = 0;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, int> slot_by_name_;
  std::list<Waiting> waiting_;  // ordered by their first request
  std::unordered_map<std::string, std::list<Waiting>::iterator> waiting_by_name_;
};

}  // namespace tandem::hvd
