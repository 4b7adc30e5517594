// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "config/config.h"
#include "config/duration.h"
#include "config/settings.h"

namespace ingero::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

const std::string kData = std::string(INGERO_TEST_DATA) + "/config/";

Config must_parse(const std::string& yaml) {
  const auto config = parse_config(yaml, "test.yaml");
  EXPECT_TRUE(config) << config.error().message();
  return config.value_or(Config{});
}

std::string error_of(const std::string& yaml) {
  const auto config = parse_config(yaml, "test.yaml");
  EXPECT_FALSE(config) << yaml;
  return config ? "" : config.error().message();
}

TEST(Config, OfAnEmptyFileIsTheDefaults) {
  EXPECT_EQ(must_parse(""), Config{});
  EXPECT_EQ(must_parse("\n# only a comment\n"), Config{});
  EXPECT_EQ(must_parse("---\n"), Config{});
  EXPECT_EQ(must_parse("{}"), Config{});
  EXPECT_EQ(must_parse("probes:\n  # cuda: false\n"), Config{});
}

TEST(Config, HasTheDefaultsThatTheDocumentationPromises) {
  const Config config;
  EXPECT_EQ(config.scan_interval, 10s);
  EXPECT_EQ(config.detach_grace, 10s);
  EXPECT_EQ(config.max_series, 10000U);
  EXPECT_EQ(config.map_entries, 16384U);
  EXPECT_EQ(config.slow_call_threshold, 0ns);
  EXPECT_TRUE(config.probes.nccl && config.probes.cuda);
  EXPECT_EQ(config.default_action, DefaultAction::trace);
}

TEST(Config, ReadsEverySetting) {
  const auto config = load_config(kData + "full.yaml");
  ASSERT_TRUE(config) << config.error().message();
  Config expected;
  expected.log_level = LogLevel::debug;
  expected.log_format = LogFormat::json;
  expected.probes = {true, false, false, false};
  expected.listen_address = {"127.0.0.1", 9400};
  expected.scan_interval = 2s;
  expected.default_action = DefaultAction::ignore;
  expected.slow_call_threshold = 1500us;
  expected.max_series = 500;
  expected.pod_labels = {"app", "batch.kubernetes.io/job-*"};
  expected.series_retention = 5min;
  expected.duration_buckets = {16us, 1024us};
  expected.map_entries = 4096;
  expected.attach_method = AttachMethod::multi;
  expected.open_method = OpenMethod::path;
  expected.cgroup_hierarchy = CgroupHierarchyChoice::pids;
  expected.detach_grace = 90s;
  expected.recordings = {"/data/recordings", 1500ULL << 20, 5};
  expected.node_name = "gpu-node-7";
  EXPECT_EQ(*config, expected);
}

TEST(Config, WritesYamlThatReadsBackEqual) {
  const auto full = load_config(kData + "full.yaml");
  ASSERT_TRUE(full);
  EXPECT_EQ(must_parse(to_yaml(*full)), *full);
  EXPECT_EQ(must_parse(to_yaml(Config{})), Config{});
}

TEST(Config, AcceptsEveryChoiceOfEverySetting) {
  for (const Setting& setting : settings()) {
    if (setting.type.find(" | ") == std::string::npos) continue;
    std::size_t begin = 0;
    while (begin < setting.type.size()) {
      const std::size_t end = std::min(setting.type.find(" | ", begin), setting.type.size());
      const std::string choice = setting.type.substr(begin, end - begin);
      const Config config = must_parse(std::string(setting.key) + ": " + choice);
      EXPECT_EQ(setting.format(config), choice) << setting.key;
      begin = end + 3;
    }
  }
}

struct Bad {
  const char* name;
  const char* yaml;
  const char* where;
  const char* what;
};

class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithTheLineAndWhatToDo) {
  const std::string error = error_of(GetParam().yaml);
  EXPECT_THAT(error, HasSubstr(GetParam().where));
  EXPECT_THAT(error, HasSubstr(GetParam().what));
}

