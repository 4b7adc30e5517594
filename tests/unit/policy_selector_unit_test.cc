// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/glob.h"
#include "policy/label_selector.h"

namespace ingero::policy {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct GlobCase {
  const char* pattern;
  const char* text;
  bool matches;
};

TEST(GlobTest, StarTakesAnyCharactersAndQuestionMarkOne) {
  const GlobCase cases[] = {
      {"*", "", true},
      {"*", "trainer", true},
      {"", "", true},
      {"", "a", false},
      {"?", "", false},
      {"?", "a", true},
      {"?", "ab", false},
      {"nccl*", "ncclAllReduce", true},
      {"nccl*", "NcclAllReduce", false},
      {"*Reduce*", "ncclAllReduceConfig", true},
      {"*Reduce", "ncclAllReduceConfig", false},
      {"*a*b", "aXbXb", true},
      {"a*b*c", "abcbc", true},
      {"a*b*c", "acb", false},
      {"a**", "a", true},
      {"istio-?roxy", "istio-proxy", true},
      {"[ab]", "a", false},
      {"[ab]", "[ab]", true},
      {"a.c", "abc", false},
      {"\\*", "*", false},
  };
  for (const GlobCase& c : cases)
    EXPECT_EQ(glob_matches(c.pattern, c.text), c.matches) << c.pattern << " on " << c.text;
}

TEST(GlobTest, APatternOfManyStarsEndsSoon) {
  std::string pattern;
  for (int i = 0; i < 64; ++i) pattern += "a*";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(10'000, 'a')));
  EXPECT_TRUE(glob_matches(pattern, std::string(10'000, 'a')));
}

struct SelectorCase {
  const char* selector;
  Labels labels;
  bool matches;
};

TEST(LabelSelectorTest, SelectsAsKubernetesDoes) {
  const Labels train{{"app", "train"}, {"tier", ""}};
  const SelectorCase cases[] = {
      {"null", train, true},
      {"{}", {}, true},
      {R"({"matchLabels": null, "matchExpressions": null})", train, true},
      {R"({"matchLabels": {}, "matchExpressions": []})", {}, true},
      {R"({"matchLabels": {"app": "train"}})", train, true},
      {R"({"matchLabels": {"app": "serve"}})", train, false},
      {R"({"matchLabels": {"app": "train"}})", {}, false},
      {R"({"matchLabels": {"tier": ""}})", train, true},
      {R"({"matchLabels": {"absent": ""}})", train, false},
      {R"({"matchLabels": {"app": "train", "tier": "gold"}})", train, false},
      {R"({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "train"]}]})",
       train, true},
      {R"({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]})", train,
       false},
      {R"({"matchExpressions": [{"key": "absent", "operator": "In", "values": ["x"]}]})", train,
       false},
      {R"({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]})", train,
       true},
      {R"({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["train"]}]})", train,
       false},
      {R"({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["x"]}]})", train,
       true},
      {R"({"matchExpressions": [{"key": "tier", "operator": "Exists"}]})", train, true},
      {R"({"matchExpressions": [{"key": "absent", "operator": "Exists"}]})", train, false},
      {R"({"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]})", train, true},
      {R"({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist", "values": []}]})",
       train, false},
      {R"({"matchLabels": {"app": "train"},
           "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]})",
       train, false},
      {R"({"unknown": 1, "matchLabels": {"app": "train"}})", train, true},
  };
  for (const SelectorCase& c : cases) {
    const auto selector = parse_label_selector(json::parse(c.selector), "spec.podSelector");
    ASSERT_TRUE(selector) << c.selector << ": " << selector.error().message();
    EXPECT_EQ(selector->matches(c.labels), c.matches) << c.selector;
  }
}

TEST(LabelSelectorTest, AnErrorNamesTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "(s): it is a JSON array, not an object"},
      {R"({"matchLabels": ["a"]})", "(s.matchLabels): it is a JSON array"},
      {R"({"matchLabels": {"app": 1}})", "(s.matchLabels[app]): it is a JSON number"},
      {R"({"matchLabels": {"app": null}})", "(s.matchLabels[app]): it is null"},
      {R"({"matchLabels": {"": "x"}})", "(s.matchLabels): one of its keys is 0 bytes long"},
      {R"({"matchExpressions": {}})", "(s.matchExpressions): it is a JSON object"},
      {R"({"matchExpressions": [null]})", "(s.matchExpressions[0].key): a key is needed"},
      {R"({"matchExpressions": [{"operator": "Exists"}]})", "(s.matchExpressions[0].key)"},
      {R"({"matchExpressions": [{"key": "a"}]})", "(s.matchExpressions[0].operator)"},
      {R"({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]})",
       "use In, NotIn, Exists or DoesNotExist"},
      {R"({"matchExpressions": [{"key": "a", "operator": "In"}]})",
       "(s.matchExpressions[0].values): In needs at least one value"},
      {R"({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]})",
       "NotIn needs at least one value"},
      {R"({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})",
       "Exists takes no values"},
      {R"({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", 2]}]})",
       "(s.matchExpressions[0].values[1]): it is a JSON number, not a string"},
  };
  for (const auto& [text, message] : cases) {
    const auto selector = parse_label_selector(json::parse(text), "s");
    ASSERT_FALSE(selector) << text;
    EXPECT_THAT(selector.error().message(), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace ingero::policy
