// Which operations are due: those that every rank has submitted. No communication, no threads:
// every rank feeds it the same messages and comes to the same result.
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

// Every rank's request of one name.
struct Agreement {
  std::vector<RequestRef> requests;  // by rank; null: had joined
  std::string error;                 // not empty: what every rank throws
  const Request& any() const;        // the first that is there
};
using AgreementRef = std::shared_ptr<const Agreement>;

// The text for ranks that submitted different things by one name; empty: they suit.
std::string mismatch_of(const Agreement& agreement, const RankNames& names = {});

// What a rank tells the others first in a cycle; a bit for each slot, and its requests, follow.
struct CycleHeader {
  std::uint8_t finished = 0, stalled = 0, joined = 0;
  std::uint32_t request_bytes = 0;
  std::int64_t fusion_threshold = 0, cycle_microseconds = 0;  // rank 0's count
};

// What the ranks tell each other in one cycle.
struct CycleMessages {
  // Cached operations that each rank waits for: a bit a slot, `words` words a rank.
  std::span<const std::uint64_t> hits;
  std::size_t words = 0;
  std::vector<bool> joined;                    // by rank
  std::vector<std::vector<Request>> requests;  // by rank
};

class Negotiation {
 public:
  // Keeps up to `capacity` operations by slot: of these a rank sends a bit instead of a request.
  Negotiation(int ranks, std::size_t capacity, RankNames names = {});

  // Of the bit mask of the slots in use.
  std::size_t words() const { return (slots_.size() + 63) / 64; }
  // The slot in which `rank` asked for exactly this; -1: it has to send it.
  int slot_of(const RequestRef& request, int rank) const;

  // What is due now, in the order of execution: cached operations first. Slots may change.
  std::vector<AgreementRef> settle(const CycleMessages& messages);

  // Operations that some ranks have submitted and others not.
  struct Partial {
    std::string name;
    std::uint64_t occurrence = 0;  // tells one time that a name is used from the next
    std::vector<int> missing;      // ranks of the job
  };
  std::vector<Partial> partials(const CycleMessages& messages) const;

 private:
  struct Slot {
    AgreementRef agreement;  // null: free
    std::uint64_t used = 0;  // when it was last due
  };
  struct Waiting {
    Agreement agreement;
    std::uint64_t since = 0;
    RequestRef last;  // that came; ranks that ask for the same share it
  };

  bool complete(const Waiting& waiting, const std::vector<bool>& joined) const;
  AgreementRef conclude(Waiting waiting, const std::vector<bool>& joined);
  void settle_hits(const CycleMessages& messages, std::vector<AgreementRef>& due);
  void keep(const AgreementRef& agreement);
  void drop(const std::string& name);

  int ranks_;
  std::size_t capacity_;
  RankNames names_;
  std::uint64_t now_ = 0;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, int> slot_by_name_;
  std::list<Waiting> waiting_;  // in the order of the first request
  std::unordered_map<std::string, std::list<Waiting>::iterator> waiting_by_name_;
};

}  // namespace tandem::hvd
