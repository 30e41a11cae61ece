#include "comm/stall.h"

#include "core/env.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

std::chrono::seconds interval() {
  constexpr std::int64_t kDefault = 60, kMost = 24 * 3600;
  static const std::int64_t seconds = env_int("TANDEM_STALL_WARNING", 0, kMost).value_or(kDefault);
  return std::chrono::seconds(seconds);
}

}  // namespace

bool is_stalled(Store::TimePoint begin, Store::TimePoint last, Store::TimePoint now) {
  const auto each = interval();
  return each.count() > 0 && (now - begin) / each > (last - begin) / each;
}

bool is_first_waiting(int rank, std::span<const int> missing) {
  const auto lower = static_cast<std::size_t>(rank);
  return rank == 0 || (missing.size() >= lower && missing[lower - 1] == rank - 1);
}

std::string get_or_warn(Store& store, const std::string& key, Store::TimePoint deadline,
                        const std::function<void(std::chrono::milliseconds waited)>& warn) {
  const auto begin = std::chrono::steady_clock::now();
  const auto each = interval();
  for (auto next = begin + each; each.count() > 0 && next < deadline; next += each) {
    try {
      return store.get(key, next);
    } catch (const DeadlineExceededError&) {
      warn(std::chrono::duration_cast<std::chrono::milliseconds>(next - begin));
    }
  }
  return store.get(key, deadline);
}

}  // namespace tandem
