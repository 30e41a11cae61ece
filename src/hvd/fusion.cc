#include "hvd/fusion.h"

#include <algorithm>
#include <list>

namespace tandem::hvd {
namespace {

// Adds an operation's tensors, one unit per dtype.
void add_units(const AgreementRef& agreement, std::size_t index, bool separate_groups,
               std::list<FusionUnit>& units) {
  const Request& request = agreement->any();
  const auto first = units.size();
  auto begin = units.end();
  for (std::size_t i = 0; i < request.dtypes.size(); ++i) {
    const auto found = units.size() == first
                           ? units.end()
                           : std::find_if(begin, units.end(), [&](const FusionUnit& unit) {
                               return unit.dtype == request.dtypes[i];
                             });
    auto unit = found;
    if (unit == units.end()) {
      unit = units.insert(
          units.end(),
          {.agreement = agreement, .index = index, .tensors = {}, .dtype = request.dtypes[i]});
      if (units.size() == first + 1) begin = unit;
    }
    unit->tensors.push_back(i);
    unit->bytes += request.count(i) * static_cast<std::int64_t>(size_of(request.dtypes[i]));
    unit->alone = separate_groups && request.dtypes.size() > 1;
  }
}

bool alike(const FusionUnit& a, const FusionUnit& b) {
  return a.dtype == b.dtype && a.agreement->any().op == b.agreement->any().op;
}

}  // namespace

std::vector<std::vector<FusionUnit>> fuse(std::span<const AgreementRef> ready,
                                          const FusionOptions& options) {
  std::list<FusionUnit> units;
  for (std::size_t i = 0; i < ready.size(); ++i)
    add_units(ready[i], i, options.separate_groups, units);
  std::vector<std::vector<FusionUnit>> batches;
  while (!units.empty()) {
    std::vector<FusionUnit>& batch = batches.emplace_back();
    batch.push_back(std::move(units.front()));
    units.pop_front();
    std::int64_t total = batch.front().bytes, passed_over = 0;
    if (batch.front().alone) continue;
    for (auto unit = units.begin(); unit != units.end() && passed_over <= options.threshold;) {
      if (!unit->alone && alike(batch.front(), *unit) && total + unit->bytes <= options.threshold) {
        total += unit->bytes;
        batch.push_back(std::move(*unit));
        unit = units.erase(unit);
      } else {
        passed_over += unit->bytes;
        ++unit;
      }
    }
  }
  return batches;
}

}  // namespace tandem::hvd
