// SPDX-License-Identifier: Apache-2.0
#include "record/recording_store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <tuple>

namespace ingero::record {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".db";
constexpr const char* kTimeFormat = "%Y%m%dT%H%M%SZ";
constexpr std::size_t kTimeBytes = 16;  // 20261121T170042Z
constexpr std::size_t kRequestBytes = 8;

/// A name that an API server lets through, and that stays in its folder.
bool is_object_name(std::string_view name) {
  if (name.empty() || name.size() > 253 || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string format_time(std::int64_t unix_s) {
  tm utc{};
  const auto seconds = static_cast<time_t>(unix_s);
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  ::strftime(text.data(), text.size(), kTimeFormat, &utc);
  return text.data();
}

std::optional<std::int64_t> parse_time(const std::string& text) {
  tm utc{};
  const char* const end = ::strptime(text.c_str(), kTimeFormat, &utc);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&utc);
}

/// TIME-REQUEST-NUMBER.db
std::optional<PodFile> parse_name(const std::string& name) {
  if (name.size() < kTimeBytes + kRequestBytes + 3 || !name.ends_with(kSuffix)) return std::nullopt;
  if (name[kTimeBytes] != '-' || name[kTimeBytes + 1 + kRequestBytes] != '-') return std::nullopt;
  PodFile file;
  const auto time = parse_time(name.substr(0, kTimeBytes));
  file.request = name.substr(kTimeBytes + 1, kRequestBytes);
  const char* const digits = name.data() + kTimeBytes + kRequestBytes + 2;
  const char* const end = name.data() + name.size() - kSuffix.size();
  const auto [stop, error] = std::from_chars(digits, end, file.number);
  if (!time || !is_hex(file.request) || error != std::errc() || stop != end) return std::nullopt;
  file.started_unix_s = *time;
  return file;
}

std::uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(*at);
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.symlink_status(error).type() == fs::file_type::directory;
}

bool is_plain_file(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.symlink_status(error).type() == fs::file_type::regular;
}

}  // namespace

std::string request_name(std::string_view request) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : request) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return fmt::format("{:08x}", hash);
}

std::vector<PodFile> RecordingStore::list() const {
  std::vector<PodFile> files;
  for (const auto& k8s_namespace : entries_of(folder_)) {
    if (!is_folder(k8s_namespace)) continue;
    for (const auto& pod : entries_of(k8s_namespace.path())) {
      if (!is_folder(pod)) continue;
      for (const auto& entry : entries_of(pod.path())) {
        auto file = parse_name(entry.path().filename());
        if (!file || !is_plain_file(entry)) continue;
        file->k8s_namespace = k8s_namespace.path().filename();
        file->pod = pod.path().filename();
        file->path = entry.path();
        file->bytes = size_of(file->path) + size_of(file->path + "-wal");
        files.push_back(std::move(*file));
      }
    }
  }
  std::sort(files.begin(), files.end(), [](const PodFile& a, const PodFile& b) {
    return std::tie(a.started_unix_s, a.k8s_namespace, a.pod, a.request, a.number) <
           std::tie(b.started_unix_s, b.k8s_namespace, b.pod, b.request, b.number);
  });
  return files;
}

Result<PodFile> RecordingStore::name(PodFile file) const {
  if (!is_object_name(file.k8s_namespace) || !is_object_name(file.pod))
    return fail(Error{"name the recording of", file.k8s_namespace + "/" + file.pod,
                      "it is not the name of a pod", "", 0});
  file.path = fmt::format("{}/{}/{}/{}-{}-{:03}{}", folder_, file.k8s_namespace, file.pod,
                          format_time(file.started_unix_s), file.request, file.number, kSuffix);
  return file;
}

Status RecordingStore::prepare(const PodFile& file) const {
  const fs::path folder = fs::path(file.path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return fail(Error::from_errno(error.value(), "make the folder", folder.string(),
                                "is the folder mounted writable? see recordings in the chart's "
                                "values"));
}

Status RecordingStore::remove(const PodFile& file) const {
  if (::unlink(file.path.c_str()) != 0 && errno != ENOENT)
    return fail_errno("remove the recording", file.path);
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((file.path + suffix).c_str());
  const fs::path pod = fs::path(file.path).parent_path();
  if (::rmdir(pod.c_str()) == 0) ::rmdir(pod.parent_path().c_str());
  return {};
}

std::uint64_t RecordingStore::shrink_to(std::uint64_t bytes,
                                        const std::set<std::string>& kept) const {
  const std::vector<PodFile> files = list();
  std::uint64_t total = 0;
  for (const PodFile& file : files) total += file.bytes;
  for (const PodFile& file : files) {
    if (total <= bytes) break;
    if (kept.contains(file.path)) continue;
    if (const auto removed = remove(file); !removed) {
      spdlog::warn("{}", removed.error().message());
      continue;
    }
    spdlog::info("removed {} to make room for other recordings", file.path);
    total -= file.bytes;
  }
  return total;
}

}  // namespace ingero::record
