// SPDX-License-Identifier: Apache-2.0
#include "record/sql_functions.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

namespace ingero::record {
namespace {

constexpr std::size_t kMaxValues = std::size_t{1} << 25;  // 256 MiB

struct Values {
  std::vector<double> list;
  double wanted = 0;
};

/// SQLite hands out room for a pointer, zeroed at first.
Values** values_of(sqlite3_context* context, int size) {
  return static_cast<Values**>(sqlite3_aggregate_context(context, size));
}

void fail_with(sqlite3_context* context, const char* what) {
  sqlite3_result_error(context, what, -1);
}

void add_value(sqlite3_context* context, int, sqlite3_value** arguments) {
  Values** place = values_of(context, sizeof(Values*));
  if (place == nullptr) return sqlite3_result_error_nomem(context);
  const double wanted = sqlite3_value_double(arguments[1]);
  if (sqlite3_value_numeric_type(arguments[1]) == SQLITE_NULL || !(wanted >= 0 && wanted <= 100))
    return fail_with(context, "percentile(value, p): p is a number from 0 to 100");
  const int type = sqlite3_value_numeric_type(arguments[0]);
  if (type == SQLITE_NULL) return;
  if (type != SQLITE_INTEGER && type != SQLITE_FLOAT)
    return fail_with(context, "percentile(value, p): value is not a number");
  try {
    if (*place == nullptr) *place = new Values;
    if ((*place)->list.size() >= kMaxValues)
      return fail_with(context, "percentile(value, p): more than 33,554,432 values");
    (*place)->wanted = wanted;
    (*place)->list.push_back(sqlite3_value_double(arguments[0]));
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  }
}

void tell_percentile(sqlite3_context* context) {
  Values** place = values_of(context, 0);
  if (place == nullptr || *place == nullptr) return sqlite3_result_null(context);
  std::vector<double>& list = (*place)->list;
  const double at = (*place)->wanted / 100 * static_cast<double>(list.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(std::floor(at));
  std::nth_element(list.begin(), list.begin() + below, list.end());
  double value = list[static_cast<std::size_t>(below)];
  if (at > static_cast<double>(below))
    value += (at - static_cast<double>(below)) *
             (*std::min_element(list.begin() + below + 1, list.end()) - value);
  sqlite3_result_double(context, value);
  delete *place;
  *place = nullptr;
}

}  // namespace

int add_functions(sqlite3* database) {
  return sqlite3_create_function_v2(database, "percentile", 2,
                                    SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr,
                                    nullptr, add_value, tell_percentile, nullptr);
}

}  // namespace ingero::record
