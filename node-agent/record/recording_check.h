// SPDX-License-Identifier: Apache-2.0
// Whether a file is a recording, asked before anything of it is believed or run.
#pragma once

#include <string>

#include "base/result.h"
#include "record/database.h"

namespace ingero::record {

/// While it lives, a statement on the database ends with SQLITE_INTERRUPT after as many steps of SQLite as no
/// look at a recording's schema takes: steps, not time, so that a slow disk is no attack.
class StepLimit {
 public:
  explicit StepLimit(sqlite3* database);
  ~StepLimit();
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

 private:
  sqlite3* database_;
};

Error not_a_recording(const std::string& path, const std::string& why);

/// As above; `error` is of a statement that only a hostile file makes long.
Error not_a_recording(const std::string& path, const Error& error);

/// `schema` is the name under which the file is attached. No statement of the file is run: every table that
/// this program reads is one, stored as it is, and not a view or something computed.
Status check_recording(sqlite3* database, const std::string& schema, const std::string& path);

}  // namespace ingero::record
