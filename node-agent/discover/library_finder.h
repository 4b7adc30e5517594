// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "discover/library_image.h"
#include "discover/mapping_scanner.h"
#include "discover/safe_open.h"
#include "model/snapshot.h"

namespace ingero::discover {

/// A file that exports traced functions, open for the attach.
struct FoundLibrary {
  model::FileKey file;
  std::string path;  ///< raw bytes, as the process sees it
  std::uint32_t pid = 0;
  UniqueFd fd;
  LibraryImage image;
};

struct ScanResult {
  std::vector<FoundLibrary> found;        ///< seen for the first time, or to be attached again
  std::vector<model::Process> processes;  ///< those that map at least one traced file
  std::set<std::string> traced_paths;     ///< as the processes see the traced files
  bool incomplete = false;  ///< a mapping changed while it was looked at: scan again soon
  std::vector<model::Refusal> refusals;  ///< candidates that cannot be traced, and why
};

enum class OpenPreference { kAutomatic, kMapFiles, kProcRoot };

/// Decides for each mapped file, once per inode, whether it is to be traced. Candidates come by name
/// pattern for what is said about failures, but are confirmed by exported symbols only.
class LibraryFinder {
 public:
  LibraryFinder(const MappingScanner& scanner, OpenPreference preference)
      : scanner_(scanner), preference_(preference) {}

  Result<ScanResult> scan_all();
  Result<ScanResult> scan_process(std::uint32_t pid);

  /// The file is to be opened and reported as found again (its attach failed, or it was detached).
  void forget(const model::FileKey& file) { traced_.erase(file); }

  /// How many files were looked into, and how many are of no interest.
  std::size_t files_inspected() const { return inspected_; }

 private:
  enum class Verdict { kTraced, kOther, kRetry };
  ScanResult sort_out(const std::vector<FileMapping>& mappings);
  Verdict judge(const FileMapping& mapping, ScanResult& result);
  Result<UniqueFd> open(const FileMapping& mapping) const;
  void set_aside(const FileMapping& mapping);

  const MappingScanner& scanner_;
  OpenPreference preference_;
  std::unordered_set<model::FileKey, model::IdentityHash> traced_;
  std::unordered_map<model::FileKey, std::uint64_t, model::IdentityHash> set_aside_;  ///< size
  /// Files that could not be opened by way of this process.
  std::set<std::pair<model::ProcessKey, model::FileKey>> unreachable_;
  std::size_t inspected_ = 0;
};

/// Whether a file name is that of a library the agent is looking for, so that a failure with it is
/// worth telling: libnccl, librccl, libcudart, libcuda and what is known to contain them.
bool is_candidate_name(std::string_view path);

}  // namespace ingero::discover
