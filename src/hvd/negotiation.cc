#include "hvd/negotiation.h"

#include <algorithm>

#include "core/status.h"

namespace tandem::hvd {
namespace {

bool bit(const CycleMessages& messages, std::size_t rank, std::size_t slot) {
  return (messages.hits[rank * messages.words + slot / 64] >> (slot % 64) & 1) != 0;
}

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

// Whether zeros for a rank that has joined leave the result unchanged.
bool works_with_join(const Request& request) {
  return request.kind == RequestKind::kBarrier ||
         (request.kind == RequestKind::kAllreduce && request.op <= kAdasum);
}

std::string join_error(const Request& request) {
  return fmt::format(
      "{}{} is not supported with Join at this time. A rank has joined, and '{}' needs every rank.",
      title_of(request.kind),
      request.kind == RequestKind::kAllreduce ? fmt::format(" ({})", name_of(request.op)) : "",
      request.name);
}

}  // namespace

const Request& Agreement::any() const {
  for (const RequestRef& request : requests)
    if (request) return *request;
  throw InternalError("[hvd] an agreement without requests");
}

Negotiation::Negotiation(int ranks, std::size_t capacity, RankNames names)
    : ranks_(ranks), capacity_(capacity), names_(std::move(names)) {}

int Negotiation::slot_of(const RequestRef& request, int rank) const {
  const auto found = slot_by_name_.find(request->name);
  if (found == slot_by_name_.end()) return -1;
  const RequestRef& kept = slots_[static_cast<std::size_t>(found->second)]
                               .agreement->requests[static_cast<std::size_t>(rank)];
  return kept == request || *kept == *request ? found->second : -1;
}

void Negotiation::drop(const std::string& name) {
  const auto found = slot_by_name_.find(name);
  if (found == slot_by_name_.end()) return;
  slots_[static_cast<std::size_t>(found->second)] = {};
  slot_by_name_.erase(found);
}

// Caches the agreement in a free slot, else in the least recently used one.
void Negotiation::keep(const AgreementRef& agreement) {
  if (capacity_ == 0) return;
  std::size_t slot = 0;
  if (slot_by_name_.size() < slots_.size()) {
    while (slots_[slot].agreement) ++slot;
  } else if (slots_.size() < capacity_) {
    slot = slots_.size();
    slots_.emplace_back();
  } else {
    for (std::size_t i = 1; i < slots_.size(); ++i)
      if (slots_[i].used < slots_[slot].used) slot = i;
    slot_by_name_.erase(slots_[slot].agreement->any().name);
  }
  slots_[slot] = {agreement, ++now_};
  slot_by_name_[agreement->any().name] = static_cast<int>(slot);
}

void Negotiation::settle_hits(const CycleMessages& messages, std::vector<AgreementRef>& ready) {
  for (std::size_t word = 0; word < messages.words; ++word) {
    std::uint64_t all = ~std::uint64_t{0}, some = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank) {
      const std::uint64_t hits = messages.hits[rank * messages.words + word];
      some |= hits;
      if (!messages.joined[rank]) all &= hits;
    }
    for (std::uint64_t left = all & some; left != 0; left &= left - 1) {
      Slot& slot = slots_[word * 64 + static_cast<std::size_t>(__builtin_ctzll(left))];
      if (!slot.agreement) continue;  // evicted: a rank has sent another request of its name
      slot.used = ++now_;
      if (any(messages.joined) && !works_with_join(slot.agreement->any())) {
        auto refused = std::make_shared<Agreement>(*slot.agreement);
        refused->error = join_error(refused->any());
        ready.push_back(std::move(refused));
      } else {
        ready.push_back(slot.agreement);
      }
    }
  }
}

bool Negotiation::complete(const Waiting& waiting, const std::vector<bool>& joined) const {
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank)
    if (!waiting.agreement.requests[rank] && !joined[rank]) return false;
  return true;
}

AgreementRef Negotiation::conclude(Waiting waiting, const std::vector<bool>& joined) {
  auto agreement = std::make_shared<Agreement>(std::move(waiting.agreement));
  agreement->error = describe_mismatch(*agreement, names_);
  const bool with_join = any(joined);
  if (agreement->error.empty() && with_join && !works_with_join(agreement->any()))
    agreement->error = join_error(agreement->any());
  if (agreement->error.empty() && !with_join) keep(agreement);
  return agreement;
}

std::vector<AgreementRef> Negotiation::settle(const CycleMessages& messages) {
  for (const auto& requests : messages.requests)
    for (const Request& request : requests) drop(request.name);
  std::vector<AgreementRef> ready;
  settle_hits(messages, ready);
  for (std::size_t rank = 0; rank < messages.requests.size(); ++rank)
    for (const Request& request : messages.requests[rank]) {
      auto found = waiting_by_name_.find(request.name);
      if (found == waiting_by_name_.end()) {
        waiting_.push_back(
            {{std::vector<RequestRef>(static_cast<std::size_t>(ranks_)), {}}, ++now_, nullptr});
        found = waiting_by_name_.emplace(request.name, std::prev(waiting_.end())).first;
      }
      Waiting& waiting = *found->second;
      if (!waiting.last || *waiting.last != request)
        waiting.last = std::make_shared<const Request>(request);
      waiting.agreement.requests[rank] = waiting.last;
    }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!complete(*it, messages.joined)) {
      ++it;
      continue;
    }
    waiting_by_name_.erase(it->agreement.any().name);
    ready.push_back(conclude(std::move(*it), messages.joined));
    it = waiting_.erase(it);
  }
  return ready;
}

std::vector<Negotiation::Partial> Negotiation::partials(const CycleMessages& messages) const {
  std::vector<Partial> partials;
  const auto add = [&](const std::string& name, std::uint64_t occurrence, const auto& is_there) {
    Partial partial{name, occurrence, {}};
    for (int rank = 0; rank < ranks_; ++rank)
      if (!messages.joined[static_cast<std::size_t>(rank)] &&
          !is_there(static_cast<std::size_t>(rank)))
        partial.missing.push_back(names_[rank]);
    if (!partial.missing.empty()) partials.push_back(std::move(partial));
  };
  for (const Waiting& waiting : waiting_)
    add(waiting.agreement.any().name, waiting.since,
        [&](std::size_t rank) { return waiting.agreement.requests[rank] != nullptr; });
  for (std::size_t slot = 0; slot < std::min(slots_.size(), messages.words * 64); ++slot) {
    if (!slots_[slot].agreement) continue;
    bool some = false;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank)
      some = some || bit(messages, rank, slot);
    if (some)
      add(slots_[slot].agreement->any().name, slots_[slot].used,
          [&](std::size_t rank) { return bit(messages, rank, slot); });
  }
  return partials;
}

}  // namespace tandem::hvd
