#include "core/json.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace tandem::json_test {
namespace {

Json parse(const std::string& text) { return Json::parse(text, "it"); }

std::string problem_of(const std::string& text) {
  return testing::error_of<JsonError>([&] { parse(text); });
}

TEST(Json, PrintsWhatItParsed) {
  const std::string text =
      R"({"z":[1,-2,18446744073709551615,0.5],"a":{"b":null,"c":true},"é\n":"","e":[],"o":{}})";
  EXPECT_EQ(parse(text).dump(), text);
}

TEST(Json, IsMadeOfValues) {
  Json made = {{"name", "x"}, {"sizes", std::vector<std::int64_t>{2, 3}}, {"at", {{"x", -1}}}};
  made["name"] = 1.5;
  made["more"].push_back(false);
  EXPECT_EQ(made.dump(), R"({"name":1.5,"sizes":[2,3],"at":{"x":-1},"more":[false]})");
  EXPECT_EQ(Json(Json::Array{1}).dump({.indent = 2}), "[\n  1\n]");
}

TEST(Json, ChecksTypes) {
  const Json value = parse(R"({"count":3,"negative":-3,"text":"t","number":2.5})");
  EXPECT_EQ(value.at("count").count(), 3u);
  EXPECT_EQ(value.at("negative").integer(), -3);
  EXPECT_EQ(value.at("negative").number(), -3.0);
  EXPECT_EQ(value.at("number").number(), 2.5);
  EXPECT_FALSE(value.at("negative").is_count());
  EXPECT_EQ(value.find("missing"), nullptr);
  EXPECT_EQ(value.at("count").find("of a number"), nullptr);
  EXPECT_THROW(value.at("missing"), JsonError);
  EXPECT_THROW(value.at("text").number(), JsonError);
  EXPECT_THROW(value.at("number").integer(), JsonError);
  EXPECT_THROW(value.object()[0].value.array(), JsonError);
  EXPECT_THROW(parse("18446744073709551615").integer(), JsonError);
}

TEST(Json, RefusesWhatItCannotRepresent) {
  EXPECT_EQ(problem_of(R"([{"a":1,"b":2,"a":3}])"), "it has 'a' twice");
  EXPECT_TRUE(problem_of("{").starts_with("it is not JSON ("));
  EXPECT_TRUE(problem_of("[1] 2").starts_with("it is not JSON ("));
  EXPECT_TRUE(problem_of("\"\xff\"").starts_with("it is not JSON ("));
  EXPECT_EQ(problem_of(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(problem_of(std::string(65, '[')), "it is not JSON (it has too many levels)");
}

TEST(Json, ReplacesInvalidUtf8UnlessStrict) {
  EXPECT_EQ(Json("a\xff").dump(), "\"a\uFFFD\"");
  EXPECT_EQ(Json("\u00e9").dump({.ascii = true}), R"("\u00e9")");
  EXPECT_THROW(Json("a\xff").dump({.strict = true}), JsonError);
}

TEST(Json, OfVariablesIsAnObject) {
  EXPECT_EQ(parse_json_variable("V", R"({"a":1})").at("a").count(), 1u);
  EXPECT_THROW(parse_json_variable("V", "[1]"), InvalidArgumentError);
  EXPECT_THROW(parse_json_variable("V", "{"), InvalidArgumentError);
  EXPECT_THROW(parse_json_variable("V", R"({"a":[[[[[[[[1]]]]]]]]})"), InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::json_test
