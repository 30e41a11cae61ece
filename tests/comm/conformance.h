// The conformance suite of the communication backends. conformance_BACKEND.cc instantiates it for
// one backend.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "comm/communicator.h"
#include "support/expects.h"

namespace tandem {

// How the suite runs the ranks of a group.
struct TestBackend {
  std::string name;
  // Runs body(communicator, group) as each of `ranks` ranks and waits for them. `groups`
  // independent groups run at once; the body gets the group's number.
  std::function<void(int ranks, int groups, const std::function<void(Communicator&, int)>& body)>
      run;
  // Whether this machine has the prerequisites; TANDEM_CI_EXPECTS lists them by the backend's name.
  bool (*available)() = [] { return true; };
  // Whether sums are ((0 + 1) + 2) + ... to the bit.
  bool sums_in_order = true;
  // Whether collectives of `ranks` ranks advance while no rank calls anything; false for threads.
  bool (*advances_unattended)(int ranks) = [](int) { return true; };
};
inline std::ostream& operator<<(std::ostream& out, const TestBackend& backend) {
  return out << backend.name;
}

class Conformance : public ::testing::TestWithParam<std::tuple<TestBackend, int>> {
 protected:
  void SetUp() override { TANDEM_REQUIRE(backend().available(), backend().name); }
  const TestBackend& backend() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(Communicator&)>& body) const {
    backend().run(ranks(), 1, [&](Communicator& communicator, int) { body(communicator); });
  }
};

// "ranks3"
inline std::string name_of_ranks(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return "ranks" + std::to_string(std::get<1>(info.param));
}

}  // namespace tandem
