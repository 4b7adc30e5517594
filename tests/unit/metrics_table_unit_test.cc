// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <prometheus/check_names.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "export/metrics_table.h"
#include "model/histogram.h"

namespace ingero::exporting {
namespace {

constexpr const char* kReference = INGERO_TEST_DATA "/../../../docs/metrics.md";

std::string reference_on_disk() {
  std::ifstream file(kReference);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MetricsTable, DocumentationIsMadeFromTheTable) {
  // Set by hack/generate-metrics-doc.
  if (std::getenv("INGERO_WRITE_METRICS_DOC")) {
    std::ofstream(kReference) << metrics_reference_markdown();
  }
  EXPECT_EQ(reference_on_disk(), metrics_reference_markdown())
      << "run hack/generate-metrics-doc and commit docs/metrics.md";
}

TEST(MetricsTable, NamesAreUniqueAndValid) {
  std::set<std::string_view> names;
  for (const MetricInfo& info : metrics_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(prometheus::CheckMetricName(std::string(info.name))) << info.name;
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_EQ(info.help.find_first_of("\n\\|"), std::string_view::npos) << info.name;
    for (const auto label : info.own_labels()) {
      EXPECT_TRUE(prometheus::CheckLabelName(std::string(label))) << info.name << " " << label;
    }
  }
}

TEST(MetricsTable, IdsNameTheirRows) {
  EXPECT_EQ(metric_info(MetricId::kMemcpyBytes).name, "gpu_memcpy_bytes_total");
  EXPECT_EQ(metric_info(MetricId::kCudaErrors).name, "gpu_cuda_errors_total");
  EXPECT_EQ(metric_info(MetricId::kProcessThreads).name, "process_threads");
}

TEST(MetricsTable, DurationEndsAreEndsOfKernelBuckets) {
  for (std::size_t i = 0; i < kDurationEnds; ++i) {
    EXPECT_EQ(model::duration_bucket_end_ns(kernel_bucket_of_end(i)),
              std::ldexp(1000.0, static_cast<int>(i)));
  }
}

}  // namespace
}  // namespace ingero::exporting
