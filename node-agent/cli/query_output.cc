// SPDX-License-Identifier: Apache-2.0
#include "cli/query_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "cli/text_table.h"

namespace ingero::cli {
namespace {

using model::Value;
using Kind = Value::Kind;

constexpr std::size_t kRowsMeasured = 1000;
constexpr std::size_t kFlushBytes = 64 << 10;

bool is_number(const Value& value) {
  return value.kind == Kind::kInteger || value.kind == Kind::kReal;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return text;
}

/// On one line, for people.
std::string plain_text(const Value& value) {
  switch (value.kind) {
    case Kind::kNull: return "NULL";
    case Kind::kBlob: return "x'" + hex(value.text) + "'";
    case Kind::kInteger:
    case Kind::kReal:
    case Kind::kText: break;
  }
  return escape_terminal(value.text);
}

class BufferedSink : public model::RowSink {
 public:
  explicit BufferedSink(TextOutput output) : output_(std::move(output)) {}

 protected:
  bool put(std::string_view text) {
    text_ += text;
    return text_.size() < kFlushBytes || flush();
  }
  bool flush() {
    open_ = open_ && (text_.empty() || output_(text_));
    text_.clear();
    return open_;
  }

 private:
  TextOutput output_;
  std::string text_;
  bool open_ = true;
};

class TableSink final : public BufferedSink {
 public:
  TableSink(TextOutput output, bool colour) : BufferedSink(std::move(output)), colour_(colour) {}

  void begin(const std::vector<std::string>& columns) override {
    if (results_++ != 0) put("\n");
    titles_.clear();
    widths_.clear();
    for (const std::string& column : columns) {
      titles_.push_back(escape_terminal(column));
      widths_.push_back(display_width(titles_.back()));
    }
    waiting_.clear();
    measured_ = false;
  }

  bool row(std::span<const Value> values) override {
    std::vector<Field> fields;
    for (const Value& value : values)
      fields.push_back({plain_text(value), is_number(value), value.kind == Kind::kNull});
    if (measured_) return write(fields);
    for (std::size_t i = 0; i < fields.size(); ++i)
      widths_[i] = std::max(widths_[i], display_width(fields[i].text));
    waiting_.push_back(std::move(fields));
    return waiting_.size() < kRowsMeasured || write_waiting();
  }

  void end() override {
    if (!measured_) write_waiting();
    flush();
  }

 private:
  struct Field {
    std::string text;
    bool right, dim;
  };

  bool write_waiting() {
    measured_ = true;
    std::vector<Field> titles;
    titles.reserve(titles_.size());
    for (std::size_t i = 0; i < titles_.size(); ++i)
      titles.push_back({titles_[i], !waiting_.empty() && waiting_.front()[i].right, false});
    bool open = write(titles, Style::kBold);
    std::string rule;
    for (std::size_t i = 0; i < widths_.size(); ++i)
      rule += (i == 0 ? "" : "  ") + std::string(widths_[i], '-');
    open = open && put(styled(rule, Style::kDim, colour_) + "\n");
    for (const auto& fields : waiting_) open = open && write(fields);
    waiting_.clear();
    return open;
  }

  bool write(const std::vector<Field>& fields, Style style = Style::kPlain) {
    std::string line;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Field& field = fields[i];
      const std::size_t width = display_width(field.text);
      const std::string blanks(width < widths_[i] ? widths_[i] - width : 0, ' ');
      const std::string text = styled(field.text, field.dim ? Style::kDim : style, colour_);
      if (i != 0) line += "  ";
      if (field.right) line += blanks + text;
      else line += text + (i + 1 < fields.size() ? blanks : "");
    }
    return put(line + "\n");
  }

  bool colour_;
  std::size_t results_ = 0;
  std::vector<std::string> titles_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<Field>> waiting_;
  bool measured_ = false;
};

class CsvSink final : public BufferedSink {
 public:
  CsvSink(TextOutput output, bool to_terminal)
      : BufferedSink(std::move(output)), to_terminal_(to_terminal) {}

  void begin(const std::vector<std::string>& columns) override {
    std::vector<Value> titles;
    for (const std::string& column : columns) titles.push_back({Kind::kText, column});
    row(titles);
  }

