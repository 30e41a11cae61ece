// Process groups over functions of the program.
#include <algorithm>
#include <array>

#include "comm/transport/transport.h"
#include "core/joined.h"
#include "core/status.h"
#include "group/connect.h"
#include "group/process_group_impl.h"
#include "tandem/transport.h"

namespace tandem::comm {
namespace {

// No server knows the ranks: they find the failures of others in the group's notices.
class TransportMembership final : public Membership {
 public:
  TransportMembership(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool failed() const noexcept override { return false; }
  void set_needs_all(bool) override {}
  [[noreturn]] void throw_failure() const override {
    throw FailedPreconditionError("[transport] no rank has failed");
  }
  void report(const std::string&) override {}

 private:
  const int rank_, size_;
};

// The ranks of a transport, which know each other already.
class TransportJob final : public Job {
 public:
  explicit TransportJob(std::shared_ptr<Transport> transport)
      : transport_(std::move(transport)),
        membership_(std::make_shared<TransportMembership>(transport_->rank(), transport_->size())) {
  }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  const std::string& master() const override { return master_; }
  const std::shared_ptr<Store>& store() const override { return store_; }
  const std::shared_ptr<Membership>& membership() const override { return membership_; }
  std::shared_ptr<Transport> transport() const override { return transport_; }
  void shut_down(std::chrono::milliseconds) override {}

 private:
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<Store> store_;  // null
  const std::string master_;            // empty
};

}  // namespace

ProcessGroup from_transport(const tandem_transport& functions, const TransportOptions& options) {
  constexpr std::array<std::string_view, 4> kBackends = {"auto", "shm", "transport",
                                                         "hierarchical"};
  const auto job = std::make_shared<TransportJob>(Transport::make(functions));
  if (std::find(kBackends.begin(), kBackends.end(), options.backend) == kBackends.end())
    fail<InvalidArgumentError>("[from_transport] Invalid backend: '{}'; expected one of {}",
                               options.backend, joined(kBackends, ", "));
  if (options.timeout <= std::chrono::milliseconds(0))
    fail<InvalidArgumentError>("[from_transport] expected a positive timeout, got {} ms",
                               options.timeout.count());
  const std::string backend =
      choose_backend(*job, {.backend = options.backend, .time_limit = options.timeout});
  return ProcessGroup(std::make_shared<ProcessGroupImpl>(job, backend, options.timeout));
}

}  // namespace tandem::comm
