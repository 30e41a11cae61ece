#include "comm/rendezvous/consultation.h"

#include <chrono>
#include <optional>

#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::seconds(5);  // from rank 0's deadline to its answer
constexpr char kAnswer = '+', kMissing = '-';     // first characters of rank 0's answers

class Keys {
 public:
  explicit Keys(const std::string& name) : name_(name) {}
  std::string here() const { return name_ + "/here"; }  // exists until rank 0 has answered
  std::string value(int rank) const { return fmt::format("{}/{}", name_, rank); }
  std::string answer(int rank) const { return fmt::format("{}/answer/{}", name_, rank); }

 private:
  const std::string& name_;
};

std::optional<std::string> find(Store& store, const std::string& key, Store::TimePoint deadline) {
  try {
    return store.get(key, deadline);
  } catch (const DeadlineExceededError&) {
    return std::nullopt;
  }
}

std::string lead(const Consultation& with, std::string_view value, const Judge& judge) {
  const Keys keys(with.name);
  with.store.set(keys.here(), "");
  std::vector<std::string> values = {std::string(value)};
  std::vector<int> missing;
  for (int rank = 1; rank < with.size; ++rank) {
    auto its = find(with.store, keys.value(rank), with.deadline);
    if (!its) missing.push_back(rank);
    values.push_back(std::move(its).value_or(""));
  }
  const std::string text = missing.empty() ? "" : with.describe_missing(missing);
  std::vector<std::string> answers;
  if (missing.empty()) answers = judge(values);
  for (int rank = 1; rank < with.size; ++rank)
    with.store.set(keys.answer(rank), missing.empty()
                                          ? kAnswer + answers[static_cast<std::size_t>(rank)]
                                          : kMissing + text);
  with.store.remove(keys.here());
  if (!missing.empty()) throw DeadlineExceededError(text);
  return answers.front();
}

// Called where rank 0 has not answered in time.
std::vector<int> find_missing(const Consultation& with, bool rank_0_is_here) {
  std::vector<int> missing;
  for (int rank = 1; rank_0_is_here && rank < with.size; ++rank)
    if (!find(with.store, Keys(with.name).value(rank), Clock::now())) missing.push_back(rank);
  return missing.empty() ? std::vector<int>{0} : missing;
}

// Rank 0 may have arrived later than this rank, and then waits longer.
std::string await_answer(const Consultation& with) {
  const Keys keys(with.name);
  if (const auto answer = find(with.store, keys.answer(with.rank), with.deadline)) return *answer;
  const bool rank_0_is_here = find(with.store, keys.here(), Clock::now()).has_value();
  const auto until = rank_0_is_here ? Clock::now() + kGrace : Clock::now();
  if (const auto answer = find(with.store, keys.answer(with.rank), until)) return *answer;
  return kMissing + with.describe_missing(find_missing(with, rank_0_is_here));
}

}  // namespace

std::string consult(const Consultation& with, std::string_view value, const Judge& judge) {
  if (with.rank == 0) return lead(with, value, judge);
  const Keys keys(with.name);
  with.store.set(keys.value(with.rank), value);
  const std::string answer = await_answer(with);
  with.store.remove(keys.value(with.rank));
  with.store.remove(keys.answer(with.rank));
  if (answer.front() == kMissing) throw DeadlineExceededError(answer.substr(1));
  return answer.substr(1);
}

}  // namespace tandem