  bool row(std::span<const Value> values) override {
    std::string line;
    for (const Value& value : values) line += field(value) + ",";
    if (!line.empty()) line.pop_back();
    return put(line + "\r\n");
  }

  void end() override { flush(); }

 private:
  std::string field(const Value& value) const {
    if (value.kind == Kind::kNull) return "";
    if (value.kind == Kind::kBlob) return hex(value.text);
    std::string text = to_terminal_ ? escape_terminal(value.text) : std::string(value.text);
    if (!text.empty() && text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string result = "\"";
    for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
    return result + "\"";
  }

  bool to_terminal_;
};

class JsonSink final : public BufferedSink {
 public:
  using BufferedSink::BufferedSink;

  void begin(const std::vector<std::string>& columns) override {
    names_.clear();
    for (const std::string& column : columns) names_.push_back(escape_json(column));
    first_ = true;
    put("[");
  }

  bool row(std::span<const Value> values) override {
    std::string line = first_ ? "\n{" : ",\n{";
    first_ = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      line += fmt::format("{}\"{}\":", i == 0 ? "" : ",", names_[i]);
      if (values[i].kind == Kind::kNull) line += "null";
      else if (is_number(values[i])) line += values[i].text;
      else if (values[i].kind == Kind::kBlob) line += fmt::format("\"{}\"", hex(values[i].text));
      else line += fmt::format("\"{}\"", escape_json(values[i].text));
    }
    return put(line + "}");
  }

  void end() override {
    put("\n]\n");
    flush();
  }

 private:
  std::vector<std::string> names_;
  bool first_ = true;
};

class MarkdownSink final : public BufferedSink {
 public:
  using BufferedSink::BufferedSink;

  void begin(const std::vector<std::string>& columns) override {
    if (results_++ != 0) put("\n");
    std::string titles = "|", rule = "|";
    for (const std::string& column : columns) {
      titles += fmt::format(" {} |", escaped(escape_terminal(column)));
      rule += "---|";
    }
    put(titles + "\n" + rule + "\n");
  }

  bool row(std::span<const Value> values) override {
    std::string line = "|";
    for (const Value& value : values) line += fmt::format(" {} |", escaped(plain_text(value)));
    return put(line + "\n");
  }

  void end() override { flush(); }

 private:
  static std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
      if (std::string_view("|\\`*<").find(c) != std::string_view::npos) result += '\\';
      result += c;
    }
    return result;
  }

  std::size_t results_ = 0;
};

}  // namespace

std::optional<QueryFormat> parse_query_format(std::string_view name) {
  if (name == "table") return QueryFormat::kTable;
  if (name == "csv") return QueryFormat::kCsv;
  if (name == "json") return QueryFormat::kJson;
  if (name == "markdown") return QueryFormat::kMarkdown;
  return std::nullopt;
}

std::unique_ptr<model::RowSink> make_query_output(const QueryOutputOptions& options,
                                                  TextOutput output) {
  switch (options.format) {
    case QueryFormat::kTable: return std::make_unique<TableSink>(std::move(output), options.colour);
    case QueryFormat::kCsv:
      return std::make_unique<CsvSink>(std::move(output), options.to_terminal);
    case QueryFormat::kJson: return std::make_unique<JsonSink>(std::move(output));
    case QueryFormat::kMarkdown: break;
  }
  return std::make_unique<MarkdownSink>(std::move(output));
}

std::string render_sql_error(std::string_view message, std::string_view sql, int offset) {
  std::string text = escape_terminal(message) + "\n";
  if (offset < 0 || static_cast<std::size_t>(offset) > sql.size()) return text;
  const auto at = static_cast<std::size_t>(offset);
  const auto before = at == 0 ? std::string_view::npos : sql.rfind('\n', at - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(sql.find('\n', at), sql.size());
  const auto number =
      std::count(sql.begin(), sql.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  const std::string label = fmt::format("  line {}: ", number + 1);
  const std::string head = escape_terminal(sql.substr(begin, at - begin));
  text += label + head + escape_terminal(sql.substr(at, end - at)) + "\n";
  return text + std::string(display_width(label) + display_width(head), ' ') + "^\n";
}

}  // namespace ingero::cli
