#include "device/device_name.h"

#include <gtest/gtest.h>

#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::device_name_test {
namespace {

using testing::error_of;

DeviceName full(std::string_view text) {
  const auto name = DeviceName::parse_full(text);
  EXPECT_TRUE(name.has_value()) << text;
  return name.value_or(DeviceName());
}

TEST(DeviceName, FullNamesThatParse) {
  const std::pair<const char*, const char*> table[] = {
      {"", ""},
      {"/", ""},
      {"/job:w1_x/replica:2/task:3/device:GPU:4", "/job:w1_x/replica:2/task:3/device:GPU:4"},
      {"/device:GPU:4/task:3/replica:2/job:w", "/job:w/replica:2/task:3/device:GPU:4"},
      {"/job:a/job:b", "/job:b"},
      {"/job:a/job:*", ""},
      {"/replica:*/task:*/device:*", ""},
      {"/device:GPU", "/device:GPU:*"},
      {"/device:GPU:*", "/device:GPU:*"},
      {"/device:GPU:1/device:GPU:*", "/device:GPU:*"},
      {"/device:GPU:1/device:GPU", "/device:GPU:*"},
      {"/device:cpu:0", "/device:cpu:0"},
      {"/device:My_Type9:0", "/device:My_Type9:0"},
      {"/cpu:0", "/device:CPU:0"},
      {"/CPU:*", "/device:CPU:*"},
      {"/gpu:17", "/device:GPU:17"},
      {"/GPU:007", "/device:GPU:7"},
      {"/gpu:1/cpu:*", "/device:CPU:*"},
      {"/job:w/gpu:1", "/job:w/device:GPU:1"},
      {"/device:*:3", ""},  // an id without a type is kept, but not printed
  };
  for (const auto& [text, printed] : table) EXPECT_EQ(full(text).to_string(), printed) << text;
  EXPECT_EQ(full("/device:*:3").id, 3);
}

TEST(DeviceName, FullNamesThatDoNotParse) {
  for (
      const char* text :
      {"//",        "job:w",        "/job:",         "/job:9w",         "/job:w-1",
       "/job:_w",   "/replica:",    "/replica:-1",   "/replica:x",      "/task:1x",
       "/device:",  "/device:GPU:", "/device:GPU:x", "/device:9:0",     "/device:G-U:0",
       "/gpu",      "/gpu:",        "/tpu:0",        "/Gpu:0",          "GPU:0",
       "/gpu:0/",   "/gpu:0 ",      " /gpu:0",       "/gpu:2147483648", "/gpu:99999999999999999999",
       "/unknown:0"})
    EXPECT_FALSE(DeviceName::parse_full(text).has_value()) << text;
  EXPECT_EQ(full("/gpu:2147483647").id, 2147483647);
}

TEST(DeviceName, LocalNamesHaveATypeAndAnId) {
  const auto name = DeviceName::parse_local("GPU:3");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->type, "GPU");
  EXPECT_EQ(name->id, 3);
  EXPECT_FALSE(name->job.has_value());
  EXPECT_EQ(DeviceName::parse_local("gpu:3")->type, "gpu");
  for (const char* text :
       {"", "GPU", "GPU:", "GPU:*", "/GPU:0", "GPU:0/", "9:0", "GPU:x", "GPU:1:2"})
    EXPECT_FALSE(DeviceName::parse_local(text).has_value()) << text;
}

TEST(DeviceName, UserFormsParseToOneName) {
  for (const char* text :
       {"GPU:1", "gpu:1", "Gpu:1", "/gpu:1", "/GPU:1", "/Gpu:1", "/device:GPU:1", "/device:gpu:1"})
    EXPECT_EQ(DeviceName::parse(text).to_string(), "/device:GPU:1") << text;
  EXPECT_EQ(DeviceName::parse("/job:localhost/replica:0/task:0/device:cpu:2").to_string(),
            "/job:localhost/replica:0/task:0/device:CPU:2");
  for (const char* text : {"TPU:1", "tpu:1", "/TPU:1", "/tpu:1", "/Tpu:1", "/device:tpu:1"})
    EXPECT_EQ(DeviceName::parse(text).to_string(), "/device:TPU:1") << text;
  EXPECT_EQ(DeviceName::parse(""), DeviceName());
  EXPECT_EQ(error_of<InvalidArgumentError>([] { DeviceName::parse("gpu1"); }),
            "Could not parse gpu1 into a device specification.");
}

TEST(DeviceName, UserFormsNameATypeThatThereIs) {
  const auto refused = [](const char* text) {
    return error_of<InvalidArgumentError>([&] { DeviceName::parse(text); });
  };
  EXPECT_EQ(refused("cuda:0"),
            "Could not parse cuda:0 into a device specification. Unknown device type 'cuda'; the "
            "types are CPU, GPU and TPU. The nearest is 'GPU'.");
  EXPECT_NE(refused("GPPU:1").find("'GPPU'; the types are CPU, GPU and TPU. The nearest is 'GPU'."),
            std::string::npos);
  EXPECT_NE(refused("/device:gpuu:0").find("The nearest is 'GPU'."), std::string::npos);
  EXPECT_EQ(refused("/device:accelerator:0").find("nearest"), std::string::npos);
  EXPECT_EQ(full("/device:xpu:0").type, "xpu");  // the grammar accepts any type
}

