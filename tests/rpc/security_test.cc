// The token of the job, and TLS.
#include <array>
#include <atomic>

#include "rpc/credential.h"
#include "rpc/task.h"

namespace tandem::rpc::security_test {
namespace {

using namespace testing;
using Security = Rpc;
using tandem::testing::any_error_of;

TEST_F(Security, AWrongTokenIsRefusedBeforeAHandlerRuns) {
  std::atomic<int> handled = 0;
  const auto server = serve({}, {{"count", [&](const CallContext&, Message request) {
                                    ++handled;
                                    return request;
                                  }}});
  const std::string refusal = fmt::format(
      "FailedPreconditionError: [rpc] call of 'count' on task /job:ps/task:0 "
      "(127.0.0.1:{}): the server refuses this task: the token is not that of this job",
      server->port());
  for (const std::string token : {"the token of this jo", "another", "the token of this job "}) {
    ChannelOptions options = to_port(server->port());
    options.token = token;
    const auto channel = make_grpc_channel(options);
    for (const std::size_t size : {std::size_t{0}, std::size_t{8} << 20})
      EXPECT_EQ(
          any_error_of([&] {
            channel->call("count", {"", {attachment_of(random_bytes(size, 1))}}, {.limit = kLong});
          }),
          refusal);
  }
  EXPECT_EQ(handled, 0);
  connect(*server)->call("count", {}, {.limit = kLong});
  EXPECT_EQ(handled, 1);
}

TEST(Credential, DependsOnTheTokenAndDoesNotContainIt) {
  const std::string credential = credential_of("a job's token");
  EXPECT_EQ(credential.size(), 32u);
  EXPECT_EQ(credential.find("token"), std::string::npos);
  EXPECT_TRUE(same_credential(credential, credential_of("a job's token")));
  EXPECT_FALSE(same_credential(credential, credential_of("a job's tokem")));
  EXPECT_FALSE(same_credential(credential, credential.substr(1)));
  EXPECT_FALSE(same_credential(credential, ""));
}

class Tls : public Rpc {
 protected:
  static TlsIdentity identity_for(const std::string& host) {
    return make_self_signed_certificate(std::array{host}, std::chrono::hours(1));
  }
  static std::string outcome(ChannelOptions options) {
    return any_error_of([&] {
      const auto channel = make_grpc_channel(std::move(options));
      if (echo_header(*channel, "secret") != "secret") throw std::runtime_error("other header");
    });
  }
  const TlsIdentity identity_ = identity_for("127.0.0.1");
};

TEST_F(Tls, TheRightCertificateIsTrusted) {
  const auto server = serve({.tls = identity_});
  ChannelOptions options = to_port(server->port());
  options.root_certificate = identity_.certificate;
  EXPECT_EQ(outcome(options), "no error");
  const auto bytes = random_bytes(3'000'001, 5);
  const Message reply =
      make_grpc_channel(options)->call("echo", {"", {attachment_of(bytes)}}, {.limit = kLong});
  EXPECT_TRUE(same_bytes(reply.attachments.at(0).bytes, bytes));
  options.token = "another";
  expect_parts(outcome(options), {"FailedPreconditionError", "the token is not that of this job"});
}

TEST_F(Tls, OtherCertificatesAndNoneAreNot) {
  const auto server = serve({.tls = identity_});
  ChannelOptions options = to_port(server->port());
  const auto unreachable = [&] {
    return error_of<PeerUnavailableError>([&] { echo_header(*make_grpc_channel(options), "a"); });
  };
  const auto expect_untrusted = [&] {
    expect_parts(
        error_of<PeerNotTrustedError>([&] { echo_header(*make_grpc_channel(options), "a"); }),
        {"[rpc] call of 'echo' on task /job:ps/task:0",
         "the server did not prove that it belongs to the job"});
  };
  expect_parts(unreachable(), {"the connection was lost"});  // without TLS
  options.root_certificate = identity_for("127.0.0.1").certificate;
  expect_untrusted();  // of another key
  options.root_certificate = identity_.certificate;
  options.certificate_host = "ps0.example";
  expect_untrusted();  // for another host
  const auto plain = serve();
  options = to_port(plain->port());
  options.root_certificate = identity_.certificate;
  expect_untrusted();  // the server has no TLS
}

TEST_F(Tls, TheHostInTheCertificateMayDiffer) {
  const TlsIdentity identity = identity_for("ps0.example");
  const auto server = serve({.tls = identity});
  ChannelOptions options = to_port(server->port());
  options.root_certificate = identity.certificate;
  EXPECT_NE(outcome(options), "no error");
  options.certificate_host = "ps0.example";
  EXPECT_EQ(outcome(options), "no error");
}

TEST_F(Tls, CertificatesOfAJobFollowFromItsToken) {
  const std::array<std::string, 1> hosts = {"127.0.0.1"};
  const auto server = serve({.tls = make_job_certificate("a job's token", hosts)});
  ChannelOptions options = to_port(server->port());
  options.root_certificate = job_root_certificate("a job's token");
  EXPECT_EQ(outcome(options), "no error");
  options.root_certificate = job_root_certificate("a job's tokem");
  EXPECT_NE(outcome(options), "no error");
}

TEST(Certificate, BadInputIsAnError) {
  const auto make = [](std::vector<std::string> hosts) {
    return error_of<InvalidArgumentError>(
        [&] { make_self_signed_certificate(hosts, std::chrono::hours(1)); });
  };
  EXPECT_EQ(make({}), "[rpc] a certificate needs a host");
  EXPECT_EQ(make({"a, IP:1.2.3.4"}), "[rpc] expected a host name or address, got 'a, IP:1.2.3.4'");
  for (const auto& make_root : {std::function([] { job_root_certificate(""); }), std::function([] {
                                  make_job_certificate("", std::array{std::string("a")});
                                })})
    EXPECT_EQ(error_of<InvalidArgumentError>(make_root),
              "[rpc] expected the job's token, got an empty one");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { make_job_certificate("token", {}); }),
            "[rpc] a certificate needs a host");
  const auto one = make_self_signed_certificate(std::array<std::string, 2>{"a.example", "::1"},
                                                std::chrono::hours(1));
  const auto other =
      make_self_signed_certificate(std::array<std::string, 1>{"a"}, std::chrono::hours(1));
  check_identity(one, "it");
  const auto check = [](const TlsIdentity& identity) {
    return error_of<InvalidArgumentError>([&] { check_identity(identity, "it"); });
  };
  EXPECT_EQ(check({one.certificate, other.key}),
            "[rpc] it: the private key does not belong to the certificate");
  EXPECT_EQ(check({one.certificate, "x"}), "[rpc] it: expected a private key in PEM");
  EXPECT_EQ(check({one.key, one.key}), "[rpc] it: expected a certificate in PEM");
}

}  // namespace
}  // namespace tandem::rpc::security_test
