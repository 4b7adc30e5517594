// SPDX-License-Identifier: Apache-2.0
#include "app/version.h"

namespace ingero::app {

const char* const kVersion = INGERO_VERSION;
const char* const kRevision = INGERO_REVISION;

}  // namespace ingero::app
