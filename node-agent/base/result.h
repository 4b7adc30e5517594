// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ingero {

/// One failure: what was attempted on what, why it failed, what the user can do about it.
struct Error {
  std::string operation;  ///< such as "attach ncclAllReduce"
  std::string object;     ///< such as "/proc/812/root/usr/lib/libnccl.so.2"; may be empty
  std::string cause;      ///< such as "permission denied"
  std::string hint;       ///< such as "run as root, or give CAP_BPF and CAP_PERFMON"; may be empty
  int code = 0;           ///< errno where one exists, else 0

  /// "attach ncclAllReduce (libnccl.so.2): permission denied; hint: ..."
  std::string message() const {
    std::string text = operation;
    if (!object.empty()) text += fmt::format(" ({})", object);
    text += fmt::format(": {}", cause);
    if (!hint.empty()) text += fmt::format("; hint: {}", hint);
    return text;
  }

  static Error from_errno(int code, std::string operation, std::string object,
                          std::string hint = "") {
    return Error{std::move(operation), std::move(object), std::strerror(code), std::move(hint),
                 code};
  }
};

template <typename T>
using Result = tl::expected<T, Error>;

/// For operations that give nothing back but can fail.
using Status = Result<void>;

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

/// The error of the last system call.
inline tl::unexpected<Error> fail_errno(std::string operation, std::string object,
                                        std::string hint = "") {
  return fail(Error::from_errno(errno, std::move(operation), std::move(object), std::move(hint)));
}

}  // namespace ingero
