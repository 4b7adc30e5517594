// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ingero::config {

/// Tells when a file may have changed: written in place, replaced by a rename (editors), or reached
/// through a link that was replaced (mounted ConfigMaps). Watches its folder, so that a file that is
/// deleted and comes back is noticed too.
class ConfigFileWatch {
 public:
  static Result<ConfigFileWatch> create(const std::string& path);

  /// Readable when take() has something to say.
  int descriptor() const { return inotify_.get(); }
  /// Reads what has happened. True: the file may have changed; look again after a moment, as a writer
  /// may not be done.
  bool take();

 private:
  ConfigFileWatch(UniqueFd inotify, std::string name)
      : inotify_(std::move(inotify)), name_(std::move(name)) {}

  UniqueFd inotify_;
  std::string name_;  ///< without its folder
};

}  // namespace ingero::config
