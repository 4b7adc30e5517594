// SPDX-License-Identifier: Apache-2.0
#include "cli/container_name.h"

#include <algorithm>

namespace ingero::cli {
namespace {

constexpr std::size_t kShortestId = 12;

bool is_hex_id(std::string_view text) {
  return text.size() >= kShortestId && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string short_container(std::string_view label, std::size_t width) {
  if (label.empty()) return "-";
  if (is_hex_id(label)) return std::string(label.substr(0, width));
  while (label.size() > 1 && label.back() == '/') label.remove_suffix(1);
  const std::size_t slash = label.rfind('/');
  if (slash != std::string_view::npos && label.size() > 1) label.remove_prefix(slash + 1);
  if (label.size() <= width || width == 0) return std::string(label);
  std::string_view end = label.substr(label.size() - (width - 1));
  while (!end.empty() && is_continuation(end.front())) end.remove_prefix(1);
  return "…" + std::string(end);
}

}  // namespace ingero::cli
