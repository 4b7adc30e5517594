// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.h"
#include "k8s/credentials.h"

namespace httplib {
class ClientImpl;
}

namespace ingero::k8s {

/// An HTTP client for one request to `endpoint`. The server's certificate must come from the given
/// authorities (none given: from the system's) and name the endpoint's host, unless verification is
/// skipped.
Result<std::unique_ptr<httplib::ClientImpl>> make_http_client(const ApiEndpoint& endpoint,
                                                              const TlsMaterial& material);

/// Why the last handshake of a client refused the server's certificate; empty: it did not.
std::string describe_verification(const httplib::ClientImpl& client);

}  // namespace ingero::k8s
