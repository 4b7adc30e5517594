// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <exception>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "base/text_file.h"
#include "config/settings.h"

namespace ingero::config {
namespace {

constexpr std::size_t kMaxConfigBytes = 1024 * 1024;
constexpr const char* kOperation = "read configuration";

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", escape_terminal(truncate(text, 64)));
}

bool is_group(std::string_view key) {
  for (const Setting& setting : settings()) {
    if (setting.key.size() > key.size() && setting.key.starts_with(key) &&
        setting.key[key.size()] == '.') {
      return true;
    }
  }
  return false;
}

/// Notes where a document starts and ignores what it holds.
class DocumentStart final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  const YAML::Mark& mark() const { return mark_; }

 private:
  YAML::Mark mark_ = YAML::Mark::null_mark();
};

/// Where a second document starts, if there is one. Not YAML::LoadAll(): a stray "]" makes yaml-cpp
/// 0.7 return empty documents until memory is gone.
std::optional<YAML::Mark> find_second_document(const std::string& yaml) {
  std::istringstream input(yaml);
  YAML::Parser parser(input);
  DocumentStart first;
  DocumentStart second;
  if (!parser.HandleNextDocument(first) || !parser.HandleNextDocument(second)) return std::nullopt;
  return second.mark();
}

/// Walks one document. The first problem ends it.
class Reader {
 public:
  explicit Reader(std::string_view name) : name_(escape_terminal(name)) {}

  Result<Config> read(const YAML::Node& document) {
    if (!document.IsDefined() || document.IsNull()) return Config{};
    if (!document.IsMap()) {
      return problem(document.Mark(), "it is not a mapping of settings",
                     "write lines such as scan_interval: 10s");
    }
    if (Status status = read_map(document, ""); !status) return fail(status.error());
    return config_;
  }

  tl::unexpected<Error> problem(const YAML::Mark& mark, std::string cause, std::string hint) const {
    // yaml-cpp counts lines from 0 and gives -1 where it knows none.
    std::string where = mark.is_null() ? name_ : fmt::format("{}:{}", name_, mark.line + 1);
    return fail(Error{kOperation, std::move(where), std::move(cause), std::move(hint), 0});
  }

 private:
  Status read_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& item : map) {
      if (!item.first.IsScalar()) {
        return problem(item.first.Mark(), "a key is not a plain word", "write key: value");
      }
      const std::string key = prefix + item.first.Scalar();
      if (!seen_.insert(key).second) {
        return problem(item.first.Mark(), fmt::format("{} is set twice", quoted(key)),
                       "keep one of the two");
      }
      if (Status status = read_item(key, prefix, item.first, item.second); !status) return status;
    }
    return {};
  }

  Status read_item(const std::string& key, const std::string& prefix, const YAML::Node& name,
                   const YAML::Node& value) {
    // A dot inside one key is no level.
    const bool nested = name.Scalar().find('.') == std::string::npos;
    const Setting* const setting = find_setting(key);
    if (setting != nullptr && nested) return assign(*setting, name, value);
    if (nested && prefix.empty() && is_group(key)) {
      if (value.IsNull()) return {};  // all its lines are comments
      if (value.IsMap()) return read_map(value, key + ".");
      return problem(value.Mark(), fmt::format("{} is a group of settings", quoted(key)),
                     "put its settings on indented lines below it");
    }
    return unknown(key, setting, name);
  }

  Status unknown(const std::string& key, const Setting* dotted, const YAML::Node& name) const {
    const std::string cause = fmt::format("unknown key {}", quoted(key));
    if (dotted != nullptr) {
      return problem(name.Mark(), cause,
                     "put the part behind the dot on an indented line of its own");
    }
    if (const std::string near = nearest_key(key); !near.empty()) {
      return problem(name.Mark(), cause, fmt::format("did you mean {}?", near));
    }
    std::string known;
    for (const Setting& setting : settings()) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", setting.key);
    }
    return problem(name.Mark(), cause, "the keys are " + known);
  }

  Status assign(const Setting& setting, const YAML::Node& name, const YAML::Node& value) {
    if (value.IsNull()) {
      return problem(name.Mark(), fmt::format("{} has no value", setting.key),
                     "write one, or remove the line to use the default");
    }
    if (setting.type == "list" && value.IsSequence()) return assign_list(setting, value);
    if (!value.IsScalar()) {
      return problem(value.Mark(),
                     fmt::format("{} takes one value, not a list or a group", setting.key),
                     fmt::format("write {}: {}", setting.key, setting.format(Config{})));
    }
    return assign_text(setting, value.Mark(), value.Scalar());
  }

  Status assign_text(const Setting& setting, const YAML::Mark& mark, std::string_view text) {
    const Status status = setting.assign(config_, text);
    if (status) return {};
    return problem(mark, fmt::format("{}: {}", setting.key, status.error().cause),
                   status.error().hint);
  }

  Status assign_list(const Setting& setting, const YAML::Node& list) {
    std::string text;
    for (const auto& item : list) {
      if (!item.IsScalar()) {
        return problem(item.Mark(), fmt::format("{} is a list of plain words", setting.key),
                       "write - word on a line of its own");
      }
      text += (text.empty() ? "" : ", ") + item.Scalar();
    }
    return assign_text(setting, list.Mark(), text);
  }

  const std::string name_;
  std::set<std::string> seen_;
  Config config_;
};

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

}  // namespace

