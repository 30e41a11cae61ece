#include "parallel/parameter_check.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/crc32c.h"
#include "core/status.h"
#include "device/copy.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_impl.h"

namespace tandem::parallel {
namespace {

std::uint32_t checksum(const Tensor& tensor, std::vector<std::byte>& scratch) {
  const TensorImpl& impl = impl_of(tensor);
  const std::size_t bytes = impl.bytes();
  DeviceImpl& device = impl.device();
  if (device.host_accessible()) return add_crc32c(0, impl.data(), bytes);
  scratch.resize(bytes);
  read_from(device, scratch.data(), impl.data(), bytes, device.stream().record());
  return add_crc32c(0, scratch.data(), bytes);
}

// The checksums that most ranks have; of several such lists, that of the first rank.
template <class Checksums>
const Checksums& most_frequent(const std::vector<Checksums>& of_rank) {
  return *std::max_element(of_rank.begin(), of_rank.end(), [&](const auto& a, const auto& b) {
    return std::count(of_rank.begin(), of_rank.end(), a) <
           std::count(of_rank.begin(), of_rank.end(), b);
  });
}

}  // namespace

ParameterCheck::ParameterCheck(Communicator& communicator, std::vector<Variable> parameters,
                               RankNames names, std::int64_t every)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      names_(std::move(names)),
      every_(every) {
  if (every < 0)
    fail<InvalidArgumentError>(
        "[DistributedDataParallel] expected a parameter_check_steps of at least 0, got {}", every);
}

// One number per rank is enough to find a difference; the others are sent only then.
void ParameterCheck::step() {
  if (every_ == 0 || ++steps_ % every_ != 0 || communicator_.size() == 1) return;
  const std::vector<std::uint32_t> mine = checksums();
  const std::uint32_t all = add_crc32c(0, mine.data(), mine.size() * sizeof(mine.front()));
  std::vector<std::uint32_t> gathered(static_cast<std::size_t>(communicator_.size()));
  communicator_.exchange(&all, sizeof(all), gathered.data());
  if (std::any_of(gathered.begin(), gathered.end(),
                  [&](std::uint32_t each) { return each != all; }))
    throw_difference(mine);
}

std::vector<std::uint32_t> ParameterCheck::checksums() const {
  const NoGradScope no_grad;
  std::vector<std::uint32_t> result;
  std::vector<std::byte> scratch;
  for (const Variable& parameter : parameters_)
    result.push_back(checksum(parameter.value(), scratch));
  return result;
}

void ParameterCheck::throw_difference(const std::vector<std::uint32_t>& mine) const {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  std::vector<std::uint32_t> gathered(ranks * mine.size());
  communicator_.exchange(mine.data(), mine.size() * sizeof(mine.front()), gathered.data());
  std::vector<std::vector<std::uint32_t>> of_rank;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = gathered.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    of_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
  }
  const std::vector<std::uint32_t>& expected = most_frequent(of_rank);
  std::vector<int> same, others;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    (of_rank[rank] == expected ? same : others).push_back(static_cast<int>(rank));
  std::vector<std::string> differing;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (std::any_of(of_rank.begin(), of_rank.end(),
                    [&](const auto& its) { return its[i] != expected[i]; }))
      differing.push_back(quoted_name(parameters_[i]));
  fail<InvalidArgumentError>(
      "[DistributedDataParallel] {} of {} parameters differ between {} and {} in step {}, the "
      "first "
      "is {}. Every rank has to start with the same values and update them in the same way: load "
      "weights on all ranks or before the model is wrapped, and set learning rates on all",
      differing.size(), mine.size(), list_ranks(others, names_), list_ranks(same, names_), steps_,
      differing.front());
}

}  // namespace tandem::parallel