TEST(DeviceName, ASpecificationHasEqualOrFewerFields) {
  EXPECT_TRUE(is_specification(full("/device:GPU"), full("/job:w/device:GPU:1")));
  EXPECT_TRUE(is_specification(full(""), full("/gpu:0")));
  EXPECT_FALSE(is_specification(full("/gpu:0"), full("/gpu:1")));
  EXPECT_FALSE(is_specification(full("/gpu:0"), full("/device:GPU")));
  EXPECT_FALSE(is_specification(full("/device:cpu:0"), full("/cpu:0")));
}

TEST(DeviceName, CompatibleIsStricterThanMerge) {
  DeviceName job = full("/job:w");
  const DeviceName gpu = full("/device:GPU:0");
  EXPECT_FALSE(are_compatible(job, gpu));
  merge(job, gpu, /*soft=*/false);
  EXPECT_EQ(job.to_string(), "/job:w/device:GPU:0");
  EXPECT_TRUE(are_compatible(full("/gpu:0"), full("/device:GPU")));
  EXPECT_TRUE(are_compatible(full("/device:GPU"), full("/gpu:0")));
}

struct MergeCase {
  const char* target;
  const char* other;
  const char* hard;        // the result, or what is incompatible when it starts with '!'
  const char* soft;        // likewise
  const char* overridden;  // likewise
};

TEST(DeviceName, MergingFollowsTheTableOfConflicts) {
  const MergeCase table[] = {
      {"/job:a", "/job:b", "!jobs", "!jobs", "!jobs"},
      {"/replica:1", "/replica:2", "!replicas", "!replicas", "!replicas"},
      {"/task:1", "/task:2", "!tasks", "!tasks", "!tasks"},
      {"/gpu:1", "/cpu:1", "!types", "", "/device:CPU:1"},
      {"/gpu:1", "/cpu:2", "!types", "", "/device:CPU:2"},
      {"/gpu:1", "/device:CPU", "!types", "", "/device:CPU:1"},
      {"/gpu:1", "/gpu:2", "!ids", "/device:GPU:*", "/device:GPU:2"},
      {"/gpu:1", "/gpu:1", "/device:GPU:1", "/device:GPU:1", "/device:GPU:1"},
      {"/gpu:1", "/device:GPU", "/device:GPU:1", "/device:GPU:1", "/device:GPU:1"},
      {"/device:GPU", "/gpu:2", "/device:GPU:2", "/device:GPU:2", "/device:GPU:2"},
      {"", "/job:a/task:2", "/job:a/task:2", "/job:a/task:2", "/job:a/task:2"},
      {"/task:1/gpu:1", "/job:a/cpu:0", "!types", "/job:a/task:1", "/job:a/task:1/device:CPU:0"},
  };
  for (const MergeCase& each : table) {
    const auto check = [&](const char* expected, auto&& merging) {
      DeviceName target = full(each.target);
      const std::string error = error_of<InvalidArgumentError>([&] { merging(target); });
      if (*expected == '!') {
        EXPECT_EQ(error, std::string("Cannot merge devices with incompatible ") + (expected + 1) +
                             ": '" + full(each.target).to_string() + "' and '" +
                             full(each.other).to_string() + "'");
        EXPECT_EQ(target, full(each.target));
      } else {
        EXPECT_EQ(error, "no error");
        EXPECT_EQ(target.to_string(), expected) << each.target << " + " << each.other;
      }
    };
    check(each.hard, [&](DeviceName& target) { merge(target, full(each.other), false); });
    check(each.soft, [&](DeviceName& target) { merge(target, full(each.other), true); });
    check(each.overridden, [&](DeviceName& target) { merge_override(target, full(each.other)); });
  }
}

TEST(DeviceName, SoftTypeConflictClearsTheIdToo) {
  DeviceName target = full("/gpu:1");
  merge(target, full("/cpu:1"), /*soft=*/true);
  EXPECT_FALSE(target.type.has_value());
  EXPECT_FALSE(target.id.has_value());
}

TEST(DeviceName, InnerScopeWinsFieldByField) {
  EXPECT_EQ(nest(full("/job:w/task:1/gpu:1"), full("/cpu:0")).to_string(),
            "/job:w/task:1/device:CPU:0");
  EXPECT_EQ(nest(full("/gpu:1"), full("/job:w")).to_string(), "/job:w/device:GPU:1");
  EXPECT_EQ(nest(full("/gpu:1"), full("")).to_string(), "/device:GPU:1");
  EXPECT_EQ(nest(full("/gpu:1"), full("/device:CPU")).to_string(), "/device:CPU:1");
}

}  // namespace
}  // namespace tandem::device_name_test
