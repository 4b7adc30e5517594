// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "base/result.h"

namespace ingero::k8s {

enum class WriteMethod { post, put, patch, remove };

/// What the body of a write is.
enum class BodyType {
  json,         ///< a whole object, for POST and PUT; the options of a removal
  merge_patch,  ///< RFC 7396
  apply         ///< server-side apply: all fields that the agent owns
};

/// Changes objects of the API server, in the name of the field manager "ingero". An apply takes
/// fields over from other managers. Returns within a second of a stop request, and does not throw.
class Writer {
 public:
  virtual ~Writer() = default;

  /// The object as it is afterwards. Error::code is the HTTP status, as in transport.h.
  virtual Result<nlohmann::json> send(WriteMethod method, const std::string& path,
                                      const nlohmann::json& body, BodyType type,
                                      std::stop_token stop) = 0;
};

}  // namespace ingero::k8s
