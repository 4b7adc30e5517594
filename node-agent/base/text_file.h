// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace ingero {

/// The whole of a small file of /proc, /sys or a configuration. Never blocks on a FIFO; refuses
/// what is not a regular file or is longer than `max_bytes`. `operation` opens the error's message,
/// such as "read mounts".
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes,
                                   const std::string& operation);

}  // namespace ingero