Result<Config> parse_config(std::string_view yaml, std::string_view name) {
  Reader reader(name);
  if (yaml.size() > kMaxConfigBytes) {
    return reader.problem(YAML::Mark::null_mark(), "it is longer than 1 MiB", "");
  }
  // yaml-cpp throws, also while a document is walked; this is its edge.
  try {
    const std::string text(yaml);
    if (const auto second = find_second_document(text)) {
      return reader.problem(*second, "more than one YAML document, or a bracket too many",
                            "keep one mapping of settings, without a --- line in between");
    }
    return reader.read(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return reader.problem(error.mark, "not valid YAML: " + escape_terminal(error.msg),
                          "check the indentation and the quotes of this line");
  } catch (const std::exception& error) {
    return reader.problem(YAML::Mark::null_mark(), escape_terminal(error.what()), "");
  }
}

Result<Config> load_config(const std::string& path) {
  const auto text = read_text_file(path, kMaxConfigBytes, kOperation);
  if (!text) {
    Error error = text.error();
    if (error.hint.empty())
      error.hint = "name a YAML file; `ingero reference config` lists its keys";
    return fail(std::move(error));
  }
  return parse_config(*text, path);
}

std::vector<std::string> changed_settings(const Config& before, const Config& after,
                                          bool restart_only) {
  std::vector<std::string> keys;
  for (const Setting& setting : settings()) {
    if (restart_only && setting.live) continue;
    if (setting.format(before) != setting.format(after)) keys.emplace_back(setting.key);
  }
  return keys;
}

std::string settings_hash(const Config& live, const Config& started) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const Setting& setting : settings()) {
    const std::string line =
        fmt::format("{}={}\n", setting.key, setting.format(setting.live ? live : started));
    for (const char c : line) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

std::string to_yaml(const Config& config) {
  std::string yaml;
  std::string_view group;
  for (const Setting& setting : settings()) {
    const std::size_t dot = setting.key.find('.');
    const bool grouped = dot != std::string_view::npos;
    const std::string_view own_group = grouped ? setting.key.substr(0, dot) : std::string_view();
    if (grouped && own_group != group) yaml += fmt::format("{}:\n", own_group);
    group = own_group;
    // Quotes keep text such as "" or ":9090" a string; no value holds a quote.
    const bool quote =
        setting.type == "string" || setting.type == "address" || setting.type == "list";
    const std::string_view mark = quote ? "\"" : "";
    yaml +=
        fmt::format("{}{}: {}{}{}\n", grouped ? "  " : "",
                    setting.key.substr(grouped ? dot + 1 : 0), mark, setting.format(config), mark);
  }
  return yaml;
}

std::string config_reference_markdown() {
  const Config defaults;
  std::string text =
      "| key | type | default | range | live | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const Setting& setting : settings()) {
    const std::string value = setting.format(defaults);
    text +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", setting.key, markdown_cell(setting.type),
                    value.empty() ? "" : "`" + value + "`", markdown_cell(setting.range),
                    setting.live ? "yes" : "restart", markdown_cell(setting.help));
  }
  return text;
}

}  // namespace ingero::config
