#include "comm/rendezvous/consultation.h"

#include <chrono>
#include <optional>

#include "comm/stall.h"
#include "core/log.h"
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

std::optional<std::string> find(Store& store, const std::string& key) {
  try {
    return store.get(key, Clock::now());
  } catch (const DeadlineExceededError&) {
    return std::nullopt;
  }
}

// Waits for the key. Meanwhile warns of the ranks in missing().
template <class Missing>
std::optional<std::string> await(const Consultation& with, const std::string& key,
                                 Clock::time_point until, const Missing& missing) {
  try {
    return get_or_warn(with.store, key, until, [&](std::chrono::milliseconds waited) {
      if (const std::vector<int> ranks = missing(); !ranks.empty())
        logging::warn("{}", with.describe_missing(ranks, waited));
    });
  } catch (const DeadlineExceededError&) {
    return std::nullopt;
  }
}

std::vector<int> find_missing(const Consultation& with) {
  std::vector<int> missing;
  for (int rank = 1; rank < with.size; ++rank)
    if (!find(with.store, Keys(with.name).value(rank))) missing.push_back(rank);
  return missing;
}

std::string lead(const Consultation& with, std::string_view value, const Judge& judge) {
  const Keys keys(with.name);
  const auto deadline = Clock::now() + with.limit;
  with.store.set(keys.here(), "");
  std::vector<std::string> values = {std::string(value)};
  std::vector<int> missing;
  for (int rank = 1; rank < with.size; ++rank) {
    auto its = await(with, keys.value(rank), deadline, [&] { return find_missing(with); });
    if (!its) missing.push_back(rank);
    values.push_back(std::move(its).value_or(""));
  }
  const std::string text = missing.empty() ? "" : with.describe_missing(missing, with.limit);
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

// Rank 0 may have arrived later than this rank, and then waits longer.
std::string await_answer(const Consultation& with) {
  const Keys keys(with.name);
  const auto rank_0_is_here = [&] { return find(with.store, keys.here()).has_value(); };
  const auto rank_0_if_missing = [&] {
    return rank_0_is_here() ? std::vector<int>() : std::vector<int>{0};
  };
  if (const auto answer =
          await(with, keys.answer(with.rank), Clock::now() + with.limit, rank_0_if_missing))
    return *answer;
  const bool is_here = rank_0_is_here();
  const auto until = is_here ? Clock::now() + kGrace : Clock::now();
  if (const auto answer = await(with, keys.answer(with.rank), until, rank_0_if_missing))
    return *answer;
  std::vector<int> missing = is_here ? find_missing(with) : std::vector<int>();
  if (missing.empty()) missing = {0};
  return kMissing + with.describe_missing(missing, with.limit);
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
