// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sqlite3.h>

namespace ingero::record {

/// Adds to SQL what SQLite lacks: the aggregate percentile(value, p), p from 0 to 100, of the numbers that
/// are not NULL, between two of them in proportion. NULL where there is none.
int add_functions(sqlite3* database);

}  // namespace ingero::record
