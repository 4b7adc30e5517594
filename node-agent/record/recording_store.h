// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ingero::record {

/// One file of a pod's recording: NAMESPACE/POD/20261121T170042Z-1a2b3c4d-001.db below the store's folder.
struct PodFile {
  std::string k8s_namespace, pod;
  std::int64_t started_unix_s = 0;  ///< of the recording, the same for all its files
  std::string request;              ///< eight hexadecimal digits
  std::uint32_t number = 1;         ///< of the file in its recording, from 1
  std::string path;
  std::uint64_t bytes = 0;  ///< file and write-ahead log; 0 before it exists

  bool is_of_same_recording(const PodFile& other) const {
    return k8s_namespace == other.k8s_namespace && pod == other.pod &&
           started_unix_s == other.started_unix_s && request == other.request;
  }
};

/// Eight hexadecimal digits that name what was asked for.
std::string request_name(std::string_view request);

/// The folder with the recordings of pods. What is not named as above is left alone and does not count.
class RecordingStore {
 public:
  explicit RecordingStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  /// All files, oldest recording first, the files of one recording in their order. Never fails: what
  /// cannot be read is not there.
  std::vector<PodFile> list() const;

  /// The path that belongs to the names. Errors: a name that is no name of an object.
  Result<PodFile> name(PodFile file) const;
  /// Makes the folders that the file needs.
  Status prepare(const PodFile& file) const;

  /// Removes a file with its log; folders that are empty then go too.
  Status remove(const PodFile& file) const;

  /// Removes the oldest files until all of them have at most `bytes`; those in `kept` (paths) stay.
  /// Returns what they have then.
  std::uint64_t shrink_to(std::uint64_t bytes, const std::set<std::string>& kept) const;

 private:
  std::string folder_;
};

}  // namespace ingero::record
