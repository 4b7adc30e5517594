// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "discover/library_image.h"
#include "discover/mapping_scanner.h"

namespace ingero::discover {

/// A file that exports traced functions, open for the attach.
struct FoundLibrary {
  model::FileKey file;
  FileVersion version;
  std::string path;  ///< raw bytes, as the process sees it
  std::uint32_t pid = 0;
  model::CgroupId cgroup = model::CgroupId::kUnknown;  ///< of the process that showed it
  UniqueFd fd;
  LibraryImage image;
  FileVersion opened;  ///< as version_of() shows it, from before the image was read
};

/// What fstat() says of an open file: of an overlay's, other times than the kernel's own file may have.
/// Zeros where it fails.
FileVersion version_of(int fd);

enum class OpenPreference { kAutomatic, kMapFiles, kProcRoot };

/// What one look into a mapped file has shown.
struct Inspection {
  enum class Outcome {
    kTraced,       ///< `library` is there
    kOther,        ///< nothing of ours is in it
    kRefused,      ///< its content cannot be read as a library; the same until it changes
    kUnreachable,  ///< not by way of this process; says nothing about the file
    kGone,         ///< the process or its mapping went away meanwhile
    kFailed,       ///< the content is not known yet; looked at again later
  };
  Outcome outcome = Outcome::kFailed;
  std::optional<FoundLibrary> library;
  std::string reason;  ///< of a failure, for ingero_attach_failures_total
  Error error;         ///< where there is a reason
  struct Cost {
    std::chrono::nanoseconds cpu{0};
    std::uint64_t bytes = 0;
  } cost;
};

/// Opens the file of the mapping, reads what it exports, and makes sure that it is the file that the mapping
/// names. May hang where a tenant's file system does: for a thread of the worker's. `scanner` by value: the
/// caller may be gone when a hanging look ends.
Inspection inspect_mapping(MappingScanner scanner, const FileMapping& mapping,
                           OpenPreference preference);

}  // namespace ingero::discover
