// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/page.h"
#include "record/report_data.h"

namespace ingero::record {

/// What somebody in a hurry reads: who stands out, what failed, and whether the page can be trusted.
model::PageSection make_verdict(const Recording& recording, const ReportData& data);

}  // namespace ingero::record
