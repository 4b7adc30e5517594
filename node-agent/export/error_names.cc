// SPDX-License-Identifier: Apache-2.0
#include "export/error_names.h"

#include "export/other.h"
#include "model/functions.h"
#include "model/snapshot.h"

namespace ingero::exporting {

std::string error_name(OperationIndex operation, std::int32_t code) {
  if (code == model::kOtherErrorCode) return kOther;
  return model::result_name(operations()[operation].api, code);
}

}  // namespace ingero::exporting
