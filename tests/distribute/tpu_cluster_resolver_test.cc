#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tandem/tpu_system.h"

namespace tandem::tpu_cluster_resolver_test {
namespace {

using distribute::TPUClusterResolver;
using distribute::TPUClusterResolverOptions;
using testing::error_of;
using Cluster = std::map<std::string, std::vector<std::string>>;

std::string invalid(const std::string& tpu, const TPUClusterResolverOptions& options = {}) {
  return error_of<InvalidArgumentError>([&] { TPUClusterResolver(tpu, options); });
}

class TpuClusterResolver : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"})
      unsetenv(name);
  }
};

TEST_F(TpuClusterResolver, OfAttachedTpusHasNoCluster) {
  const TPUClusterResolver resolver("local");
  EXPECT_TRUE(resolver.is_local());
  EXPECT_EQ(resolver.tpu(), "local");
  EXPECT_EQ(resolver.cluster_spec(), Cluster());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.get_master(), "");
  EXPECT_EQ(resolver.master("ps", 7), "");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.environment(), "");
}

TEST_F(TpuClusterResolver, TakesAddresses) {
  const TPUClusterResolver resolver("grpc://10.0.0.1:8471,grpc://b,[::1]:9,grpc://[::2]",
                                    {.job_name = "tpu_worker"});
  EXPECT_FALSE(resolver.is_local());
  EXPECT_EQ(resolver.cluster_spec(),
            (Cluster{{"tpu_worker", {"10.0.0.1:8471", "b:8470", "[::1]:9", "[::2]:8470"}}}));
  EXPECT_EQ(resolver.master(), "grpc://10.0.0.1:8471");
  EXPECT_EQ(resolver.get_master(), "grpc://10.0.0.1:8471");
  EXPECT_EQ(resolver.master("tpu_worker", 1), "grpc://b:8470");
  EXPECT_EQ(resolver.task_type(), "tpu_worker");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { resolver.master("worker", 0); }),
            "[TPUClusterResolver] No such job in cluster: 'worker'");
  for (const int task : {4, -1})
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] { resolver.master("tpu_worker", task); }),
        "[TPUClusterResolver] No task with index " + std::to_string(task) + " in job 'tpu_worker'");
}

TEST_F(TpuClusterResolver, AddsTheCoordinator) {
  const TPUClusterResolver resolver("grpc://a:1",
                                    {.coordinator_name = "chief", .coordinator_address = "c:2"});
  EXPECT_EQ(resolver.cluster_spec(), (Cluster{{"chief", {"c:2"}}, {"worker", {"a:1"}}}));
  EXPECT_EQ(resolver.master(), "grpc://a:1");
  EXPECT_EQ(resolver.master("chief", 0), "grpc://c:2");
}

TEST_F(TpuClusterResolver, RefusesHalfACoordinator) {
  const std::string message =
      "[TPUClusterResolver] expected both coordinator_name and coordinator_address or neither, "
      "got ";
  EXPECT_EQ(invalid("local", {.coordinator_name = "chief"}), message + "'chief' and ''");
  EXPECT_EQ(invalid("local", {.coordinator_address = "c:2"}), message + "'' and 'c:2'");
  for (const char* job : {"", "chief"})
    EXPECT_EQ(invalid("local",
                      {.job_name = job, .coordinator_name = "chief", .coordinator_address = "c:2"}),
              "[TPUClusterResolver] expected a job_name that is not empty and not the "
              "coordinator's, got '" +
                  std::string(job) + "'");
}

TEST_F(TpuClusterResolver, RefusesMalformedAddresses) {
  for (const std::string bad :
       {"grpc://", "grpc://:8470", "grpc://a:", "grpc://a:0", "grpc://a:65536", "grpc://a:x",
        "grpc://a:-1", "grpc://a:80/", "grpc://a b", "grpc://::1", "grpc://[]:8470", "grpc://[::1",
        "grpc://[::1]8470", "grpc://user@a", "grpc://a:99999999999999999999"})
    EXPECT_EQ(invalid(bad), "[TPUClusterResolver] expected grpc://HOST:PORT, got '" + bad + "'");
  EXPECT_EQ(invalid("grpc://a,"), "[TPUClusterResolver] expected grpc://HOST:PORT, got ''");
  EXPECT_EQ(invalid("grpc://a,,grpc://b"),
            "[TPUClusterResolver] expected grpc://HOST:PORT, got ''");
}

TEST_F(TpuClusterResolver, DoesNotLookUpNames) {
  const TPUClusterResolver resolver("my-tpu", {.zone = "us-central1-b", .project = "p"});
  EXPECT_EQ(resolver.tpu(), "my-tpu");
  EXPECT_EQ(resolver.zone(), "us-central1-b");
  EXPECT_EQ(resolver.project(), "p");
  const std::string message =
      "[TPUClusterResolver] Could not lookup TPU metadata from name 'my-tpu'. Please doublecheck "
      "the tpu argument in the TPUClusterResolver constructor. Exception: Tandem does not ask the "
      "Cloud TPU API (project 'p', zone 'us-central1-b'): give the addresses, grpc://HOST:PORT, or "
      "\"local\"";
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { resolver.cluster_spec(); }), message);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { resolver.master(); }), message);
}

