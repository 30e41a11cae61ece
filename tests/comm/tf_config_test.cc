#include "comm/rendezvous/tf_config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/tensors.h"
#include "tandem/errors.h"

namespace tandem::tf_config_test {
namespace {

using testing::expect_error;

constexpr const char* kCluster =
    R"("cluster": {"chief": ["c:1"], "worker": ["a:1", "b:2"], "ps": ["p:1"], )"
    R"("evaluator": ["e:1"]})";

TfConfig task(const std::string& type, int index) {
  return parse_tf_config("{" + std::string(kCluster) + R"(, "task": {"type": ")" + type +
                         R"(", "index": )" + std::to_string(index) + "}}");
}

void expect_rejected(const std::string& text, const std::string& why) {
  expect_error<InvalidArgumentError>([&] { parse_tf_config(text); }, "[TF_CONFIG] " + why);
}

TEST(TfConfig, TheChiefComesBeforeTheWorkers) {
  const TfConfig chief = task("chief", 0), first = task("worker", 0), second = task("worker", 1);
  EXPECT_EQ(chief.num_workers(), 3);
  EXPECT_EQ(chief.rank(), 0);
  EXPECT_EQ(first.rank(), 1);
  EXPECT_EQ(second.rank(), 2);
  EXPECT_TRUE(chief.is_chief());
  EXPECT_FALSE(first.is_chief());
  EXPECT_EQ(second.first_address(), "c:1");
}

TEST(TfConfig, WithoutAChiefItIsWorker0) {
  const TfConfig config = parse_tf_config(
      R"({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_TRUE(config.is_chief());
  EXPECT_EQ(config.num_workers(), 2);
  EXPECT_EQ(config.first_address(), "a:1");
}

TEST(TfConfig, AnEvaluatorIsNoWorkerAndItsOwnChief) {
  const TfConfig config = task("evaluator", 0);
  EXPECT_FALSE(config.trains());
  EXPECT_TRUE(config.is_chief());
  const TfConfig outside = parse_tf_config(
      R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})");
  EXPECT_FALSE(outside.trains());
}

TEST(TfConfig, WithoutAClusterItIsOneWorker) {
  for (const char* text :
       {"{}", R"({"task": {"type": "worker", "index": 3}})", R"({"cluster": {}})",
        R"({"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}})"}) {
    const TfConfig config = parse_tf_config(text);
    EXPECT_TRUE(config.trains());
    EXPECT_TRUE(config.is_chief());
    EXPECT_EQ(config.num_workers(), 0);
  }
}

TEST(TfConfig, AnIndexMayBeAString) {
  const TfConfig config = parse_tf_config(
      R"({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": "1"}})");
  EXPECT_EQ(config.index, 1);
}

TEST(TfConfig, AddressesAreDifferentAndComplete) {
  const auto workers = [](const std::string& list) {
    return R"({"cluster": {"worker": [)" + list + R"(]}, "task": {"type": "worker", "index": 0}})";
  };
  expect_rejected(workers(R"("a:1", "a:1")"),
                  "task 0 of type 'worker' and task 1 of type 'worker' have one address, 'a:1'");
  expect_rejected(workers(R"("a")"), "expected HOST:PORT for task 0 of type 'worker', got 'a'");
  expect_rejected(workers(R"("a:1", "b:70000")"),
                  "expected HOST:PORT for task 1 of type 'worker', got 'b:70000'");
}

TEST(TfConfig, ErrorsNameTheProblem) {
  expect_rejected("{", "expected JSON, got '{'");
  expect_rejected(std::string(100'000, '['), "expected JSON of the form that TensorFlow describes");
  expect_rejected("[1]", "expected a JSON object, got [1]");
  expect_rejected(R"({"cluster": 3})", "expected an object for 'cluster', got 3");
  expect_rejected(R"({"cluster": {"worker": "a:1"}})", "expected a list of HOST:PORT");
  expect_rejected(R"({"cluster": {"worker": ["a:1", 2]}})",
                  "expected HOST:PORT for task 1 of type 'worker', got 2");
  expect_rejected(R"({"cluster": {"master": ["a:1"]}})",
                  "Disallowed task type found in cluster spec.");
  expect_rejected(R"({"cluster": {"chief": ["a:1", "b:1"]}})",
                  "There must be at most one 'chief' job.");
  expect_rejected(R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1", "c:1"]}})",
                  "There must be at most one 'evaluator' job.");
  expect_rejected(R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
                  "No `worker`, `chief` or `evaluator` tasks can be found in `cluster_spec`.");
  for (const char* text : {R"({"cluster": {"worker": ["a:1"]}})",
                           R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})"})
    expect_rejected(
        text, "When `cluster_spec` is given, you must also specify `task_type` and `task_id`.");
  const auto with = [](const std::string& task) {
    return R"({"cluster": {"worker": ["a:1"]}, "task": )" + task + "}";
  };
  expect_rejected(with("7"), "expected an object for 'task', got 7");
  expect_rejected(with(R"({"type": "boss", "index": 0})"), "Unrecognized task_type: \"boss\"");
  expect_rejected(with(R"({"type": "worker", "index": -1})"), "expected a whole number");
  expect_rejected(with(R"({"type": "worker", "index": "x"})"), "expected a whole number");
  expect_rejected(with(R"({"type": "chief", "index": 0})"),
                  "`task_type` 'chief' not found in cluster_spec.");
  expect_rejected(with(R"({"type": "worker", "index": 1})"),
                  "The `task_id` 1 exceeds the maximum id of worker, 0.");
}

TEST(TfConfig, ComesFromTheEnvironment) {
  unsetenv("TF_CONFIG");
  EXPECT_FALSE(tf_config_of_environment().has_value());
  setenv("TF_CONFIG", "{}", 1);
  EXPECT_TRUE(tf_config_of_environment().has_value());
}

}  // namespace
}  // namespace tandem::tf_config_test
