// The fixture of tests that need gRPC.
#pragma once

#include <gtest/gtest.h>

#include "rpc/grpc/grpc_transport.h"
#include "support/expects.h"

namespace tandem::testing {

class GrpcTest : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(rpc::has_grpc(), "grpc"); }
};

}  // namespace tandem::testing