TEST_F(TpuClusterResolver, NeedsAName) {
  EXPECT_EQ(invalid(""), "[TPUClusterResolver] Please provide a TPU Name to connect to.");
  setenv("TPU_NAME", "", 1);
  setenv("TPU_CONFIG", "{}", 1);
  EXPECT_EQ(invalid(""), "[TPUClusterResolver] Please provide a TPU Name to connect to.");
}

TEST_F(TpuClusterResolver, ReadsTheEnvironment) {
  setenv("TPU_CONFIG", R"({"tpu_node_name": "node", "project": "p", "zone": "z", "more": [1]})", 1);
  EXPECT_EQ(TPUClusterResolver().tpu(), "node");
  EXPECT_EQ(TPUClusterResolver().project(), "p");
  EXPECT_EQ(TPUClusterResolver().zone(), "z");
  EXPECT_EQ(TPUClusterResolver("", {.zone = "y"}).zone(), "y");
  EXPECT_EQ(TPUClusterResolver("", {.zone = "y"}).project(), "p");
  setenv("TPU_NAME", "local", 1);
  EXPECT_TRUE(TPUClusterResolver().is_local());
  EXPECT_EQ(TPUClusterResolver().project(), "");
  setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://a:1,grpc://b:2", 1);
  EXPECT_EQ(TPUClusterResolver().cluster_spec(), (Cluster{{"worker", {"a:1", "b:2"}}}));
  EXPECT_EQ(TPUClusterResolver("grpc://c:3").master(), "grpc://c:3");
}

TEST_F(TpuClusterResolver, RefusesMalformedTpuConfig) {
  const std::map<std::string, std::string> messages = {
      {"node", "expected JSON, got 'node'"},
      {"{\"tpu_node_name\": ", "expected JSON, got '{\"tpu_node_name\": '"},
      {"[1]", "expected a JSON object, got [1]"},
      {"null", "expected a JSON object, got null"},
      {R"({"zone": "z"})", R"(expected the name of a TPU in 'tpu_node_name', got {"zone":"z"})"},
      {R"({"tpu_node_name": ""})",
       R"(expected the name of a TPU in 'tpu_node_name', got {"tpu_node_name":""})"},
      {R"({"tpu_node_name": ["a"]})", R"(expected a string for 'tpu_node_name', got ["a"])"},
      {R"({"tpu_node_name": "a", "zone": 1})", "expected a string for 'zone', got 1"},
      {R"({"tpu_node_name": "a", "project": null})", "expected a string for 'project', got null"},
      {"[[[[[[[[[[1]]]]]]]]]]",
       "expected JSON of the form that TensorFlow describes, got deeper nesting"},
  };
  for (const auto& [text, message] : messages) {
    setenv("TPU_CONFIG", text.c_str(), 1);
    EXPECT_EQ(invalid(""), "[TPU_CONFIG] " + message);
  }
  setenv("TPU_CONFIG", R"({"tpu_node_name": "grpc://a:b"})", 1);
  EXPECT_EQ(invalid(""), "[TPUClusterResolver] expected grpc://HOST:PORT, got 'grpc://a:b'");
}

TEST_F(TpuClusterResolver, DoesNotConnectToRemoteTpus) {
  for (const std::string tpu : {"grpc://10.0.0.1:8470", "my-tpu"}) {
    const std::string message =
        "cannot connect to the remote TPU '" + tpu +
        "': Tandem runs on devices that are attached to this host, by their PJRT plug-in "
        "(config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN) and TPUClusterResolver(\"local\")";
    EXPECT_EQ(error_of<UnimplementedError>([&] { TPUClusterResolver::connect(tpu); }),
              "[initialize_tpu_system] " + message);
    const TPUClusterResolver resolver(tpu);
    EXPECT_EQ(error_of<UnimplementedError>([&] { tpu::initialize_tpu_system(resolver); }),
              "[initialize_tpu_system] " + message);
    EXPECT_EQ(error_of<UnimplementedError>([&] { resolver.num_accelerators(); }),
              "[TPUClusterResolver] " + message);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(error_of<UnimplementedError>([&] { tpu::shutdown_tpu_system(resolver); }),
              "[shutdown_tpu_system] " + message);
    testing::expect_parts(
        ::testing::internal::GetCapturedStderr(),
        {("You are shutting down a TPU system " + tpu + " that has not been initialized.")
             .c_str()});
  }
}

}  // namespace
}  // namespace tandem::tpu_cluster_resolver_test