// clang-format off
INSTANTIATE_TEST_SUITE_P(Keys, BadConfig, testing::Values(
  Bad{"typo", "log_level: info\n\nscan_intervall: 10s\n", "test.yaml:3", "did you mean scan_interval?"},
  Bad{"typo_in_a_group", "probes:\n  ncll: true\n", "test.yaml:2", "did you mean probes.nccl?"},
  Bad{"typo_of_a_group", "\nprobe:\n  nccl: true\n", "test.yaml:2", "did you mean probes?"},
  Bad{"leaf_without_its_group", "nccl: true", "test.yaml:1", "did you mean probes.nccl?"},
  Bad{"dotted", "probes.nccl: true", "test.yaml:1", "indented line"},
  Bad{"far_from_any", "zzzzzzzzzzzz: 1", "test.yaml:1", "the keys are log_level, "},
  Bad{"capitals", "LogLevel: info", "test.yaml:1", "unknown key \"LogLevel\""},
  Bad{"twice", "max_series: 500\nmax_series: 600\n", "test.yaml:2", "\"max_series\" is set twice"},
  Bad{"twice_in_a_group", "probes:\n  nccl: true\n  nccl: false\n", "test.yaml:3", "set twice"},
  Bad{"not_a_word", "? [a, b]\n: 1\n", "test.yaml:1", "not a plain word"},
  Bad{"empty_key", "\"\": 1", "test.yaml:1", "unknown key"},
  Bad{"number_as_key", "1: 2", "test.yaml:1", "unknown key \"1\""},
  Bad{"too_deep", "probes:\n  nccl:\n    x: 1\n", "test.yaml:3", "takes one value"}
), [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Values, BadConfig, testing::Values(
  Bad{"bool_as_yes", "probes:\n  nccl: yes\n", "test.yaml:2", "probes.nccl: \"yes\" is not true or false"},
  Bad{"integer_as_text", "\nmax_series: many", "test.yaml:2", "\"many\" is not a whole number"},
  Bad{"integer_as_fraction", "max_series: 1000.5", "test.yaml:1", "not a whole number"},
  Bad{"integer_negative", "max_series: -5", "test.yaml:1", "write a number from 100 to 1000000"},
  Bad{"integer_too_small", "max_series: 99", "test.yaml:1", "write a number from 100 to 1000000"},
  Bad{"integer_too_large", "map_entries: 1048577", "test.yaml:1", "\"1048577\" is out of range"},
  Bad{"integer_overflow", "map_entries: 99999999999999999999999", "test.yaml:1", "out of range"},
  Bad{"duration_without_a_unit", "scan_interval: 10", "test.yaml:1", "such as 500ms, 10s or 1m30s"},
  Bad{"duration_negative", "scan_interval: -1s", "test.yaml:1", "is not a duration"},
  Bad{"duration_too_short", "scan_interval: 99ms", "test.yaml:1", "write a duration from 100ms to 1h"},
  Bad{"duration_too_long", "detach_grace: 2h", "test.yaml:1", "write a duration from 0s to 1h"},
  Bad{"size_without_unit_word", "recordings: {budget: lots}", "test.yaml:1", "such as 512MiB"},
  Bad{"size_too_small", "recordings: {budget: 1MiB}", "test.yaml:1", "write 0, or 10MiB to 16TiB"},
  Bad{"path_not_absolute", "recordings: {directory: here}", "test.yaml:1", "write a path such as"},
  Bad{"path_winding", "recordings: {directory: /a/../etc}", "test.yaml:1", "write a path such as"},
  Bad{"choice", "attach_method: kprobe", "test.yaml:1", "write one of auto | session | multi | perf | entry_only"},
  Bad{"choice_in_capitals", "log_level: INFO", "test.yaml:1", "write one of trace | debug"},
  Bad{"address", "listen_address: localhost", "test.yaml:1", "append one, such as localhost:9090"},
  Bad{"node_name", "node_name: \"a b\"", "test.yaml:1", "not a host name"},
  Bad{"no_value", "log_level: info\nmax_series:\n", "test.yaml:2", "max_series has no value"},
  Bad{"bucket_between", "duration_buckets: [16us,\n  1ms]", "test.yaml:1", "write 1024us"},
  Bad{"label_name", "pod_labels: ['a b', 'c=d']", "test.yaml:1", "not the name of a label"},
  Bad{"nested_list", "pod_labels: [[a]]", "test.yaml:1", "a list of plain words"},
  Bad{"list", "max_series: [1, 2]", "test.yaml:1", "takes one value"},
  Bad{"map", "max_series: {a: 1}", "test.yaml:1", "write max_series: 10000"},
  Bad{"group_as_value", "probes: true", "test.yaml:1", "\"probes\" is a group"}
), [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Documents, BadConfig, testing::Values(
  Bad{"list", "- a\n- b\n", "test.yaml:1", "not a mapping"},
  Bad{"word", "hello", "test.yaml:1", "not a mapping"},
  Bad{"several", "log_level: info\n---\nlog_level: warn\n", "test.yaml:2", "more than one YAML document"},
  Bad{"stray_bracket", "log_level: info\n]\n", "test.yaml", ""},
  Bad{"only_a_bracket", "]", "test.yaml", ""},
  Bad{"open_brace", "log_level: info\nprobes: {nccl: true\n", "test.yaml", "not valid YAML"},
  Bad{"tab", "probes:\n\tnccl: true\n", "test.yaml:2", "not valid YAML"},
  Bad{"unknown_alias", "log_level: *other", "test.yaml:1", "not valid YAML"}
), [](const auto& test) { return std::string(test.param.name); });
// clang-format on

TEST(BadConfigLimits, DeepNestingIsAnErrorAndNoCrash) {
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("test.yaml"));
  EXPECT_THAT(error_of(std::string(100'000, '{')), HasSubstr("test.yaml"));
}

TEST(BadConfigLimits, TextOfMoreThanAMebibyteIsRefused) {
  EXPECT_THAT(error_of(std::string(1024 * 1024 + 1, '#')), HasSubstr("longer than 1 MiB"));
}

TEST(BadConfigLimits, HostileKeysAreShownWithoutTheirControlCharacters) {
  const std::string error = error_of("\"\\e[2J\\n" + std::string(5000, 'k') + "\": 1");
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_LT(error.size(), 1000U);
}

TEST(BadConfigLimits, RandomBytesThrowNothing) {
  std::mt19937 random(11);
  const std::string alphabet = "probes:\n ncl-[]{}\"'&*!|>%@`#,?\t\r0\xff\xc3";
  for (int round = 0; round < 3000; ++round) {
    std::string yaml;
    for (std::size_t i = random() % 60; i > 0; --i) yaml += alphabet[random() % alphabet.size()];
    const auto config = parse_config(yaml, "random");
    EXPECT_TRUE(config || !config.error().cause.empty()) << yaml;
  }
}

TEST(LoadConfig, NamesTheFileAndTheLine) {
  const auto config = load_config(kData + "typo.yaml");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("typo.yaml:3"));
}

TEST(LoadConfig, SaysWhyAFileCannotBeRead) {
  const auto missing = load_config(kData + "missing.yaml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ENOENT);
  EXPECT_THAT(missing.error().message(), HasSubstr("missing.yaml"));
  const auto directory = load_config(kData);
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message(), HasSubstr("not a regular file"));
}

TEST(ChangedSettings, NamesWhatDiffersAndWhatNeedsARestart) {
  Config after;
  after.probes.cuda = false;
  after.map_entries = 4096;
  EXPECT_THAT(changed_settings(Config{}, Config{}), IsEmpty());
  EXPECT_THAT(changed_settings(Config{}, after), ElementsAre("probes.cuda", "map_entries"));
  EXPECT_THAT(changed_settings(Config{}, after, true), ElementsAre("map_entries"));
}

TEST(Settings, HaveDefaultsWithinTheirOwnRanges) {
  for (const Setting& setting : settings()) {
    Config config;
    const Status status = setting.assign(config, setting.format(Config{}));
    EXPECT_TRUE(status) << setting.key << ": " << status.error().cause;
    EXPECT_EQ(config, Config{}) << setting.key;
    EXPECT_FALSE(setting.help.empty()) << setting.key;
  }
}

// A member of Config without a row could not be set: every row of full.yaml differs from the
// default.
TEST(Settings, AreAllInTheExampleAndInTheReference) {
  const auto full = load_config(kData + "full.yaml");
  ASSERT_TRUE(full);
  const std::string reference = config_reference_markdown();
  const auto changed = changed_settings(Config{}, *full);
  for (const Setting& setting : settings()) {
    EXPECT_THAT(reference, HasSubstr("| `" + std::string(setting.key) + "` |"));
    if (setting.key == "probes.nccl") continue;  // one of the probes stays on
    EXPECT_THAT(changed, testing::Contains(std::string(setting.key)));
  }
}

TEST(Settings, ReferenceEscapesWhatWouldEndATableCell) {
  EXPECT_THAT(config_reference_markdown(), HasSubstr("trace \\| ignore"));
  EXPECT_THAT(config_reference_markdown(), HasSubstr("| `10s` | 100ms to 1h |"));
}

TEST(Duration, IsReadInAllUnits) {
  EXPECT_EQ(parse_duration("0"), 0ns);
  EXPECT_EQ(parse_duration("7ns"), 7ns);
  EXPECT_EQ(parse_duration("100us"), 100us);
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("1m30s"), 90s);
  EXPECT_EQ(parse_duration("1.5h"), 90min);
  EXPECT_EQ(parse_duration("1.0005ms"), 1000500ns);
}

TEST(Duration, IsNothingElse) {
  for (const char* text :
       {"", "1", "s", "-1s", "1.s", ".5s", "1 s", "1S", "1d", "1s ", "1e3s", "1ss", "9223372037s",
        "99999999999999999999s", "9223372036s9223372036s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(Duration, IsWrittenInTheLargestExactUnit) {
  EXPECT_EQ(format_duration(0ns), "0s");
  EXPECT_EQ(format_duration(1500ms), "1500ms");
  EXPECT_EQ(format_duration(90s), "90s");
  EXPECT_EQ(format_duration(2h), "2h");
  EXPECT_EQ(format_duration(1ns), "1ns");
}

}  // namespace
}  // namespace ingero::config
